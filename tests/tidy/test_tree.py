"""The rules, applied to every file of the repository."""

import fnmatch
import os
import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from tests.tidy import rules

ROOT = Path(__file__).resolve().parent.parent.parent
CODE = ("src", "tests", "benchmarks", "codegen", "examples")
# The licence is not ours to edit.
FOREIGN = {"LICENSE"}
# The only place where offences stand on purpose.
PLANTED = "tests/tidy/"
# A dialect finds its handlers by the names of their files.
HANDLER = re.compile(r"headwater\.delivery\.dialects\.\w+\.api_\d\d_\w+")


@cache
def ignored_names() -> tuple[str, ...]:
    """The plain patterns of .gitignore; asked of the file, because git may not be installed."""
    lines = (ROOT / ".gitignore").read_text().splitlines()
    return (".git", *(line.rstrip("/") for line in lines if line and not line.startswith("#")))


def is_ignored(name: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in ignored_names())


@cache
def texts() -> dict[str, str]:
    """Every file that could be committed and is text: path within the repository to content."""
    return {str(path.relative_to(ROOT)): text for path, text in _walk()}


def _walk() -> Iterator[tuple[Path, str]]:
    for folder, folders, files in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if not is_ignored(name))
        for name in sorted(files):
            path = Path(folder, name)
            if is_ignored(name) or name in FOREIGN or path.is_symlink():
                continue
            content = path.read_bytes()
            if b"\0" in content:
                continue
            # Golden files of a binary format may lack a zero byte by chance.
            with suppress(UnicodeDecodeError):
                yield path, content.decode()


def prose() -> dict[str, str]:
    return {path: text for path, text in texts().items() if not path.startswith(PLANTED)}


def python(*folders: str) -> dict[str, str]:
    return {
        path: text
        for path, text in texts().items()
        if path.endswith(".py") and path.split("/", 1)[0] in folders
    }


def judge(files: dict[str, str], rule: Callable[[str], list[str]]) -> None:
    assert files, "the rule was given nothing to judge"
    expect_none([f"{path}:{offence}" for path, text in files.items() for offence in rule(text)])


def expect_none(offences: list[str]) -> None:
    """Fail with all offences; pytest's own view of two lists would cut them short."""
    if offences:
        pytest.fail("\n".join(["untidy:", *offences]), pytrace=False)


@pytest.mark.parametrize("rule", [rules.long_functions, rules.long_module, rules.missing_docstring])
def test_modules(rule: Callable[[str], list[str]]) -> None:
    judge(python(*CODE), rule)


@pytest.mark.parametrize("rule", [rules.undocumented_names, rules.stubs, rules.wrong_exports])
def test_source(rule: Callable[[str], list[str]]) -> None:
    judge(python("src"), rule)


def test_one_request_fits_into_a_small_file() -> None:
    requests = {path: text for path, text in python("src").items() if "/api_" in path}
    assert requests
    judge(requests, rules.long_request)


def test_rooms_say_what_they_take_and_give() -> None:
    rooms = {path: text for path, text in python("src").items() if path.endswith("__init__.py")}
    judge(rooms, rules.missing_room_sections)


def test_every_folder_of_source_is_a_room() -> None:
    folders = {path.rsplit("/", 1)[0] for path in python("src")}
    rooms = {path.rsplit("/", 1)[0] for path in texts() if path.endswith("__init__.py")}
    expect_none([f"{folder}: no __init__.py" for folder in sorted(folders - rooms)])


@pytest.mark.parametrize("rule", [rules.leftovers, rules.registry_hosts])
def test_texts(rule: Callable[[str], list[str]]) -> None:
    judge(prose(), rule)


def test_no_path_of_one_machine() -> None:
    judge(prose(), lambda text: rules.machine_paths(text, str(ROOT)))


def test_markdown_has_one_title() -> None:
    pages = {path: text for path, text in texts().items() if path.endswith(".md")}
    judge(pages, rules.wrong_title)


def test_decisions_have_their_sections() -> None:
    index = texts()["docs/decisions/README.md"]
    records = {
        path.rsplit("/", 1)[1]: text
        for path, text in texts().items()
        if path.startswith("docs/decisions/") and not path.endswith("README.md")
    }
    expect_none(
        [
            f"docs/decisions/{name}:{offence}"
            for name, text in records.items()
            for offence in rules.wrong_decision(name, text, index)
        ]
    )


def test_no_module_is_dead() -> None:
    modules = {dotted_name(path): text for path, text in python("src").items()}
    # What only tests use is dead, except in the room that is made for tests.
    users = list(python("tests", "examples").values())
    testing = {name for name in modules if name.startswith("headwater.testing")}
    started = [*entry_points(), *(name for name in modules if HANDLER.fullmatch(name))]
    dead = rules.dead_modules(modules, started)
    dead_in_testing = rules.dead_modules(modules, started, users)
    expect_none([name for name in dead if name not in testing or name in dead_in_testing])


def dotted_name(path: str) -> str:
    name = path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__")
    return name.replace("/", ".")


def entry_points() -> list[str]:
    project = tomllib.loads(texts()["pyproject.toml"])["project"]
    groups = [project.get("scripts", {}), *project.get("entry-points", {}).values()]
    started = [target.split(":", 1)[0] for group in groups for target in group.values()]
    # Spark looks for packages by the beginning of their name; functions are for users alone.
    public = ["headwater", "headwater.__main__", "headwater.functions", "pyspark_headwater"]
    return [*public, *started]
