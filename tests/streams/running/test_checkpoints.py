"""What is kept of a pipeline, and that only one process at a time runs it."""

import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from headwater.streams.running.checkpoints import (
    FAILED,
    RUNNING,
    STOPPED,
    Checkpoint,
    Note,
    all_checkpoints,
    data_directory,
    find_checkpoint,
)
from headwater.streams.running.errors import (
    DefinitionError,
    DiskFullError,
    PipelineBusyError,
    PipelineChangedError,
    PipelineNotFoundError,
)
from headwater.streams.running.logs import log_file
from headwater.streams.running.plans import Operator

COUNT = Operator("Aggregate", "count(x)")
SOURCE = Operator("source", "headwater")
HOLD = """
import sys
from pathlib import Path
from headwater.streams.running.checkpoints import Checkpoint
with Checkpoint(Path(sys.argv[1]), "p").locked():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_only_the_owner_can_read_what_is_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    umask = os.umask(0o022)
    try:
        checkpoint = Checkpoint(data, "p")
        with checkpoint.locked(), log_file(checkpoint.log, "p") as log:
            log.info("begins")
            checkpoint.begin(note(SOURCE))
    finally:
        os.umask(umask)

    assert {path.name for path in data.rglob("*")} >= {".lock", "pipeline.json", "p.log"}
    for path in (data, *data.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert caplog.text.count("other users could open") == 1


def note(*operators: Operator, spark: str = "4.3.0") -> Note:
    return Note("p", file="f.py", to="out", spark=spark, operators=list(operators))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path, "p")


def spark_began(checkpoint: Checkpoint) -> None:
    Path(checkpoint.location).mkdir(parents=True, exist_ok=True)
    Path(checkpoint.location, "metadata").write_text("{}")


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a b", "-x", "ä", "x" * 101])
def test_names_that_will_not_do(tmp_path: Path, name: str) -> None:
    with pytest.raises(DefinitionError, match="no name"):
        Checkpoint(tmp_path, name)


def test_where_data_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADWATER_DATA", raising=False)
    assert data_directory() == tmp_path / "headwater-data"
    monkeypatch.setenv("HEADWATER_DATA", "/somewhere")
    assert data_directory() == Path("/somewhere")
    assert data_directory("here") == tmp_path / "here"


def test_one_process_at_a_time(tmp_path: Path, checkpoint: Checkpoint) -> None:
    assert checkpoint.pid() is None
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert checkpoint.pid() == process.pid
        assert checkpoint.state() == RUNNING
        with (
            pytest.raises(PipelineBusyError, match=f"pid {process.pid}") as raised,
            checkpoint.locked(),
        ):
            pass
        assert "headwater pipeline stop p" in raised.value.hint
        with pytest.raises(PipelineBusyError):
            checkpoint.remove()
    finally:
        process.kill()
        process.communicate()
    assert checkpoint.pid() is None
    with checkpoint.locked():
        assert checkpoint.pid() == os.getpid()


def test_the_way_of_its_state(checkpoint: Checkpoint) -> None:
    with checkpoint.locked():
        checkpoint.begin(note(SOURCE))
        assert checkpoint.state() == RUNNING
    assert checkpoint.state() == FAILED, "whoever ran it had no time to say how it ended"
    checkpoint.end(None)
    assert checkpoint.state() == STOPPED
    checkpoint.end("it broke")
    assert checkpoint.state() == FAILED
    assert checkpoint.note().error == "it broke"
    assert checkpoint.note().operators == [SOURCE]
    assert checkpoint.note().file == "f.py"


def test_another_plan_is_refused_and_the_way_out_named(checkpoint: Checkpoint) -> None:
    with checkpoint.locked():
        checkpoint.begin(note(COUNT, SOURCE))
        spark_began(checkpoint)
        checkpoint.begin(note(COUNT, SOURCE))
        with pytest.raises(PipelineChangedError, match="Aggregate was removed") as raised:
            checkpoint.begin(note(SOURCE))
        assert "headwater pipeline reset p" in raised.value.hint
        assert checkpoint.note().operators == [COUNT, SOURCE], "the old plan is still the known one"


def test_another_plan_is_nothing_before_spark_has_begun(checkpoint: Checkpoint) -> None:
    with checkpoint.locked():
        checkpoint.begin(note(COUNT, SOURCE))
        checkpoint.begin(note(SOURCE))


def test_details_of_another_spark_are_not_compared(checkpoint: Checkpoint) -> None:
    other = Operator("Aggregate", "sum(x)")
    with checkpoint.locked():
        checkpoint.begin(note(COUNT, SOURCE))
        spark_began(checkpoint)
        with pytest.raises(PipelineChangedError, match="count"):
            checkpoint.begin(note(other, SOURCE, spark="4.3.1"))
        checkpoint.begin(note(other, SOURCE, spark="4.4.0"))


def test_progress_is_kept(checkpoint: Checkpoint) -> None:
    assert checkpoint.progress() is None
    with checkpoint.locked():
        checkpoint.keep_progress({"batch": 7})
    assert checkpoint.progress() == {"batch": 7}
    (checkpoint.folder / "progress.json").write_text("{")
    assert checkpoint.progress() is None


def test_a_driver_that_starts_while_it_is_removed_holds_a_lock_that_counts(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has opened the lock file, and then the file goes: what it locks must be the new one."""
    checkpoint.folder.mkdir(parents=True)
    flock, calls = fcntl.flock, []

    def removed_before(descriptor: int, operation: int) -> None:
        calls.append(operation)
        if len(calls) == 1:
            (checkpoint.folder / ".lock").unlink()
            checkpoint.folder.rmdir()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", removed_before)
    with checkpoint.locked():
        assert checkpoint.pid() == os.getpid()
        with pytest.raises(PipelineBusyError), checkpoint.locked():
            pass


def test_removed_it_is_unknown(tmp_path: Path, checkpoint: Checkpoint) -> None:
    with checkpoint.locked():
        checkpoint.begin(note(COUNT, SOURCE))
        spark_began(checkpoint)
    assert [each.name for each in all_checkpoints(tmp_path)] == ["p"]
    checkpoint.remove()
    assert all_checkpoints(tmp_path) == []
    assert not checkpoint.folder.exists()
    with pytest.raises(PipelineNotFoundError, match="no pipeline 'p' has run"):
        find_checkpoint(tmp_path, "p")
    with checkpoint.locked():
        checkpoint.begin(note(SOURCE))


@pytest.mark.parametrize("survivors", range(8))
def test_a_removal_that_is_cut_off_leaves_no_half(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, survivors: int
) -> None:
    """Spark's checkpoint is whole or gone, and while any of it lies there, it can be found."""
    with checkpoint.locked():
        checkpoint.begin(note(COUNT, SOURCE))
        checkpoint.keep_progress({"batch": 7})
        (checkpoint.folder / "backfill.json").write_text("{}")
        spark_began(checkpoint)
    calls = []

    def cut_off(real: Callable[..., None]) -> Callable[..., None]:
        def called(*given: object, **more: object) -> None:
            calls.append(given)
            if len(calls) > survivors:
                # A folder goes file by file: the first of them has gone.
                with suppress(OSError):
                    os.remove(Path(str(given[0]), "metadata"))  # noqa: PTH107 - `unlink` is cut off
                raise KeyboardInterrupt
            real(*given, **more)

        return called

    with monkeypatch.context() as killed, suppress(KeyboardInterrupt):
        killed.setattr(shutil, "rmtree", cut_off(shutil.rmtree))
        killed.setattr(Path, "unlink", cut_off(Path.unlink))
        # The order of a folder is anybody's guess; this is the worst.
        found = Path.iterdir
        killed.setattr(Path, "iterdir", lambda each: sorted(found(each), key=Path.is_dir))
        checkpoint.remove()
    if Path(checkpoint.location).exists():
        assert Path(checkpoint.location, "metadata").exists()
        assert (checkpoint.folder / "backfill.json").exists()
    if any(each.is_dir() for each in checkpoint.folder.glob("*")):
        assert checkpoint.exists()
    checkpoint.remove()
    assert not checkpoint.folder.exists()


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_note_that_cannot_be_read_is_no_other_plan(checkpoint: Checkpoint, text: str) -> None:
    with checkpoint.locked():
        checkpoint.begin(note(COUNT, SOURCE))
        spark_began(checkpoint)
        (checkpoint.folder / "pipeline.json").write_text(text)
        checkpoint.begin(note(COUNT, SOURCE))
    assert checkpoint.note().operators == [COUNT, SOURCE]


def test_a_note_is_on_the_disk_before_it_has_its_name(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(named(number)))
    with checkpoint.locked():
        checkpoint.begin(note(SOURCE))
    assert synced == [f"pipeline.{os.getpid()}.tmp"]


def named(descriptor: int) -> str:
    """Return under which name a file lies that is open, with something in it."""
    status = os.fstat(descriptor)
    assert status.st_size > 0
    return Path(f"/proc/self/fd/{descriptor}").readlink().name


def test_a_full_disk_refuses_a_start_and_lets_an_end_pass(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with checkpoint.locked():
        checkpoint.begin(note(SOURCE))

        def refuse(*_: object, **__: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as full:
            full.setattr(os, "fsync", refuse)
            with pytest.raises(DiskFullError, match=str(checkpoint.folder)):
                checkpoint.begin(note(SOURCE))
            checkpoint.end("it failed")
        assert [each.name for each in checkpoint.folder.iterdir() if each.suffix == ".tmp"] == []
    # What was there before is whole.
    assert checkpoint.note().operators == [SOURCE]
