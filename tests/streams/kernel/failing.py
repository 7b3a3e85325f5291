"""A state store and a disk that give up at any step, under the processor that Spark runs.

This file alone decides what can go wrong and where: each call of Spark's state and each operation
on a local copy is a step, and the n-th one is the one that fails. It judges nothing.

- `Death.KILL`: the process is gone before the step is done; of a write, half is on the disk.
- `Death.REFUSE`: the step raises what a full disk raises. From a state store that ends the attempt,
  local copies have to do without.
- `Death.FULL`: so does every later one that would need room.
"""

import contextlib
import enum
import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final, Self

import pyarrow as pa
import pytest

from headwater.streams.kernel import copies

_STEPS_OF_OS: Final = ("scandir", "utime", "fdopen")
_STEPS_OF_PATH: Final = ("mkdir", "lstat", "rename", "unlink")
_NEED_ROOM: Final = {"mkdir", "mkstemp", "write", "rename"}


class Death(enum.Enum):
    """How a step fails."""

    KILL = "kill"
    REFUSE = "refuse"
    FULL = "full"


class KilledError(BaseException):
    """The process is gone: no `except` and no `suppress` of the code under test sees this."""


class RefusedError(Exception):
    """Spark's state store did not do what it was asked for."""


class Steps:
    """Counts steps, and lets one of them fail.

    Attributes:
        taken: Their names, in order.
    """

    def __init__(self, death: Death, fails_at: int | None) -> None:
        self.taken: list[str] = []
        self._death = death
        self._fails_at = fails_at

    @property
    def is_over(self) -> bool:
        """Whether the step that was to fail has come."""
        return self._fails_at is not None and len(self.taken) > self._fails_at

    def of_disk(self, name: str, *, before: Callable[[], object] | None = None) -> None:
        """Take a step on the disk; `before` is what it leaves if the process is killed in it."""
        if self._comes(name):
            if self._death is Death.KILL:
                if before is not None:
                    before()
                raise KilledError(name)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.is_over and self._death is Death.FULL and name in _NEED_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def of_store(self, name: str) -> None:
        """Take a step of Spark's state store."""
        if self._comes(name):
            raise KilledError(name) if self._death is Death.KILL else RefusedError(name)

    def _comes(self, name: str) -> bool:
        self.taken.append(name)
        return len(self.taken) - 1 == self._fails_at


class StateStore:
    """What Spark has committed for one bucket: a copy is what an attempt writes to."""

    def __init__(self, header: bytes | None = None, chunks: dict[str, bytes] | None = None) -> None:
        self.header = header
        self.chunks = dict(chunks or {})

    def attempt(self) -> "StateStore":
        """Return the same state for an attempt, which is thrown away if it fails."""
        return StateStore(self.header, self.chunks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StateStore):
            return NotImplemented
        return (self.header, self.chunks) == (other.header, other.chunks)

    __hash__ = None  # type: ignore[assignment]


class Handle:
    """Stands in for Spark's handle: it gives the two states of a processor."""

    def __init__(self, store: StateStore, steps: Steps) -> None:
        self._store, self._steps = store, steps

    def getValueState(self, name: str, schema: str) -> "_Header":  # noqa: N802 - Spark's name
        assert (name, schema) == ("header", "header binary")
        return _Header(self._store, self._steps)

    def getMapState(self, name: str, key: str, value: str) -> "_Chunks":  # noqa: N802
        assert (name, key, value) == ("chunks", "name string", "chunk binary")
        return _Chunks(self._store, self._steps)


class _Header:
    def __init__(self, store: StateStore, steps: Steps) -> None:
        self._store, self._steps = store, steps

    def get(self) -> tuple[bytes] | None:
        self._steps.of_store("header get")
        return None if self._store.header is None else (self._store.header,)

    def update(self, value: tuple[bytes]) -> None:
        self._steps.of_store("header update")
        self._store.header = value[0]


class _Chunks:
    def __init__(self, store: StateStore, steps: Steps) -> None:
        self._store, self._steps = store, steps

    def getValue(self, key: tuple[str]) -> tuple[bytes] | None:  # noqa: N802
        self._steps.of_store("chunk get")
        found = self._store.chunks.get(key[0])
        return None if found is None else (found,)

    def updateValue(self, key: tuple[str], value: tuple[bytes]) -> None:  # noqa: N802
        self._steps.of_store("chunk put")
        self._store.chunks[key[0]] = value[0]

    def removeKey(self, key: tuple[str]) -> None:  # noqa: N802
        self._steps.of_store("chunk remove")
        del self._store.chunks[key[0]]


class _Instead:
    """A module of which some functions are others."""

    def __init__(self, module: Any, **functions: Any) -> None:  # noqa: ANN401
        self._module = module
        vars(self).update(functions)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._module, name)


class _File:
    """A file of which half is written when the process is killed."""

    def __init__(self, file: IO[bytes], steps: Steps) -> None:
        self._file, self._steps = file, steps

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: pa.Buffer) -> None:
        half = memoryview(data)[: data.size // 2]
        self._steps.of_disk("write", before=lambda: self._file.write(half))
        self._file.write(data)


@contextlib.contextmanager
def failing_disk(steps: Steps) -> Iterator[None]:
    """Let every operation on local copies be a step."""

    def stepping(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            steps.of_disk(name)
            return function(*arguments, **options)

        return call

    def opened(descriptor: int, mode: str) -> _File:
        file = os.fdopen(descriptor, mode)
        try:
            steps.of_disk("fdopen")
        except BaseException:
            file.close()
            raise
        return _File(file, steps)

    functions = {name: stepping(name, getattr(os, name)) for name in _STEPS_OF_OS}
    functions["fdopen"] = opened
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "os", _Instead(os, **functions))
        made = stepping("mkstemp", tempfile.mkstemp)
        patch.setattr(copies, "tempfile", _Instead(tempfile, mkstemp=made))
        patch.setattr(copies, "pa", _Instead(pa, memory_map=stepping("map", pa.memory_map)))
        for name in _STEPS_OF_PATH:
            patch.setattr(Path, name, stepping(name, getattr(Path, name)))
        yield
