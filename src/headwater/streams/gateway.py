"""How Spark's JVM is started, and how it ends.

This file alone decides what stands between PySpark and Java: the command that Spark's own launcher
builds is run as it is, without the shell that PySpark would run it in, in a session of its own. The
JVM ends when the pipe to it closes, however this process ends. Which settings Spark gets is decided
elsewhere.
"""

import os
import shlex
import shutil
import site
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headwater.base.errors import HeadwaterError
from headwater.streams.java import OPTIONAL_MODULE, Java, JavaMissingError, use_java

_LAUNCHER = "org.apache.spark.launcher.Main"
_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
_PACKAGE_OPENED = "--add-opens=java.base/sun.security.action="
_PACKAGE_GONE_IN = 24
_LAUNCHER_WITHIN_S = 60.0
_JVM_WITHIN_S = 300.0
_LOOK_AGAIN_S = 0.02
_TOLD_MAX = 2_000


class SparkStartError(HeadwaterError):
    """Spark is there and cannot start."""


def is_submitted() -> bool:
    """Tell whether spark-submit runs this program, and has brought its JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM of this process's Spark, unless there is one.

    Nothing is done for a program that spark-submit runs, which has brought its own, and for a
    Spark that is set up by a ``spark-env.sh``, which its own scripts read.

    Args:
        settings: Settings of Spark; some of them, as the driver's memory, can only be given now.

    Raises:
        JavaMissingError: There is no Java that will do.
        SparkStartError: It did not start.
    """
    from pyspark import SparkContext  # noqa: PLC0415 - an extra, and slow to load
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

    if SparkContext._gateway is not None or is_submitted():  # noqa: SLF001
        return
    java = use_java()
    _check_executors(java, settings.get("spark.master", ""))
    home = Path(_find_spark_home())
    if _has_own_environment(home):
        return
    with tempfile.TemporaryDirectory(prefix="headwater-jvm-") as folder:
        answer = Path(folder, "answer")
        environment = _environment(home, java, answer)
        process = subprocess.Popen(  # noqa: S603 - what Spark's own launcher says
            _command(home, java, settings, environment),
            env=environment_of_jvm(environment, home, settings),
            stdin=subprocess.PIPE,
            # Ctrl-C is for this process, which has queries to stop before their JVM may go.
            start_new_session=True,
        )
        try:
            port, secret = _wait_for(process, answer)
            gateway = _connect(port, secret, launch_gateway)
        except BaseException:
            process.kill()
            process.communicate()
            raise
    # As PySpark itself does: those who look for the JVM look here.
    gateway.proc = process
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001


def _check_executors(java: Java, master: str) -> None:
    if master.startswith("local-cluster") and not java.whole:
        raise JavaMissingError(
            f"executors of {master} need a Java with the module {OPTIONAL_MODULE}, "
            f"which {java.home} ({java.origin}) has not",
            hint="install one (apt install openjdk-17-jre-headless), or use local[*]",
        )


def _has_own_environment(home: Path) -> bool:
    folder = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf")
    if not (folder / "spark-env.sh").is_file():
        return False
    if shutil.which("bash") is None:
        raise SparkStartError(
            f"{folder / 'spark-env.sh'} is for bash, which is not on the PATH",
            hint="apt install bash, or let SPARK_CONF_DIR name a folder without that file",
        )
    return True


def _environment(home: Path, java: Java, answer: Path) -> dict[str, str]:
    """Return what Spark's scripts would export, and where the JVM shall say how it is reached."""
    return {
        **os.environ,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(home),
        "SPARK_SCALA_VERSION": _launcher(home).name.split("_")[1].split("-")[0],
        "SPARK_CONNECT_MODE": "0",
        # Python workers must agree on the hash of a string.
        "PYTHONHASHSEED": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer),
    }


def environment_of_jvm(
    environment: dict[str, str], home: Path, settings: Mapping[str, str]
) -> dict[str, str]:
    """Leave out where Spark is, if Python processes on this machine find PySpark by themselves.

    A JVM that knows it puts PySpark's archive in front of their paths. There is no compiled code in
    it: each process that reads a source's offsets or plans a query would compile PySpark for itself
    first, which is the greater part of a second.
    """
    is_here = settings.get("spark.master", "").split("[")[0] == "local"
    installed = {Path(each) for each in (*site.getsitepackages(), site.getusersitepackages())}
    if not is_here or home.parent not in installed or _has_other_python(environment, settings):
        return environment
    kept = {name: value for name, value in environment.items() if name != "SPARK_HOME"}
    return {"SPARK_CONF_DIR": str(home / "conf"), **kept}


def _has_other_python(environment: Mapping[str, str], settings: Mapping[str, str]) -> bool:
    named = [environment.get(name) for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")]
    named += [settings.get(f"spark.pyspark.{name}") for name in ("python", "driver.python")]
    return any(each not in {None, "", sys.executable} for each in named)


def _launcher(home: Path) -> Path:
    found = sorted((home / "jars").glob("spark-launcher_*.jar"))
    if not found:
        raise SparkStartError(
            f"there is no Spark in {home}", hint="let SPARK_HOME name one, or unset it"
        )
    return found[-1]


def _command(
    home: Path, java: Java, settings: Mapping[str, str], environment: Mapping[str, str]
) -> list[str]:
    """Ask Spark's launcher how the JVM is started."""
    given = [word for each in settings.items() for word in ("--conf", "=".join(each))]
    given += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    quick = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    program = java.home / "bin" / "java"
    try:
        asked = subprocess.run(  # noqa: S603 - a Java that the user has chosen
            [program, *quick, "-cp", _launcher(home), _LAUNCHER, _SUBMIT, *given],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LAUNCHER_WITHIN_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SparkStartError(
            f"Spark's launcher said nothing for {_LAUNCHER_WITHIN_S:.0f} s",
            hint="try again when the machine has less to do",
        ) from error
    # Whatever stands before the first NUL is for people.
    _, _, said = asked.stdout.partition("\0\n")
    words = said.split("\0")[:-1]
    if asked.returncode != 0 or not words:
        told = (asked.stderr or asked.stdout).strip()[:_TOLD_MAX]
        raise SparkStartError(
            f"Spark cannot be started like this: {told or 'its launcher says nothing'}",
            hint="look at the settings given to the session, and at PYSPARK_SUBMIT_ARGS",
        )
    return _without_warnings(words, java)


def _without_warnings(words: list[str], java: Java) -> list[str]:
    """Leave out what Spark adds and every start would warn of.

    One is a module that is hardly used and that not every Java has. Spark adds it behind what users
    ask for; who asks for it gets it. The other is a package that newer Javas have no more.
    """
    added = f"--add-modules={OPTIONAL_MODULE}"
    if added in words:
        place = len(words) - 1 - words[::-1].index(added)
        words = words[:place] + words[place + 1 :]
    if java.version >= _PACKAGE_GONE_IN:
        words = [each for each in words if not each.startswith(_PACKAGE_OPENED)]
    return words


def _wait_for(process: subprocess.Popen[bytes], answer: Path) -> tuple[int, str]:
    """Wait until the JVM has said how it is reached; its file appears whole."""
    end_s = time.monotonic() + _JVM_WITHIN_S
    while not answer.is_file():
        if time.monotonic() > end_s:
            raise SparkStartError(
                f"Spark's JVM was not ready after {_JVM_WITHIN_S:.0f} s",
                hint="try again when the machine has less to do; headwater doctor looks at Java",
            )
        if process.poll() is not None:
            raise SparkStartError(
                f"Spark's JVM ended with code {process.returncode} before it was ready",
                hint="it has said why on standard error; headwater doctor looks at Java and Spark",
            )
        time.sleep(_LOOK_AGAIN_S)
    said = answer.read_bytes()
    port, length = struct.unpack_from(">ii", said)
    return port, said[8 : 8 + length].decode()


def _connect(port: int, secret: str, launch_gateway: Callable[[], Any]) -> Any:  # noqa: ANN401
    """Let PySpark connect to a JVM that is there; no child of ours shall take it for its own."""
    os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = secret
    try:
        return launch_gateway()
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
