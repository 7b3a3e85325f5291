"""Fetch the peers: `make peers`, and `make peers-pyflink` for the one that only a benchmark needs.

This file alone decides where peers come from: jars through Maven, kafkajs through npm, the tests
of kafka-python and PyFlink through pip, kcat through apt. Coordinates stand in the poms, the
package.json and the requirements.txt beside it; kafka-python's tests come in the version of the
installed client. What is already there and unchanged is not fetched again; what cannot be had is
named and ends the run with 1, after everything else was tried.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.peers import FETCHED, HERE, kafka_python_version

# Debian's names for the programs that fetch or run a peer.
DEBIAN_PACKAGES = {
    "java": "default-jdk-headless",
    "javac": "default-jdk-headless",
    "mvn": "maven",
    "node": "nodejs",
    "npm": "npm",
    "kcat": "kcat",
    "openssl": "openssl",
}


class CannotFetchError(Exception):
    """A peer could not be had; the text says what to do."""


def _run(command: list[str], *, cwd: Path | None = None) -> None:
    # Registries fail now and then; two more tries cost less than a red build.
    for attempt in range(3):
        done = subprocess.run(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )
        if done.returncode == 0:
            return
        time.sleep(2 * attempt)
    raise CannotFetchError(f"{' '.join(command)}\n{done.stdout[-2000:]}")


def programs() -> None:
    """Install the programs that are missing on the PATH, by apt, where that is allowed."""
    wanted = {package for name, package in DEBIAN_PACKAGES.items() if shutil.which(name) is None}
    if not wanted:
        return
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *sorted(wanted)]
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise CannotFetchError(f"run as root, or install by other means: {' '.join(install)}")
    _run(["apt-get", "update"])
    _run(install)


def _is_current(folder: Path, source: Path) -> bool:
    stamp = folder / "stamp"
    return stamp.is_file() and stamp.read_text() == _digest(source)


def _digest(source: Path) -> str:
    return hashlib.sha256(source.read_bytes()).hexdigest()


def jars(name: str) -> None:
    """Copy one pom's jars into its folder."""
    pom = HERE / name / "pom.xml"
    folder = FETCHED / name
    if _is_current(folder, pom):
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    goal = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies"
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    _run(["mvn", "-q", "-B", "-f", str(pom), goal, *options])
    (folder / "stamp").write_text(_digest(pom))


def kafkajs() -> None:
    """Install the node packages."""
    package = HERE / "node" / "package.json"
    folder = FETCHED / "node"
    if _is_current(folder, package):
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(package, folder / "package.json")
    _run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"], cwd=folder)
    (folder / "stamp").write_text(_digest(package))


# What the tests of kafka-python import and its archive does not have: it starts brokers, and here
# one is running already.
SERVICE = '''"""A broker that is running already: there is nothing to start and nothing to stop."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService(ExternalService):
    pass
'''


def kafka_python_tests() -> None:
    """Unpack the tests that come with the source of kafka-python."""
    folder = FETCHED / "kafka-python"
    version = kafka_python_version()
    if (folder / "stamp").is_file() and (folder / "stamp").read_text() == version:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wanted = f"kafka-python=={version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    _run([*command, "--no-deps", "--no-binary", "kafka-python", "--dest", str(folder), wanted])
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        for member in source:
            _, _, name = member.name.partition("/")
            content = source.extractfile(member)
            if content is not None and re.fullmatch(r"test/(integration/)?\w+\.py", name):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content.read())
    archive.unlink()
    (folder / "test" / "__init__.py").touch()
    (folder / "test" / "service.py").write_text(SERVICE)
    (folder / "stamp").write_text(version)


def pyflink() -> None:
    """Install PyFlink, with its Kafka connector, in a virtual environment of its own."""
    wanted = HERE / "pyflink" / "requirements.txt"
    folder = FETCHED / "pyflink"
    if _is_current(folder, wanted):
        return
    jars("pyflink-jars")
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    python = str(folder / "bin" / "python")
    _run([*pip, "--python", python, "install", "-r", str(wanted)])
    (folder / "stamp").write_text(_digest(wanted))


STEPS: tuple[tuple[str, Callable[[], None]], ...] = (
    ("programs (apt)", programs),
    ("Apache Kafka 4.3 (mvn)", lambda: jars("kafka-4.3")),
    ("Kafka clients 3.9 (mvn)", lambda: jars("clients-3.9")),
    ("Kafka clients 2.8 (mvn)", lambda: jars("clients-2.8")),
    ("Spark's Kafka connector (mvn)", lambda: jars("spark-kafka")),
    ("kafkajs (npm)", kafkajs),
    ("kafka-python's tests (pip)", kafka_python_tests),
)
# What no test needs is fetched by name alone.
NAMED: dict[str, tuple[str, Callable[[], None]]] = {
    "pyflink": ("PyFlink (pip, mvn)", pyflink),
}


def main() -> int:
    """Try every step, or those that were named; 1 when any failed."""
    failed = 0
    for title, step in [NAMED[name] for name in sys.argv[1:]] or STEPS:
        begun_s = time.monotonic()
        try:
            step()
        except (CannotFetchError, OSError) as error:
            failed = 1
            print(f"{title}: FAILED\n{error}", file=sys.stderr)
        else:
            print(f"{title}: ready ({time.monotonic() - begun_s:.1f} s)")
    return failed


if __name__ == "__main__":
    sys.exit(main())
