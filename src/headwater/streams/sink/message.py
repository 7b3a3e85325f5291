"""What a task tells the driver of its rows.

This file alone decides how finished batches get from a task to the driver: in the message itself,
or in a file of which the message says what is in it. Only the messages of attempts that Spark has
chosen reach the driver; files of others are removed unread.

A file is nothing but record batches, one behind the other, in the order in which they were
finished; the message knows where each goes and how large it is.

Neither side ever holds more than its share. A task writes to its file as soon as it has more than
fits a message, and the driver reads files part by part. What all messages of a batch hold together
is bounded as well, although no task knows how many there are: task number n allows itself no more
than a share of n + 1, so tasks that are alike stay within the whole.
"""

import contextlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

from pyspark.sql.datasource import WriterCommitMessage

from headwater.base.record.batch import check_crc
from headwater.base.record.varint import BytesLike
from headwater.delivery.client.cluster import Place
from headwater.streams.sink import staging
from headwater.streams.sink.commit import Attempt, Batches
from headwater.streams.sink.errors import MessageTooLargeError, StagingError

# Messages pass the driver's JVM at 60 to 80 MB/s; a file is written and read 10 times as fast.
INLINE_BYTES_MAX = 4 << 20
_INLINE_BYTES_ALL: Final = 64 << 20
# Less than that is not worth a file: 1,000 tasks have 64 MB then.
_INLINE_BYTES_MIN: Final = 64 << 10

# Without a place for files. With Spark's default of 1 GB a driver bears 256 MB of messages of one
# batch and dies of 300 MB.
UNSTAGED_BYTES_MAX = 32 << 20
_UNSTAGED_BYTES_ALL: Final = 256 << 20
# Tasks need not be alike: one that is large among many small ones should pass. So the bound holds
# where they are alike, up to 256 of them; behind that stands Spark's own limit, which it names in
# its error (spark.driver.maxResultSize, 1 GB).
_UNSTAGED_BYTES_MIN: Final = 1 << 20

# What the driver reads of a file before it sends it.
_PART_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Staged:
    """A file of finished batches.

    Attributes:
        path: Where it is.
        places: The partitions that batches of it go to.
        place_indexes: For each batch of the file, which of these.
        sizes: For each batch of the file, its bytes.
    """

    path: str
    places: Sequence[Place]
    place_indexes: Sequence[int]
    sizes: Sequence[int]


@dataclass(frozen=True, slots=True)
class TaskMessage(WriterCommitMessage):
    """The finished batches of one task.

    Attributes:
        attempt: Whose they are.
        batches: By partition, in order; empty where they are staged.
        staged: The file with them.
    """

    attempt: Attempt
    batches: Mapping[Place, Sequence[bytes]] = field(default_factory=dict)
    staged: Staged | None = None

    @property
    def topics(self) -> set[str]:
        """The topics that they go to."""
        places = self.batches if self.staged is None else self.staged.places
        return {topic for topic, _ in places}

    @property
    def size_bytes(self) -> int:
        """How much there is to send."""
        inline = sum(len(batch) for each in self.batches.values() for batch in each)
        return inline + (0 if self.staged is None else sum(self.staged.sizes))


class Outbox:
    """Takes the finished batches of one task: into memory while they are few, then into a file."""

    def __init__(self, attempt: Attempt, root: Callable[[], Path] | None, *, task: int = 0) -> None:
        """Begin without batches.

        Args:
            attempt: Whose they will be.
            root: Finds where files may be left; None where there is no such place.
            task: The number of the task among those of its stage, from 0.
        """
        self._attempt = attempt
        self._root = root
        self._inline_max = _share(INLINE_BYTES_MAX, _INLINE_BYTES_ALL, _INLINE_BYTES_MIN, task)
        self._unstaged_max = _share(
            UNSTAGED_BYTES_MAX, _UNSTAGED_BYTES_ALL, _UNSTAGED_BYTES_MIN, task
        )
        self._batches: dict[Place, list[bytes]] = {}
        self._size_bytes = 0
        self._file: BinaryIO | None = None
        self._path = Path()
        self._places: dict[Place, int] = {}
        self._place_indexes = array("L")
        self._sizes = array("L")

    def add(self, place: Place, batch: bytes) -> None:
        """Take a finished batch, behind those that its partition has.

        Raises:
            MessageTooLargeError: It is too much for a message, and there is no place for files.
            StagingError: The file cannot be written.
        """
        self._size_bytes += len(batch)
        if self._file is not None:
            self._write(place, batch)
            return
        self._batches.setdefault(place, []).append(batch)
        if self._root is None:
            if self._size_bytes > self._unstaged_max:
                raise MessageTooLargeError(
                    f"a task has more than {self._unstaged_max / (1 << 20):.3g} MiB for the driver,"
                    " which is its share of what messages can carry",
                    hint="set stagingLocation to a directory that the driver and all executors "
                    "see, or read less per batch with maxOffsetsPerTrigger",
                )
        elif self._size_bytes > self._inline_max:
            self._begin_file(self._root())

    def message(self) -> TaskMessage:
        """Return what the driver is told; nothing can be added any more.

        Raises:
            StagingError: The file cannot be written to its end.
        """
        if self._file is None:
            return TaskMessage(self._attempt, self._batches)
        try:
            self._file.close()
        except OSError as error:
            raise self._unwritable(error) from error
        staged = Staged(str(self._path), tuple(self._places), self._place_indexes, self._sizes)
        return TaskMessage(self._attempt, staged=staged)

    def __enter__(self) -> Self:
        """Use it in a with block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        """Leave no file behind if the task has failed."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            if kind is not None:
                self._path.unlink(missing_ok=True)

    def _begin_file(self, root: Path) -> None:
        self._path = root
        try:
            self._path = staging.new_file(root, self._attempt)
            self._file = self._path.open("xb")
        except OSError as error:
            raise self._unwritable(error) from error
        batches, self._batches = self._batches, {}
        for place, each in batches.items():
            for batch in each:
                self._write(place, batch)

    def _write(self, place: Place, batch: bytes) -> None:
        assert self._file is not None
        try:
            self._file.write(batch)
        except OSError as error:
            raise self._unwritable(error) from error
        self._place_indexes.append(self._places.setdefault(place, len(self._places)))
        self._sizes.append(len(batch))

    def _unwritable(self, error: OSError) -> StagingError:
        return StagingError(
            f"{self._path} cannot be written: {error}",
            hint="see that stagingLocation has room and that executors may write there",
        )


def parts(messages: Iterable[TaskMessage]) -> Iterator[Batches]:
    """Yield the batches of all tasks in parts that fit into memory, one after the other.

    Those of a partition stay in the order of tasks, and within a task as they were finished.

    Raises:
        StagingError: A file is not there, or is damaged.
    """
    part: dict[Place, list[BytesLike]] = {}
    size_bytes = 0
    for message in messages:
        for place, batch in _batches_of(message):
            if part and size_bytes + len(batch) > _PART_BYTES:
                yield part
                part, size_bytes = {}, 0
            part.setdefault(place, []).append(batch)
            size_bytes += len(batch)
    if part:
        yield part


def remove_staged(messages: Iterable[TaskMessage]) -> None:
    """Remove the files of a batch, those of attempts that did not count, and of batches before."""
    for message in messages:
        if message.staged is not None:
            staging.remove_upto(Path(message.staged.path), message.attempt.batch_id)
            return


def _batches_of(message: TaskMessage) -> Iterator[tuple[Place, bytes]]:
    for place, batches in message.batches.items():
        for batch in batches:
            yield place, batch
    if message.staged is not None:
        yield from _staged_batches(message.staged)


def _staged_batches(staged: Staged) -> Iterator[tuple[Place, bytes]]:
    position = 0
    try:
        with Path(staged.path).open("rb") as file:
            for index, size in zip(staged.place_indexes, staged.sizes, strict=True):
                batch = file.read(size)
                # It gets a new checksum when it is sent, under which damage would be sealed.
                if len(batch) != size or not check_crc(batch, 0, size):
                    raise StagingError(
                        f"{staged.path} is damaged at byte {position}",
                        hint="see the disk or the mount",
                    )
                yield staged.places[index], batch
                position += size
    except OSError as error:
        raise StagingError(
            f"{staged.path}, which a task has written, cannot be read by the driver: {error}",
            hint="stagingLocation has to be one directory, seen by the driver and all executors",
        ) from error


def _share(most: int, all_together: int, least: int, task: int) -> int:
    return min(most, max(least, all_together // (task + 1)))
