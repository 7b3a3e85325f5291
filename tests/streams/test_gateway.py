"""How the JVM is started, with a Java and a Spark that only seem to be ones."""

import os
import signal
import site
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from headwater.streams import gateway
from headwater.streams.gateway import SparkStartError, start_jvm
from headwater.streams.java import Java, JavaMissingError

pyspark = pytest.importorskip("pyspark")

# Writes port 258 and the secret "xyz" as Spark's JVM does, then lives until its pipe is closed.
READY = r"""#!/bin/sh
echo "$@" > "$SEEN.arguments"
env > "$SEEN.environment"
printf '\000\000\001\002\000\000\000\003xyz' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.new"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.new" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
cat > /dev/null
"""


class Gateway:
    """Stands for what PySpark makes of a port and a secret."""

    def __init__(self) -> None:
        self.reached = os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
        self.proc: subprocess.Popen[bytes] | None = None


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with a Spark and a Java; what the launcher says is the test's."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-launcher_2.13-4.3.0.jar").touch()
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.setattr(pyspark.SparkContext, "_gateway", None)
    monkeypatch.setattr(pyspark.java_gateway, "launch_gateway", Gateway)
    use(monkeypatch, tmp_path)
    return tmp_path


def use(
    monkeypatch: pytest.MonkeyPatch, home: Path, version: int = 17, *, whole: bool = True
) -> None:
    java = Java(home, version, "a test", whole)
    monkeypatch.setattr(gateway, "use_java", lambda: java)


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def launcher_says(place: Path, *words: str | Path) -> None:
    """Make a Java that answers as the launcher does, and notes what it was asked."""
    said = "".join(f"{word}\\000" for word in words)
    program(
        place / "bin" / "java",
        f"#!/bin/sh\nfor each do echo \"$each\"; done > '{place}/asked'\nprintf '\\000\\n{said}'\n",
    )


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect the gateways that PySpark was given."""
    given: list[Any] = []

    def keep(*, gateway: Any) -> None:  # noqa: ANN401 - whatever PySpark is given
        given.append(gateway)

    monkeypatch.setattr(pyspark.SparkContext, "_ensure_initialized", keep)
    return given


def ended(process: subprocess.Popen[bytes]) -> int:
    assert process.stdin is not None
    process.stdin.close()
    return process.wait(30)


def test_the_launchers_command_is_run(place: Path, connected: list[Any]) -> None:
    jvm = program(place / "jvm", READY)
    launcher_says(place, jvm, "-Xmx1g", "two words", "--add-modules=jdk.incubator.vector", "end")
    start_jvm({"spark.master": "local[2]", "spark.mine": "a b"})
    asked = (place / "asked").read_text().splitlines()
    assert asked[-6:] == [
        "org.apache.spark.deploy.SparkSubmit",
        *("--conf", "spark.master=local[2]", "--conf", "spark.mine=a b", "pyspark-shell"),
    ]
    assert connected[0].reached == ("258", "xyz")
    assert "PYSPARK_GATEWAY_PORT" not in os.environ
    process = connected[0].proc
    assert os.getsid(process.pid) == process.pid, "Ctrl-C would reach it"
    assert ended(process) == 0
    assert (place / "seen.arguments").read_text() == "-Xmx1g two words end\n"
    environment = (place / "seen.environment").read_text().splitlines()
    expected = {f"SPARK_HOME={place}", "SPARK_SCALA_VERSION=2.13", "PYTHONHASHSEED=0"}
    assert expected | {f"JAVA_HOME={place}"} <= set(environment)


def test_who_asks_for_the_module_gets_it(place: Path, connected: list[Any]) -> None:
    module = "--add-modules=jdk.incubator.vector"
    launcher_says(place, program(place / "jvm", READY), module, "-Dx=y", module)
    start_jvm({})
    ended(connected[0].proc)
    assert (place / "seen.arguments").read_text() == f"{module} -Dx=y\n"


@pytest.mark.parametrize("version, stays", [(17, True), (23, True), (24, False), (25, False)])
def test_no_java_is_told_of_a_package_that_it_has_not(
    place: Path, connected: list[Any], monkeypatch: pytest.MonkeyPatch, version: int, *, stays: bool
) -> None:
    use(monkeypatch, place, version)
    opened = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    launcher_says(place, program(place / "jvm", READY), opened)
    start_jvm({})
    ended(connected[0].proc)
    assert (opened in (place / "seen.arguments").read_text()) is stays


def test_what_the_launcher_refuses_is_told(place: Path) -> None:
    program(place / "bin" / "java", "#!/bin/sh\necho 'no such option' >&2\nexit 1\n")
    with pytest.raises(SparkStartError, match="no such option"):
        start_jvm({})


def test_a_launcher_that_does_not_answer_is_told(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "_LAUNCHER_WITHIN_S", 0.1)
    program(place / "bin" / "java", "#!/bin/sh\nexec sleep 600\n")
    with pytest.raises(SparkStartError, match="said nothing"):
        start_jvm({})


def test_a_jvm_that_ends_at_once_is_told(place: Path, connected: list[Any]) -> None:
    launcher_says(place, program(place / "jvm", "#!/bin/sh\nexit 3\n"))
    with pytest.raises(SparkStartError, match="ended with code 3"):
        start_jvm({})
    assert connected == []


def test_an_interrupt_leaves_no_jvm_behind(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = place / "pid"
    launcher_says(place, program(place / "jvm", f"#!/bin/sh\necho $$ > {pid}\nexec sleep 600\n"))

    def interrupt(_: float) -> None:
        if pid.exists() and pid.read_text():
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        start_jvm({})
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), signal.SIGTERM)


def test_a_jvm_that_is_there_is_used(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(place / "bin" / "java", "#!/bin/sh\nexit 9\n")
    monkeypatch.setattr(pyspark.SparkContext, "_gateway", object())
    start_jvm({})
    monkeypatch.setattr(pyspark.SparkContext, "_gateway", None)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    start_jvm({})


def test_a_spark_with_an_environment_of_its_own_is_left_to_its_scripts(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(place / "bin" / "bash", "#!/bin/sh\n")
    program(place / "conf" / "spark-env.sh", "")
    monkeypatch.setenv("PATH", str(place / "bin"))
    start_jvm({})
    (place / "bin" / "bash").unlink()
    with pytest.raises(SparkStartError, match=r"spark-env\.sh is for bash"):
        start_jvm({})


def test_no_spark_is_told(place: Path) -> None:
    (place / "jars" / "spark-launcher_2.13-4.3.0.jar").unlink()
    with pytest.raises(SparkStartError, match="there is no Spark in"):
        start_jvm({})


def test_executors_need_a_whole_java(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, place, whole=False)
    with pytest.raises(JavaMissingError, match="executors of local-cluster"):
        start_jvm({"spark.master": "local-cluster[1,1,512]"})


HOME = Path(site.getsitepackages()[0], "pyspark")


@pytest.mark.parametrize(
    "home,environment,settings,is_told",
    [
        (HOME, {}, {"spark.master": "local[2]"}, False),
        (HOME, {"PYSPARK_PYTHON": sys.executable}, {"spark.master": "local"}, False),
        (HOME, {"PYSPARK_PYTHON": "/any/python"}, {"spark.master": "local[2]"}, True),
        (HOME, {}, {"spark.master": "local[2]", "spark.pyspark.python": "/any/python"}, True),
        (HOME, {}, {"spark.master": "local-cluster[2,1,512]"}, True),
        (HOME, {}, {"spark.master": "spark://127.0.0.1:7077"}, True),
        (Path("/opt/spark"), {}, {"spark.master": "local[2]"}, True),
    ],
)
def test_a_jvm_is_told_where_spark_is_unless_its_workers_know(
    home: Path, environment: dict[str, str], settings: dict[str, str], is_told: bool
) -> None:
    """It would have them import PySpark from an archive, which takes three times as long."""
    given = gateway.environment_of_jvm({"SPARK_HOME": str(home), **environment}, home, settings)
    assert ("SPARK_HOME" in given) == is_told
    assert ("SPARK_CONF_DIR" in given) != is_told, "where it would look for its settings"


def test_a_folder_of_settings_that_was_named_stays() -> None:
    named = {"SPARK_HOME": str(HOME), "SPARK_CONF_DIR": "/any/conf"}
    given = gateway.environment_of_jvm(named, HOME, {"spark.master": "local[2]"})
    assert given == {"SPARK_CONF_DIR": "/any/conf"}
