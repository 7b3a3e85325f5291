"""What a task tells the driver of its rows.

This file alone decides how finished batches get from a task to the driver: in the message itself,
or in a file beside others of the same batch, of which the message says what is in it. Only the
messages of attempts that Spark has chosen reach the driver; files of others are removed unread.

    <stagingLocation>/headwater-sink/<query id>/<run id>/<batch id>/<any name>

A file is nothing but record batches, one behind the other; the message knows their sizes.
"""

import contextlib
import mmap
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql.datasource import WriterCommitMessage

from headwater.base.record.batch import check_crc
from headwater.base.record.varint import BytesLike
from headwater.streams.sink.errors import MessageTooLargeError, StagingError
from headwater.streams.sink.marker import Place

# Messages pass the driver's JVM at 60 to 80 MB/s; a file is written and read 10 times as fast.
INLINE_BYTES_MAX = 4 << 20
# With Spark's default of 1 GB a driver bears 256 MB of messages of one batch and dies of 300 MB:
# this much from each of 8 tasks.
UNSTAGED_BYTES_MAX = 32 << 20

_FOLDER = "headwater-sink"


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose rows they are: the query, its run, and the number of the batch."""

    query_id: str
    run_id: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class TaskMessage(WriterCommitMessage):
    """The finished batches of one task.

    Attributes:
        origin: Whose they are.
        batches: By partition, in order; empty where they are staged.
        staged: The file with them.
        sizes: The size of each batch in that file, by partition, in the file's order.
    """

    origin: Origin
    batches: Mapping[Place, Sequence[bytes]] = field(default_factory=dict)
    staged: str | None = None
    sizes: Sequence[tuple[Place, Sequence[int]]] = ()


def make_message(
    origin: Origin, batches: Mapping[Place, Sequence[bytes]], staging_location: str | None
) -> TaskMessage:
    """Put batches into a message, or into a file if they are too large for that.

    Raises:
        MessageTooLargeError: They are, and there is no place for files.
        StagingError: The file cannot be written.
    """
    size_bytes = sum(len(batch) for each in batches.values() for batch in each)
    if staging_location is None:
        if size_bytes > UNSTAGED_BYTES_MAX:
            raise MessageTooLargeError(
                f"a task has {size_bytes >> 20} MiB for the driver, more than "
                f"{UNSTAGED_BYTES_MAX >> 20} MiB",
                hint="set stagingLocation to a directory that the driver and all executors see, "
                "or read less per batch with maxOffsetsPerTrigger, or use more partitions",
            )
        return TaskMessage(origin, batches)
    if size_bytes <= INLINE_BYTES_MAX:
        return TaskMessage(origin, batches)
    path = _batch_folder(staging_location, origin) / uuid.uuid4().hex
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            for each in batches.values():
                file.writelines(each)
    except OSError as error:
        raise StagingError(
            f"{path} cannot be written: {error}",
            hint="see that stagingLocation has room and that executors may write there",
        ) from error
    sizes = [(place, [len(batch) for batch in each]) for place, each in batches.items()]
    return TaskMessage(origin, staged=str(path), sizes=sizes)


def gather(messages: Iterable[TaskMessage]) -> dict[Place, list[BytesLike]]:
    """Bring the batches of all tasks together; those of a partition stay in the order of tasks.

    Raises:
        StagingError: A file is not there, or is damaged.
    """
    gathered: dict[Place, list[BytesLike]] = {}
    for message in messages:
        for place, batches in message.batches.items():
            gathered.setdefault(place, []).extend(batches)
        if message.staged is not None:
            _gather_staged(message, message.staged, gathered)
    return gathered


def _gather_staged(message: TaskMessage, path: str, gathered: dict[Place, list[BytesLike]]) -> None:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - mmap needs the descriptor alone
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise StagingError(
            f"{path}, which a task has written, cannot be read by the driver: {error}",
            hint="stagingLocation has to be one directory, seen by the driver and all executors",
        ) from error
    position = 0
    for place, sizes in message.sizes:
        for size in sizes:
            batch = content[position : position + size]
            # It gets a new checksum when it is sent, under which damage would be sealed.
            if len(batch) != size or not check_crc(batch, 0, size):
                raise StagingError(
                    f"{path} is damaged at byte {position}", hint="see the disk or the mount"
                )
            gathered.setdefault(place, []).append(batch)
            position += size


def remove_staged(messages: Iterable[TaskMessage]) -> None:
    """Remove the files of a batch, those of attempts that did not count, and of batches before.

    Of other runs only what lies behind this batch: a newer one may be writing it just now. What
    cannot be removed stays: nobody reads it.
    """
    for message in messages:
        if message.staged is None:
            continue
        own = Path(message.staged).parent.parent
        with contextlib.suppress(OSError):
            for run in own.parent.iterdir():
                _remove_before(run, message.origin.batch_id + (run == own))
            own.parent.rmdir()
        return


def _remove_before(run: Path, batch_id: int) -> None:
    """Remove the earlier batches of one run, and its folder if nothing else is in it."""
    with contextlib.suppress(OSError):
        for each in run.iterdir():
            if each.name.isdecimal() and int(each.name) < batch_id:
                shutil.rmtree(each, ignore_errors=True)
        run.rmdir()


def _batch_folder(staging_location: str, origin: Origin) -> Path:
    run = Path(staging_location, _FOLDER, origin.query_id, origin.run_id)
    return run / str(origin.batch_id)
