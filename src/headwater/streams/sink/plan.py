"""Which plan a batch follows, as Spark's checkpoint says.

This file alone decides what tells one plan of a batch from another, and when a plan is durable.

Spark writes `<checkpoint>/offsets/N` before it runs batch N, and a driver that starts again runs
the batch from that file. The file names the time of planning and where each source's share ends,
so another plan under the same number has another text. That happens when a checkpoint is set back
to before batch N: Spark plans the batch anew, from what has arrived by then.

Spark does not sync these files, and the broker syncs a transaction before it acknowledges it. So
the plan is synced before the batch is committed: after a power cut the log knows no batch that the
checkpoint does not know. The file of the batch before is needed to run this one again, and
`metadata` holds the query's id, under which the sink remembers what was written.

Only a checkpoint on a file system of this machine, mounts included, can be looked at: the process
that commits has no access to the JVM. It is recognised by the query's id, because the same path may
mean another file system to Spark.
"""

import contextlib
import errno
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from headwater.base.disk import Disk, RealDisk, read_file
from headwater.streams.errors import CheckpointError
from headwater.streams.sink.options import maybe_local_path

_DIGEST_BYTES: Final = 16
# Version of the file, time and settings; then a line for each source.
_V1: Final = "v1"
_LINES_BEFORE_SOURCES: Final = 2
# What file systems answer that have nothing to sync, such as some mounts of object stores.
_CANNOT_SYNC: Final = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EROFS}


class Matched(NamedTuple):
    """A topic that a source has chosen by its pattern.

    Attributes:
        topic: Its name.
        pattern: The pattern.
        topic_id: Its id in Kafka's text form, which no topic of another cluster has; empty where
            brokers have none.
    """

    topic: str
    pattern: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is known of a batch's plan.

    Attributes:
        digest: Tells it from every other plan.
        sources: Where the batch ends in each source, as the checkpoint says it; empty where that
            was too long to be kept.
    """

    digest: str
    sources: tuple[str, ...] = ()

    def matched_topics(self) -> list[Matched]:
        """Return the topics that were chosen by a pattern of our own source."""
        found: list[Matched] = []
        for source in self.sources:
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
                said = json.loads(source)
                found += [
                    Matched(topic, said["pattern"], each.get("id", ""))
                    for topic, each in said["topics"].items()
                ]
        return found

    def starting_offsets(self) -> list[str]:
        """Return `startingOffsets` for each source of topics, for a query that goes on from here.

        Sources that are not read by topic and offset are left out.
        """
        return [text for text in map(_maybe_starting_offsets, self.sources) if text is not None]


class Plans:
    """Reads the plans of batches from checkpoints, and makes them durable."""

    def __init__(self, disk: Disk | None = None) -> None:
        """Take the disk that checkpoints are on; that of this machine where none is given."""
        self._disk = disk or RealDisk()
        self._synced: dict[str, int] = {}

    def maybe_plan(
        self, location: str | None, query_id: str, batch_id: int, *, sync: bool = True
    ) -> Plan | None:
        """Return a batch's plan, which survives a power cut from now on.

        Args:
            location: Where Spark keeps the query's checkpoint.
            query_id: The query, as the checkpoint must know it.
            batch_id: The number of the batch.
            sync: Whether it has to survive: not where nothing is written.

        Returns:
            None where the checkpoint cannot be looked at from here.

        Raises:
            CheckpointError: The plan cannot be read or synced.
        """
        named = None if location is None else maybe_local_path(location)
        if named is None:
            return None
        path = str(Path(named).absolute())
        if not self._is_of(path, query_id):
            return None
        try:
            text = read_file(self._disk, f"{path}/offsets/{batch_id}")
            if sync:
                self._sync(path, batch_id)
        except OSError as error:
            raise CheckpointError(
                f"the plan of batch {batch_id} in {path} cannot be read or synced: {error}",
                hint="see the disk that the checkpoint is on; the batch has not been written",
            ) from error
        return make_plan(text)

    def _is_of(self, path: str, query_id: str) -> bool:
        try:
            known = json.loads(read_file(self._disk, f"{path}/metadata"))
        except (OSError, ValueError):
            return False
        return isinstance(known, dict) and known.get("id") == query_id

    def _sync(self, path: str, batch_id: int) -> None:
        folder = f"{path}/offsets"
        is_first = self._synced.get(path) != batch_id - 1
        for number in (batch_id - 1, batch_id) if is_first else (batch_id,):
            self._sync_file(folder, str(number))
        self._sync_names(folder)
        if is_first:
            self._sync_file(path, "metadata")
            for each in (path, *map(str, PurePosixPath(path).parents)):
                # Of folders that this user may not list, others have made the names.
                with contextlib.suppress(PermissionError):
                    self._sync_names(each)
        self._synced[path] = batch_id

    def _sync_file(self, folder: str, name: str) -> None:
        # Hadoop keeps a checksum beside each file, and refuses a file that does not fit.
        for path in (f"{folder}/{name}", f"{folder}/.{name}.crc"):
            if self._disk.exists(path):
                file = self._disk.open_for_reading(path)
                try:
                    with _where_it_can_be_done():
                        file.sync()
                finally:
                    file.close()

    def _sync_names(self, folder: str) -> None:
        with _where_it_can_be_done():
            self._disk.sync_directory(folder)


def make_plan(text: bytes) -> Plan:
    """Return the plan that a file of offsets stands for."""
    digest = hashlib.blake2b(text, digest_size=_DIGEST_BYTES).hexdigest()
    lines = text.decode(errors="replace").split("\n")
    sources = lines[_LINES_BEFORE_SOURCES:] if lines[0].strip() == _V1 else []
    return Plan(digest, tuple(sources))


def _maybe_starting_offsets(source: str) -> str | None:
    """Return the offsets of one source in the form of `startingOffsets`."""
    try:
        found: Any = json.loads(source)
        # Spark's own connector has no version, and topics at the top.
        topics = found["topics"] if "version" in found else found
        offsets = {
            topic: {str(int(number)): int(offset) for number, offset in numbers.items()}
            for topic, numbers in (
                (topic, each["partitions"] if "version" in found else each)
                for topic, each in topics.items()
            )
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return json.dumps(offsets, separators=(",", ":")) if offsets else None


@contextlib.contextmanager
def _where_it_can_be_done() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
