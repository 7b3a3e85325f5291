"""Pipelines that are written down in a file.

This file alone decides how a file becomes pipelines: it is run as Python, what it calls
`.to(...)` is collected, and `.run()` and `.start()` in it do nothing, so that the same file works
under `python FILE`, under `headwater run` and in a dry run.
"""

import contextlib
import importlib
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.base.errors import HeadwaterError
from headwater.base.spelling import nearest
from headwater.streams.running.errors import (
    DefinitionError,
    PipelineNotFoundError,
    telling_line,
)

if TYPE_CHECKING:
    from headwater.streams.running.pipeline import Pipeline

# Neither inherits from the other.
_READERS = ("pyspark.sql.streaming.readwriter", "pyspark.sql.connect.streaming.readwriter")
_collected: ContextVar["list[Pipeline] | None"] = ContextVar("collected", default=None)


def are_collected() -> bool:
    """Tell whether pipelines are only written down at the moment."""
    return _collected.get() is not None


def announce(pipeline: "Pipeline") -> None:
    """Take note of a pipeline, if somebody collects.

    Raises:
        DefinitionError: Another one of the file has its name.
    """
    found = _collected.get()
    if found is None or pipeline in found:
        return
    if any(each.name == pipeline.name for each in found):
        raise DefinitionError(
            f"two pipelines are called {pipeline.name!r}",
            hint="a checkpoint belongs to one name: give each its own",
        )
    found.append(pipeline)


def split(given: str) -> tuple[Path, str | None]:
    """Read ``FILE[:NAME]``."""
    path, colon, name = given.rpartition(":")
    if colon and path and not Path(given).exists():
        return Path(path), name
    return Path(given), None


def load(
    path: Path, name: str | None = None, *, source_options: Mapping[str, str] | None = None
) -> "list[Pipeline]":
    """Run a file and return its pipelines, or the one that is named.

    Args:
        path: The file.
        name: The one that is wanted.
        source_options: Options that every streaming source of the file is given over its own.

    Raises:
        DefinitionError: The file fails, or defines none.
        PipelineNotFoundError: None has the name.
    """
    if not path.is_file():
        raise PipelineNotFoundError(f"{path} does not exist", hint="headwater run FILE[:NAME]")
    found: list[Pipeline] = []
    token = _collected.set(found)
    try:
        with _sources_with(source_options or {}):
            _execute(path)
    finally:
        _collected.reset(token)
    if not found:
        raise DefinitionError(
            f"{path} defines no pipeline",
            hint='write: hw.pipeline("name", df).to(hw.topic("out")).run()',
        )
    if name is None:
        return found
    for each in found:
        if each.name == name:
            return [each]
    close = nearest(name, [each.name for each in found])
    raise PipelineNotFoundError(
        f"{path} has no pipeline {name!r}" + (f" - did you mean {close!r}?" if close else ""),
        hint=f"it has: {', '.join(each.name for each in found)}",
    )


def _execute(path: Path) -> None:
    """Run a file as Python would, with its folder at the front of the path."""
    # As if it were the program, so that what it guards by its name is run too.
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    sys.path.insert(0, str(path.resolve().parent))
    try:
        code = compile(path.read_bytes(), str(path), "exec")
        exec(code, namespace)  # noqa: S102 - the user's own file is what was asked for
    except HeadwaterError:
        raise
    except SystemExit as error:
        if error.code not in {0, None}:
            raise DefinitionError(f"{path} ended with {error.code}") from error
    except Exception as error:
        line = _line_in(path, error)
        raise DefinitionError(
            f"{path}{line}: {type(error).__name__}: {telling_line(str(error))}",
            hint=f"run it alone: python {path}",
        ) from error
    finally:
        sys.path.remove(str(path.resolve().parent))


def _line_in(path: Path, error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    place = ""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            place = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return place


@contextlib.contextmanager
def _sources_with(options: Mapping[str, str]) -> Iterator[None]:
    """Give options to every streaming source that is loaded meanwhile."""
    if not options:
        yield
        return
    with contextlib.ExitStack() as patches:
        for module in _READERS:
            with contextlib.suppress(ImportError):  # Connect needs more than Spark does
                reader = importlib.import_module(module).DataStreamReader
                patches.enter_context(_loading_with(reader, options))
        yield


@contextlib.contextmanager
def _loading_with(reader_class: Any, options: Mapping[str, str]) -> Iterator[None]:  # noqa: ANN401 - two of Spark's
    original = reader_class.load

    def load_with(reader: Any, *args: Any, **more: Any) -> Any:  # noqa: ANN401 - as Spark's
        return original(reader.options(**options), *args, **more)

    reader_class.load = load_with
    try:
        yield
    finally:
        reader_class.load = original
