"""Directories on their way out.

This file alone decides when the directories of deleted topics are moved and removed, and what
becomes of directories that belong to nobody. It deletes nothing that a deletion in the manifest
does not account for: what is merely unknown is moved aside and named in a warning.

A deletion goes through four steps, each of which may be the last before a power cut:

    journal: deleted -> renamed to ...-delete -> removed -> journal: finished

Whatever of it was lost is done again at the next start, because the topic id is remembered from
the first step to the last, and each directory says in ``partition.metadata`` whose it is.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from headwater.base.chance import Chance, random_uuid
from headwater.base.clock import Clock
from headwater.base.disk import Disk, read_file, sync_names
from headwater.log.directories import (
    DELETED_SUFFIX,
    deleted_directory,
    parse_partition_directory,
    stray_directory,
)
from headwater.log.manifest import Manifest, TopicEntry, deletions_finished
from headwater.log.names import PARTITION_METADATA, TEMPORARY, decode_partition_metadata

_RETRY_MS: Final = 60_000
"""After a removal that failed; as long as files wait anyway (file.delete.delay.ms)."""

logger = logging.getLogger(__name__)


class Deletions:
    """What is still to be moved and removed in one log directory."""

    def __init__(self, disk: Disk, directory: str, manifest: Manifest, clock: Clock) -> None:
        """Start with nothing to do; ``sort_out`` finds what an earlier run left."""
        self._disk = disk
        self._directory = directory
        self._manifest = manifest
        self._clock = clock
        # By name: the topic it belonged to, and how long its files are kept once it is moved.
        self._to_move: dict[str, tuple[bytes, int]] = {}
        # By name, once moved: the time from which it may be removed.
        self._to_remove: dict[str, int] = {}

    def add(self, topic_id: bytes, names: Iterable[str], *, delay_ms: int) -> None:
        """Take over the directories of a topic whose deletion is in the journal."""
        self._to_move.update((name, (topic_id, delay_ms)) for name in names)
        self._move()

    def in_the_way(self, topic: str) -> bool:
        """Tell whether a directory of this topic could not be moved, though it was tried again."""
        if self._to_move:
            self._move()
        return any((parse_partition_directory(name) or ("",))[0] == topic for name in self._to_move)

    def sort_out(self, names: Sequence[str], chance: Chance) -> None:
        """Move aside every directory that is not a partition of a topic that exists."""
        for name in names:
            partition = parse_partition_directory(name)
            if name.endswith(DELETED_SUFFIX):
                self._to_remove[name] = self._clock.monotonic_ms()
            elif partition is not None:
                self._sort_out_partition(name, *partition, chance)
        self._move()

    def _sort_out_partition(self, name: str, topic: str, partition: int, chance: Chance) -> None:
        entry = self._manifest.image.topics.get(topic)
        topic_id = self._topic_id(name, entry)
        deleted = self._deleted(name, topic, topic_id)
        if deleted is not None:
            self._to_move[name] = (deleted.topic_id, 0)
        elif (
            entry is None
            or partition >= entry.partitions
            or (topic_id is not None and entry.topic_id != topic_id)
        ):
            aside = stray_directory(name, random_uuid(chance))
            logger.warning(
                "%s/%s belongs to no topic; it is kept as %s", self._directory, name, aside
            )
            self._disk.rename(self._path(name), self._path(aside))

    def _deleted(self, name: str, topic: str, topic_id: bytes | None) -> TopicEntry | None:
        """Return the deletion that a directory belongs to, if any.

        A directory that cannot say whose it is was never synced, so nobody was told of anything in
        it. While a deletion of that name is under way it may be the deleted topic's, unless that
        one has been moved already, and must not come back as the new one's.
        """
        deletions = self._manifest.image.deletions
        if topic_id is not None:
            return deletions.get(topic_id)
        for entry in deletions.values():
            if entry.name == topic and not self._disk.exists(self._aside(name, entry.topic_id)):
                return entry
        return None

    def _topic_id(self, name: str, entry: TopicEntry | None) -> bytes | None:
        """Return whose a directory says it is, None where it cannot say so."""
        path = f"{self._path(name)}/{PARTITION_METADATA}"
        topic_id = self._read_topic_id(path)
        if topic_id is None:
            # Until its first commit a partition says it in the temporary file only, of which a
            # power cut may have garbled a letter: an id that nobody has is no id.
            topic_id = self._read_topic_id(path + TEMPORARY)
            known = {*self._manifest.image.deletions, entry.topic_id if entry else None}
            topic_id = topic_id if topic_id in known else None
        return topic_id

    def _read_topic_id(self, path: str) -> bytes | None:
        if not self._disk.exists(path):
            return None
        return decode_partition_metadata(read_file(self._disk, path))

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _aside(self, name: str, topic_id: bytes) -> str:
        partition = parse_partition_directory(name)
        assert partition is not None
        # Long names are cut, so the number of the partition has to be in the unique part too.
        return self._path(deleted_directory(name, topic_id + partition[1].to_bytes(4, "big")))

    def _move(self) -> None:
        for name, (topic_id, delay_ms) in list(self._to_move.items()):
            aside = self._aside(name, topic_id)
            try:
                self._disk.rename(self._path(name), aside)
            except OSError as error:
                logger.warning("cannot move %s yet: %s", self._path(name), error)
                continue
            del self._to_move[name]
            removable_at_ms = self._clock.monotonic_ms() + delay_ms
            self._to_remove[aside.removeprefix(f"{self._directory}/")] = removable_at_ms

    def steps(self) -> Iterator[None]:
        """Do what is due, one directory a step.

        Raises:
            OSError: A sync failed.
            StorageError: The end of a deletion could not be recorded.
        """
        self._move()
        for name, due_ms in list(self._to_remove.items()):
            if due_ms <= self._clock.monotonic_ms():
                self._remove(name)
                yield
        if self._manifest.image.deletions and not self._to_move:
            self._finish()

    def _remove(self, name: str) -> None:
        try:
            self._disk.remove_tree(self._path(name))
        except OSError as error:
            logger.warning("cannot remove %s yet: %s", self._path(name), error)
            self._to_remove[name] = self._clock.monotonic_ms() + _RETRY_MS
        else:
            del self._to_remove[name]

    def _finish(self) -> None:
        """Forget the deletions of which no directory is left."""
        waiting = "\n".join(self._to_remove)
        finished = [
            topic_id for topic_id in self._manifest.image.deletions if topic_id.hex() not in waiting
        ]
        if finished:
            # Before the journal forgets the id, no directory may come back under its old name.
            sync_names(self._disk, self._directory)
            self._manifest.record(deletions_finished(finished))
