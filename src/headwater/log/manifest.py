"""What exists: cluster id, topics, configs, features, quotas, and how far producer ids go.

This file alone decides how metadata is kept on disk. It knows no partition, no record and no
directory but its own file. State changes only by ``Manifest.record``: the change is on disk, and
synced, before it is visible here, so whatever anybody was told is there after any crash.

The file is a journal of entries, oldest first, all numbers big-endian:

    [4 length of payload][4 CRC-32C of version and payload][2 version][payload: one JSON object]

The payload is ``{"number": N, "change": NAME, ...}``. Numbers count up without a gap. The first
entry is always a whole image (``"change": "image"``); when the entries behind it have outgrown it,
the file is replaced, atomically, by one with a fresh image and nothing behind it.

The file is read as the device holds it: the page cache may show entries whose sync has failed. A
tail that is no whole entry is a write that failed, or was under way when the power went: nobody was
told of it, and it is cut off. Anything else that is wrong is damage, and a start is refused rather
than topics forgotten: see ``ManifestDamagedError``.

Changing the format:

1. Add the new keys or changes, and raise ``VERSION`` by one.
2. Give ``_UPGRADES`` the function that turns a payload of the version before into the new one;
   drop the function for the version before that: we read N and N-1, no further back.
3. Never give an old key a new meaning, and let no code outside ``_UPGRADES`` know an old payload.
4. Put a file written by the last release into ``tests/log/golden`` and let the test read it.
5. If older programs would misunderstand the data directory, raise its VERSION too (``store``).
6. Say in the changelog which release is the last that can go back.
"""

import contextlib
import json
import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headwater.base.chance import Chance, random_uuid
from headwater.base.disk import Disk, may_pass, read_device_file, remedy, replace_file
from headwater.base.errors import HeadwaterError, StorageError
from headwater.base.record.crc import crc32c
from headwater.base.uuids import uuid_from_text, uuid_to_text

VERSION: Final = 3
PRODUCER_ID_BLOCK: Final = 1000
"""As in Kafka: one synced entry pays for a thousand producers; a crash wastes the rest."""

_FRAME: Final = struct.Struct(">IIH")
_CHECKED_FROM: Final = 8
# An image is folded when the entries behind it weigh as much again, but not for a few kilobytes.
_FOLD_AT_LEAST_BYTES: Final = 256 * 1024

_NEVER: Final = 2**63 - 1
"""Kafka's default of `flush.messages`: no number of records asks for a sync."""

_NUMBER: Final = b'{"number":'
_ROOM: Final = "make room on the disk; nothing was changed"
_BROKEN: Final = "check the disk, then restart the broker"

logger = logging.getLogger(__name__)

Payload = dict[str, Any]

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Whom a quota is for: kinds and names, None for whoever has none of their own. Sorted."""


def _upgrade_from_2(payload: Payload) -> Payload:
    """Add what version 2 did not know; its changes mean what they meant."""
    if payload.get("change") in {"image", "broker_configured"}:
        # Whether records were synced by default is not known: as if they never had been.
        payload |= {"noted": {"flush.messages": str(_NEVER)}}
    return payload


_UPGRADES: Mapping[int, Callable[[Payload], Payload]] = {2: _upgrade_from_2}
"""By the version before the current one: how to read a payload of it."""


class ManifestDamagedError(HeadwaterError):
    """The metadata cannot be trusted; starting would lose topics that somebody relies on."""


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """A topic as it is remembered; ``configs`` holds only what differs from the defaults."""

    name: str
    topic_id: bytes
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Image:
    """All metadata at one moment.

    Attributes:
        cluster_id: Chosen at the first start, for ever.
        directory_id: The same for the data directory.
        node_epoch: Raised by one at every start; -1 before the first.
        topics: What exists, by name.
        deletions: Deleted topics whose directories may still be there, by id.
        broker_configs: What was set on the running broker.
        noted: What of the defaults in force the next start must know, see `noted`.
        next_producer_id: The first producer id that no block covers.
        feature_levels: The levels of features that were changed.
        features_epoch: How often levels were changed.
        quotas: The limits of clients, by whom they are for.
    """

    cluster_id: str
    directory_id: str
    node_epoch: int = -1
    topics: dict[str, TopicEntry] = field(default_factory=dict)
    deletions: dict[bytes, TopicEntry] = field(default_factory=dict)
    broker_configs: dict[str, str] = field(default_factory=dict)
    noted: dict[str, str] = field(default_factory=dict)
    next_producer_id: int = 0
    feature_levels: dict[str, int] = field(default_factory=dict)
    features_epoch: int = 0
    quotas: dict[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)


def started(epoch: int) -> Payload:
    """Return the change that begins a run."""
    return {"change": "started", "epoch": epoch}


def topics_created(topics: Sequence[TopicEntry]) -> Payload:
    """Return the change that adds topics, all or none."""
    return {"change": "topics_created", "topics": [_topic_to_json(topic) for topic in topics]}


def topic_deleted(name: str, *, directories: bool) -> Payload:
    """Return the change that removes a topic, and remembers it while it may have directories."""
    return {"change": "topic_deleted", "name": name, "directories": directories}


def deletions_finished(topic_ids: Sequence[bytes]) -> Payload:
    """Return the change that forgets deleted topics for good."""
    ids = [uuid_to_text(topic_id) for topic_id in topic_ids]
    return {"change": "deletions_finished", "ids": ids}


def partitions_added(name: str, total: int) -> Payload:
    """Return the change that grows a topic."""
    return {"change": "partitions_added", "name": name, "total": total}


def topic_configured(name: str, configs: Mapping[str, str]) -> Payload:
    """Return the change that replaces a topic's overrides."""
    return {"change": "topic_configured", "name": name, "configs": dict(configs)}


def broker_configured(configs: Mapping[str, str], noted: Mapping[str, str]) -> Payload:
    """Return the change that replaces the broker's overrides and what is noted of the defaults.

    Both in one entry: after any crash neither is there without the other.
    """
    return {"change": "broker_configured", "configs": dict(configs), "noted": dict(noted)}


def producer_ids_reserved(upto: int) -> Payload:
    """Return the change after which ids below ``upto`` are never given out again."""
    return {"change": "producer_ids_reserved", "upto": upto}


def features_changed(levels: Mapping[str, int]) -> Payload:
    """Return the change that replaces the levels of features."""
    return {"change": "features_changed", "levels": dict(levels)}


def quotas_changed(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> Payload:
    """Return the change that replaces the limits of some; no limits forget the entity."""
    return {"change": "quotas_changed", "quotas": _quotas_to_json(quotas)}


def _whole(image: Image) -> Payload:
    return {
        "change": "image",
        "cluster_id": image.cluster_id,
        "directory_id": image.directory_id,
        "node_epoch": image.node_epoch,
        "topics": [_topic_to_json(topic) for topic in image.topics.values()],
        "deletions": [_topic_to_json(topic) for topic in image.deletions.values()],
        "broker_configs": image.broker_configs,
        "noted": image.noted,
        "next_producer_id": image.next_producer_id,
        "feature_levels": image.feature_levels,
        "features_epoch": image.features_epoch,
        "quotas": _quotas_to_json(image.quotas),
    }


def _read_whole(payload: Payload) -> Image:
    topics = [_topic_from_json(topic) for topic in payload["topics"]]
    deletions = [_topic_from_json(topic) for topic in payload["deletions"]]
    return Image(
        cluster_id=payload["cluster_id"],
        directory_id=payload["directory_id"],
        node_epoch=payload["node_epoch"],
        topics={topic.name: topic for topic in topics},
        deletions={topic.topic_id: topic for topic in deletions},
        broker_configs=payload["broker_configs"],
        noted=payload["noted"],
        next_producer_id=payload["next_producer_id"],
        feature_levels=payload["feature_levels"],
        features_epoch=payload["features_epoch"],
        quotas=_quotas_from_json(payload["quotas"]),
    )


def _apply(image: Image, payload: Payload) -> None:
    """Change the image; the payload is checked only as far as Python does by itself."""
    match payload["change"]:
        case "started":
            image.node_epoch = payload["epoch"]
        case "topics_created":
            created = [_topic_from_json(topic) for topic in payload["topics"]]
            image.topics.update((topic.name, topic) for topic in created)
        case "topic_deleted":
            deleted = image.topics.pop(payload["name"])
            if payload["directories"]:
                image.deletions[deleted.topic_id] = deleted
        case "deletions_finished":
            for text in payload["ids"]:
                del image.deletions[uuid_from_text(text)]
        case "partitions_added":
            topic = image.topics[payload["name"]]
            image.topics[topic.name] = replace(topic, partitions=payload["total"])
        case "topic_configured":
            topic = image.topics[payload["name"]]
            image.topics[topic.name] = replace(topic, configs=payload["configs"])
        case "broker_configured":
            image.broker_configs = payload["configs"]
            image.noted = payload["noted"]
        case "producer_ids_reserved":
            image.next_producer_id = payload["upto"]
        case "features_changed":
            image.feature_levels = payload["levels"]
            image.features_epoch += 1
        case "quotas_changed":
            _change_quotas(image.quotas, _quotas_from_json(payload["quotas"]))
        case unknown:
            raise ValueError(f"no change is called {unknown!r}")


def _topic_to_json(topic: TopicEntry) -> Payload:
    return {
        "name": topic.name,
        "id": uuid_to_text(topic.topic_id),
        "partitions": topic.partitions,
        "configs": dict(topic.configs),
    }


def _topic_from_json(topic: Payload) -> TopicEntry:
    return TopicEntry(
        topic["name"], uuid_from_text(topic["id"]), topic["partitions"], topic["configs"]
    )


def _quotas_to_json(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> list[Payload]:
    return [
        {"entity": [list(part) for part in entity], "values": dict(values)}
        for entity, values in quotas.items()
    ]


def _quotas_from_json(quotas: Sequence[Payload]) -> dict[QuotaEntity, Mapping[str, float]]:
    return {tuple((kind, name) for kind, name in each["entity"]): each["values"] for each in quotas}


def _change_quotas(
    quotas: dict[QuotaEntity, Mapping[str, float]],
    changes: Mapping[QuotaEntity, Mapping[str, float]],
) -> None:
    for entity, values in changes.items():
        if values:
            quotas[entity] = values
        else:
            quotas.pop(entity, None)


def _encode(number: int, change: Payload) -> bytes:
    # The number comes first: ``_NUMBER`` is how a whole entry behind a damaged one is found.
    payload = json.dumps({"number": number, **change}, separators=(",", ":")).encode()
    checked = struct.pack(">H", VERSION) + payload
    return struct.pack(">II", len(payload), crc32c(checked)) + checked


def _entry_at(content: bytes, position: int) -> tuple[int, bytes, int] | None:
    """Return version, payload and end of the entry at this place, if a whole one is there."""
    if position + _FRAME.size > len(content):
        return None
    length, checksum, version = _FRAME.unpack_from(content, position)
    end = position + _FRAME.size + length
    if end > len(content) or crc32c(content[position + _CHECKED_FROM : end]) != checksum:
        return None
    return version, content[position + _FRAME.size : end], end


def _whole_entry_behind(content: bytes, position: int) -> bool:
    """Tell whether any whole entry begins behind this place."""
    found = content.find(_NUMBER, position)
    while found >= 0:
        start = found - _FRAME.size
        if start > position and _entry_at(content, start) is not None:
            return True
        found = content.find(_NUMBER, found + 1)
    return False


class Manifest:
    """The metadata of one data directory, and the only way to change it."""

    def __init__(self, disk: Disk, path: str, chance: Chance) -> None:
        """Read the file, or begin one where there is none.

        Raises:
            ManifestDamagedError: The file is not what we wrote, or a newer program wrote it.
            OSError: The disk failed.
        """
        self._disk = disk
        self._path = path
        self._number = 0
        self._image_bytes = 0
        self._is_folded = False
        self._has_older_format = False
        self.failed = False
        if not disk.exists(path):
            cluster_id, directory_id = random_uuid(chance), random_uuid(chance)
            self.image = Image(uuid_to_text(cluster_id), uuid_to_text(directory_id))
            self._number = 1
            entry = _encode(self._number, _whole(self.image))
            self._image_bytes = len(entry)
            replace_file(disk, path, entry)
            self._file = disk.open(path)
            return
        content = read_device_file(disk, path)
        end = self._replay(content)
        self._file = disk.open(path)
        if end < len(content):
            logger.info("%s: cutting %d bytes that were being written", path, len(content) - end)
            self._file.truncate(end)

    def record(self, change: Payload) -> None:
        """Make one change durable, then visible.

        Raises:
            StorageError: It is not recorded. When the disk was merely full, later ones may be; when
                it failed, ``failed`` is set and none will.
        """
        if self.failed:
            raise StorageError(f"{self._path} failed earlier", hint="restart the broker")
        number = self._number + 1
        if self._is_folded:
            self._open_folded()
        self._append(_encode(number, change))
        self._number = number
        _apply(self.image, change)
        added = self._file.size() - self._image_bytes
        # Entries of an older format would be unreadable to the next release but one.
        if self._has_older_format or added > max(_FOLD_AT_LEAST_BYTES, self._image_bytes):
            self._fold()

    @property
    def number(self) -> int:
        """The number of the newest entry, which is durable."""
        return self._number

    def close(self) -> None:
        """Give the file back; everything in it is durable already."""
        self._file.close()

    def _append(self, entry: bytes) -> None:
        end = self._file.size()
        try:
            self._file.append([entry])
        except OSError as error:
            self.failed = not may_pass(error)
            self._cut(end)
            raise StorageError(f"cannot write {self._path}: {error}", hint=_ROOM) from error
        try:
            self._file.sync()
        except OSError as error:
            # The kernel may have dropped the pages: a second sync would report a success that is
            # none. Whether the entry is on disk, the next start will see.
            self.failed = True
            raise StorageError(f"cannot sync {self._path}: {error}", hint=_BROKEN) from error

    def _cut(self, end: int) -> None:
        try:
            self._file.truncate(end)
        except OSError:
            logger.exception("%s: cannot remove a partial entry", self._path)
            self.failed = True

    def _fold(self) -> None:
        """Replace the journal by a fresh image; when that is not possible yet, go on without."""
        number = self._number + 1
        entry = _encode(number, _whole(self.image))
        try:
            replace_file(self._disk, self._path, entry)
        except OSError as error:
            if may_pass(error):
                logger.warning("%s: cannot be folded now: %s", self._path, error)
                return
            self.failed = True
            raise StorageError(f"cannot replace {self._path}: {error}", hint=_BROKEN) from error
        self._number = number
        self._image_bytes = len(entry)
        self._has_older_format = False
        self._is_folded = True
        with contextlib.suppress(StorageError):
            self._open_folded()

    def _open_folded(self) -> None:
        """Go on in the file that the name has now: entries for the old one would be lost."""
        try:
            file = self._disk.open(self._path)
        except OSError as error:
            self.failed = not may_pass(error)
            hint = _BROKEN if self.failed else remedy(error)
            raise StorageError(f"cannot open {self._path}: {error}", hint=hint) from error
        self._file.close()
        self._file = file
        self._is_folded = False

    def _replay(self, content: bytes) -> int:
        """Apply every entry; return where the last whole one ends."""
        entry = _entry_at(content, 0)
        if entry is None:
            raise self._damaged(0, "the image at its head cannot be read")
        version, payload, position = entry
        self._image_bytes = position
        self._apply_image(self._decode(0, version, payload))
        while (entry := _entry_at(content, position)) is not None:
            version, payload, end = entry
            self._apply_next(position, self._decode(position, version, payload))
            position = end
        if _whole_entry_behind(content, position):
            raise self._damaged(position, "whole entries follow the unreadable one")
        return position

    def _apply_image(self, payload: Payload) -> None:
        if payload.get("change") != "image":
            raise self._damaged(0, "the first entry is no image")
        try:
            self.image = _read_whole(payload)
            self._number = payload["number"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(0, repr(error)) from error

    def _apply_next(self, position: int, payload: Payload) -> None:
        number = payload.get("number")
        if number != self._number + 1:
            raise self._damaged(position, f"entry {number} follows {self._number}")
        try:
            _apply(self.image, payload)
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(position, repr(error)) from error
        self._number = number

    def _decode(self, position: int, version: int, payload: bytes) -> Payload:
        if version > VERSION:
            message = f"{self._path} has format {version}; this program knows up to {VERSION}"
            raise ManifestDamagedError(message, hint="use the newer headwater that wrote it")
        if version < VERSION and version not in _UPGRADES:
            message = f"{self._path} has format {version}; this program reads from {VERSION - 1} on"
            raise ManifestDamagedError(message, hint="start the release in between once, then this")
        try:
            decoded = dict(json.loads(payload))
        except (ValueError, TypeError) as error:
            raise self._damaged(position, repr(error)) from error
        if version == VERSION:
            return decoded
        self._has_older_format = True
        return _UPGRADES[version](decoded)

    def _damaged(self, position: int, reason: str) -> ManifestDamagedError:
        return ManifestDamagedError(
            f"the metadata in {self._path} is damaged at byte {position}: {reason}",
            hint="nothing was changed: restore this file from a backup, or start with another "
            "--data directory; the records in the directories beside it are intact",
        )
