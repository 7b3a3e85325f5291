"""What is kept of a pipeline between its runs, and by whom it is run.

This file alone decides what lies under ``<data>/checkpoints/NAME``: Spark's own checkpoint in
``spark/``, what we know of the pipeline in ``pipeline.json``, its last batch in ``progress.json``,
and a lock that its driver holds. It knows nothing of Spark.
"""

import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headwater.base.directory_lock import AlreadyLockedError, RealLock, lock_holder
from headwater.base.disk import is_full
from headwater.base.private import make_private_directory, private_opener, restrict_data_directory
from headwater.base.settings.places import DEFAULT_DATA
from headwater.streams.running.errors import (
    DefinitionError,
    DiskFullError,
    PipelineBusyError,
    PipelineNotFoundError,
    changed,
    disk_full,
)
from headwater.streams.running.plans import Operator, difference

DATA_VARIABLE = "HEADWATER_DATA"
RUNNING = "running"
STOPPED = "stopped"
FAILED = "failed"

NAME_MAX = 100
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_MAX - 1}}}")


def data_directory(given: str | None = None) -> Path:
    """Return where everything is kept: as told, else as the environment says."""
    return Path(given or os.environ.get(DATA_VARIABLE) or DEFAULT_DATA).absolute()


def check_name(name: str) -> str:
    """Refuse what can be no pipeline's name: it becomes a folder and part of other names."""
    if not _NAME.fullmatch(name):
        raise DefinitionError(
            f"{name!r} is no name for a pipeline",
            hint=f"letters, digits, '.', '_' and '-', at most {NAME_MAX} of them, "
            "no punctuation in front",
        )
    return name


@dataclass(frozen=True, slots=True)
class Note:
    """What is known of a pipeline that has run before."""

    name: str
    file: str | None = None
    to: str | None = None
    spark: str = ""
    operators: list[Operator] = field(default_factory=list)
    started_ms: int = 0
    ended_ms: int | None = None
    error: str | None = None


class Checkpoint:
    """The folder of one pipeline."""

    def __init__(self, data: Path, name: str) -> None:
        """Name the folder; it is made when the pipeline is first locked."""
        self.name = check_name(name)
        self._data = data
        self.folder = data / "checkpoints" / name
        self.log = data / "logs" / f"{name}.log"

    @property
    def location(self) -> str:
        """Where Spark keeps its checkpoint."""
        return str(self.folder / "spark")

    def query_id(self) -> str | None:
        """Return the name under which Spark knows the query, if it has ever begun."""
        found = _read(Path(self.location, "metadata"))
        return None if found is None else found.get("id")

    def exists(self) -> bool:
        """Whether it has ever run here."""
        return (self.folder / "pipeline.json").is_file()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only driver of the pipeline on this machine.

        Raises:
            PipelineBusyError: Another process is.
        """
        lock = self._lock()
        try:
            yield
        finally:
            lock.release()

    def _lock(self) -> RealLock:
        while True:
            make_private_directory(self.folder)
            restrict_data_directory(self._data)
            try:
                return RealLock(str(self.folder / ".lock"))
            except FileNotFoundError:
                continue  # `remove` has taken the folder away in between
            except AlreadyLockedError:
                raise PipelineBusyError(
                    f"pipeline {self.name!r} is running already (pid {self.pid() or 'unknown'})",
                    hint=f"stop it first: headwater pipeline stop {self.name}",
                ) from None

    def pid(self) -> int | None:
        """Return the process that runs the pipeline, or None."""
        return lock_holder(str(self.folder / ".lock"))

    def note(self) -> Note:
        """Return what is known of it; of one that has never run, its name."""
        found = _read(self.folder / "pipeline.json")
        if found is None:
            return Note(self.name)
        known = {name: found[name] for name in Note.__slots__ if name in found}
        known["operators"] = [Operator(*each) for each in known.get("operators", [])]
        return Note(**known)

    def begin(self, note: Note) -> None:
        """Note that a run begins, unless Spark's checkpoint is of another plan.

        Raises:
            PipelineChangedError: It is.
        """
        old = self.note()
        # Without a note that can be read there is nothing to compare; Spark knows its state itself.
        if old.operators and Path(self.location, "metadata").exists():
            told = difference(
                old.operators, note.operators, details=_same_spark(old.spark, note.spark)
            )
            if told is not None:
                raise changed(self.name, told)
        now_ms = time.time_ns() // 1_000_000
        self._write("pipeline.json", asdict(replace(note, started_ms=now_ms)))

    def end(self, error: str | None) -> None:
        """Note that the run has ended, and how; where there is no room, it ends all the same."""
        now_ms = time.time_ns() // 1_000_000
        with suppress(DiskFullError):
            self._write("pipeline.json", asdict(replace(self.note(), ended_ms=now_ms, error=error)))

    def state(self) -> str:
        """Tell whether it runs, and if not, how it ended."""
        if self.pid() is not None:
            return RUNNING
        note = self.note()
        # A driver that was killed had no time to note anything.
        return FAILED if note.error or note.ended_ms is None else STOPPED

    def progress(self) -> dict[str, Any] | None:
        """Return the last batch, or None."""
        return _read(self.folder / "progress.json")

    def keep_progress(self, progress: Mapping[str, object]) -> None:
        """Keep the last batch; the next one makes up for one that is lost."""
        self._write("progress.json", progress, sync=False)

    def remove(self) -> None:
        """Forget everything but the log.

        Raises:
            PipelineBusyError: It is running.
        """
        with self.locked():
            # Whoever is killed here leaves Spark's checkpoint whole or none of it, and as long as
            # there is one, the notes that tell whose it is.
            gone = self.folder / "removed"
            shutil.rmtree(gone, ignore_errors=True)
            with suppress(FileNotFoundError):
                Path(self.location).rename(gone)
            for each in sorted(self.folder.iterdir(), key=Path.is_file):
                if each.name != ".lock":
                    shutil.rmtree(each) if each.is_dir() else each.unlink()
            # Still locked: who opens the file before it goes is refused, later makes another.
            (self.folder / ".lock").unlink()
            with suppress(OSError):  # a driver that has just started has its lock in there
                self.folder.rmdir()

    def _write(self, name: str, content: Mapping[str, object], *, sync: bool = True) -> None:
        path = self.folder / name
        fresh = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            with open(fresh, "w", encoding="utf-8", opener=private_opener) as file:
                file.write(json.dumps(content) + "\n")
                file.flush()
                if sync:  # else the new name may outlive a power cut, and what it names not
                    os.fsync(file.fileno())
        except OSError as error:
            fresh.unlink(missing_ok=True)
            if is_full(error):
                raise disk_full(self.name, str(self.folder)) from error
            raise
        fresh.replace(path)


def all_checkpoints(data: Path) -> list[Checkpoint]:
    """Return the pipelines that have run here, by name."""
    folder = data / "checkpoints"
    if not folder.is_dir():
        return []
    names = sorted(each.name for each in folder.iterdir() if _NAME.fullmatch(each.name))
    found = [Checkpoint(data, name) for name in names]
    return [each for each in found if each.exists() or each.pid() is not None]


def find_checkpoint(data: Path, name: str) -> Checkpoint:
    """Return a pipeline that has run here.

    Raises:
        PipelineNotFoundError: None of this name has.
    """
    for each in all_checkpoints(data):
        if each.name == name:
            return each
    raise PipelineNotFoundError(
        f"no pipeline {name!r} has run in {data}", hint="all of them: headwater pipeline ls"
    )


def _same_spark(old: str, new: str) -> bool:
    return old.split(".")[:2] == new.split(".")[:2]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
