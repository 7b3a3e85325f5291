"""Kafka's small text files: what is remembered between two starts, apart from the records.

This file alone decides how checkpoint files, ``meta.properties`` and the clean-shutdown marker look
and what a damaged one means. It does not know what the offsets stand for.

A checkpoint is replaced as a whole, atomically, so a crash leaves the old one or the new one. A
file that cannot be read all the same (a human, a bad sector) is treated as absent: every reader has
a safe default, at worst a longer recovery. It never stops a start.

    0                          the version of the format
    2                          how many lines follow
    orders 0 4711              topic, partition, offset
    orders 1 0
"""

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from headwater.base.disk import Disk, read_file, replace_file

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEAN_OFFSETS: Final = "cleaner-offset-checkpoint"
GAP_OFFSETS: Final = "gap-offset-checkpoint"
"""Ours: Apache Kafka takes every gap for one of compaction."""
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"

_VERSION: Final = 0
_META_VERSION: Final = 1

logger = logging.getLogger(__name__)

Key = tuple[str, int]
"""A partition: its topic's name and its number."""


def format_checkpoint(lines: Iterable[str]) -> bytes:
    """Return a checkpoint with these lines."""
    rows = list(lines)
    return "".join(f"{row}\n" for row in (_VERSION, len(rows), *rows)).encode()


def parse_checkpoint(content: bytes) -> list[list[str]]:
    """Return the fields of each line.

    Raises:
        ValueError: The content is no checkpoint, or one that was cut.
    """
    version, count, *rows = content.decode().splitlines()
    if int(version) != _VERSION:
        raise ValueError(f"version {version} is not known")
    if int(count) != len(rows):
        raise ValueError(f"{count} lines are announced, {len(rows)} are there")
    return [row.split() for row in rows]


def read_offsets(disk: Disk, path: str) -> dict[Key, int]:
    """Return the offset of each partition; nothing where the file is absent or damaged."""
    if not disk.exists(path):
        return {}
    try:
        rows = parse_checkpoint(read_file(disk, path))
        offsets = {(topic, int(partition)): int(offset) for topic, partition, offset in rows}
    except ValueError as error:
        logger.warning("ignoring the damaged checkpoint %s: %s", path, error)
        return {}
    return {key: offset for key, offset in offsets.items() if offset >= 0}


def write_offsets(disk: Disk, path: str, offsets: Mapping[Key, int]) -> None:
    """Replace the file, durably."""
    lines = (f"{topic} {partition} {offsets[topic, partition]}" for topic, partition in offsets)
    replace_file(disk, path, format_checkpoint(lines))


class OffsetFiles:
    """The checkpoints of a log directory, and what they say."""

    def __init__(self, disk: Disk, directory: str) -> None:
        """Read them."""
        self._disk = disk
        self._directory = directory
        self._recorded = {
            name: read_offsets(disk, f"{directory}/{name}")
            for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEAN_OFFSETS, GAP_OFFSETS)
        }

    def recorded(self, name: str, key: Key) -> int:
        """Return what a file says of a partition; 0 where it says nothing."""
        return self._recorded[name].get(key, 0)

    def recovery_point(self, key: Key, *, compacted: bool) -> int:
        """Return the offset below which a partition is durable, as far as the files know.

        Without a recovery point, the gaps of an earlier compaction would be taken for the end of
        the log. Compaction stays below what is durable, so its own checkpoints serve as well.
        """
        point = self.recorded(RECOVERY_POINTS, key)
        if point or compacted:
            return point
        return max(self.recorded(GAP_OFFSETS, key), self.recorded(CLEAN_OFFSETS, key))

    def record(self, name: str, offsets: Mapping[Key, int]) -> None:
        """Let a file say this and nothing else, durably; written only when it says otherwise.

        Raises:
            OSError: As ``replace_file``.
        """
        if self._recorded[name] != offsets:
            write_offsets(self._disk, f"{self._directory}/{name}", offsets)
            self._recorded[name] = dict(offsets)

    def recorded_in(self, name: str) -> Mapping[Key, int]:
        """Return all that a file says."""
        return self._recorded[name]

    def forget_topics(self, topics: set[str]) -> None:
        """Remove all lines of some topics, so that new topics may have their names."""
        for name, offsets in self._recorded.items():
            kept = {key: offset for key, offset in offsets.items() if key[0] not in topics}
            self.record(name, kept)


def read_properties(disk: Disk, path: str) -> dict[str, str]:
    """Return a Java properties file as a dictionary; nothing where it is absent or damaged."""
    if not disk.exists(path):
        return {}
    try:
        rows = read_file(disk, path).decode().splitlines()
    except UnicodeDecodeError as error:
        logger.warning("ignoring the damaged file %s: %s", path, error)
        return {}
    pairs = (row.partition("=") for row in rows if row.strip() and not row.startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def write_meta_properties(
    disk: Disk, path: str, *, cluster_id: str, node_id: int, directory_id: str
) -> None:
    """Say to Kafka's tools whose directory this is; a file that says so already is left alone."""
    wanted = {
        "cluster.id": cluster_id,
        "directory.id": directory_id,
        "node.id": str(node_id),
        "version": str(_META_VERSION),
    }
    found = read_properties(disk, path)
    if found == wanted:
        return
    if found:
        logger.warning("%s said %s; it now says %s", path, found, wanted)
    replace_file(disk, path, "".join(f"{k}={v}\n" for k, v in wanted.items()).encode())


def read_clean_shutdown(disk: Disk, path: str) -> int | None:
    """Return the epoch of the run that ended cleanly, or None where none did."""
    if not disk.exists(path):
        return None
    try:
        epoch = json.loads(read_file(disk, path))["brokerEpoch"]
    except (ValueError, KeyError, TypeError) as error:
        logger.warning("ignoring the damaged marker %s: %s", path, error)
        return None
    return epoch if isinstance(epoch, int) else None


def write_clean_shutdown(disk: Disk, path: str, epoch: int) -> None:
    """Say, durably, that the run with this epoch left nothing to recover."""
    marker = {"version": 0, "brokerEpoch": epoch}
    replace_file(disk, path, json.dumps(marker).encode())


def above_zero(offsets: Mapping[Key, int]) -> dict[Key, int]:
    """Leave out what readers assume anyway: most partitions of a big topic are empty."""
    return {key: offset for key, offset in offsets.items() if offset > 0}
