"""Foreign programs the tests judge Headwater by, and what happens when one is absent.

This file alone decides whether a peer is present, and that an absent one is a skip which names
`make peers`, or a failure where `HEADWATER_PEERS=required`. How a peer is fetched stands in
`tests.peers.fetch`, how Apache Kafka is started in `tests.peers.kafka_server`. It also decides with
which flags Java runs where it lives for minutes, Spark's among it.

Takes: the folder that `make peers` fills, and the programs on the PATH.
Gives: `require`, the commands to start Java and node peers, a compiler for small Java programs.
May import: the standard library and pytest.
Start reading at: `require`.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FETCHED = ROOT / ".peers"

# Java programs choose their class path by the folder under tests/peers that holds the pom.
Jars = Literal["kafka-4.3", "clients-3.9", "clients-2.8", "spark-kafka", "pyflink-jars"]

# One compiler tier and the serial collector: Java that lives for seconds or minutes has better uses
# for a core than to compile itself thoroughly.
QUICK_JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def _has_jars(jars: Jars) -> bool:
    return shutil.which("java") is not None and (FETCHED / jars / "stamp").is_file()


def _has_kafkajs() -> bool:
    return shutil.which("node") is not None and (FETCHED / "node" / "stamp").is_file()


def kafka_python_version() -> str:
    """Name the version of kafka-python, whose own tests are fetched in the same one."""
    return version("kafka-python")


def _has_kafka_python_tests() -> bool:
    stamp = FETCHED / "kafka-python" / "stamp"
    return stamp.is_file() and stamp.read_text() == kafka_python_version()


PRESENT: dict[str, Callable[[], bool]] = {
    "kafka": lambda: _has_jars("kafka-4.3"),
    "clients-3.9": lambda: _has_jars("clients-3.9"),
    "clients-2.8": lambda: _has_jars("clients-2.8"),
    "spark-kafka": lambda: _has_jars("spark-kafka"),
    "javac": lambda: shutil.which("javac") is not None,
    "kafkajs": _has_kafkajs,
    "kafka-python's tests": _has_kafka_python_tests,
    "openssl": lambda: shutil.which("openssl") is not None,
    "kcat": lambda: shutil.which("kcat") is not None,
    "pyflink": lambda: _has_jars("pyflink-jars") and (FETCHED / "pyflink" / "stamp").is_file(),
}
# What `make peers` leaves out has a command of its own.
_COMMANDS = {"pyflink": "make peers-pyflink"}


def missing(name: str) -> str | None:
    """Say what to do about an absent peer, or nothing when it is there."""
    if PRESENT[name]():
        return None
    return f"peer {name!r} is not installed; run: {_COMMANDS.get(name, 'make peers')}"


def require(name: str) -> None:
    """Skip the running test, or fail it where peers are required, unless the peer is there."""
    import pytest  # noqa: PLC0415 - benchmarks use this package without pytest

    reason = missing(name)
    if reason is None:
        return
    if os.environ.get("HEADWATER_PEERS") == "required":
        pytest.fail(f"{reason} (HEADWATER_PEERS=required)", pytrace=False)
    pytest.skip(reason)


def classpath(jars: Jars, *more: Path) -> str:
    """Build a class path of all jars of one peer, and further folders before them."""
    return os.pathsep.join([*(str(path) for path in more), str(FETCHED / jars / "*")])


def spark_connector() -> list[Path]:
    """List the jars of Spark's own Kafka connector, for `spark.jars`; none when it is absent."""
    return sorted((FETCHED / "spark-kafka").glob("*.jar")) if PRESENT["spark-kafka"]() else []


def pyflink_python() -> Path:
    """Name the interpreter of the virtual environment that has PyFlink."""
    return FETCHED / "pyflink" / "bin" / "python"


def pyflink_jars() -> list[Path]:
    """List the jars that PyFlink is given besides its own."""
    return sorted((FETCHED / "pyflink-jars").glob("*.jar"))


def have_spark_start_quickly() -> None:
    """Have Spark run on quick Java, in this process and those that it starts."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(QUICK_JAVA))


def java_command(
    main_class: str,
    *arguments: str,
    jars: Jars = "kafka-4.3",
    more: Sequence[Path] = (),
    heap: str = "256M",
) -> list[str]:
    """Build the command that runs a Java class with one peer's jars."""
    return [
        "java",
        f"-Xmx{heap}",
        *QUICK_JAVA,
        "-cp",
        classpath(jars, *more),
        main_class,
        *arguments,
    ]


def java(
    main_class: str,
    *arguments: str,
    jars: Jars = "kafka-4.3",
    more: Sequence[Path] = (),
    timeout_s: float = 120,
    stdin: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a Java class to its end; a failure raises with what it printed."""
    command = java_command(main_class, *arguments, jars=jars, more=more)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, input=stdin, check=False
    )
    if done.returncode != 0:
        msg = f"{main_class} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        raise RuntimeError(msg)
    return done


def compile_java(source: Path, into: Path, *, jars: Jars = "kafka-4.3") -> Path:
    """Compile a Java source, and what it uses beside it; gives the folder of its classes."""
    into.mkdir(parents=True, exist_ok=True)
    command = ["javac", *(f"-J{flag}" for flag in QUICK_JAVA), "-nowarn"]
    command += ["-d", str(into), "-cp", classpath(jars)]
    command += ["-sourcepath", str(source.parent), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        msg = f"{source.name} does not compile against {jars}\n{done.stderr}"
        raise RuntimeError(msg)
    return into


def node_environment() -> dict[str, str]:
    """Give the environment in which node finds the fetched packages."""
    return {**os.environ, "NODE_PATH": str(FETCHED / "node" / "node_modules")}
