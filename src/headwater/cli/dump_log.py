"""What is in a `.log` file: batches, their records, and where it is damaged.

This file alone decides how far a damaged segment is read: a batch whose checksum is wrong is
named and passed over; behind one whose size cannot be right nothing can be found any more.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headwater.base.errors import CorruptRecordError, HeadwaterError
from headwater.base.record.batch import (
    LOG_APPEND_TIME,
    BatchHeader,
    check_crc,
    check_frame,
    parse_header,
)
from headwater.base.record.codecs import Codec
from headwater.base.record.control import CONTROL_ABORT, CONTROL_COMMIT, control_type
from headwater.base.record.records import Record, iterate
from headwater.cli import formats
from headwater.delivery.broker.groups.records import decode_entry
from headwater.log.names import parse_offset_name

_OFFSETS_TOPIC = "__consumer_offsets-"
_MARKERS = {CONTROL_ABORT: "abort", CONTROL_COMMIT: "commit"}

Entry = Mapping[str, Any]


def batches_and_records(path: Path, content: memoryview) -> Iterator[Entry]:
    """Yield every batch with its records."""
    is_offsets = path.absolute().parent.name.startswith(_OFFSETS_TOPIC)
    for entry, header, position in _batches(path, content):
        if header is None or "damage" in entry:
            yield entry
            continue
        try:
            records = iterate(content, position)
        except CorruptRecordError as error:
            yield {**entry, "damage": error.message}
            continue
        yield {
            **entry,
            "records": [_record(record, header, is_offsets=is_offsets) for record in records],
        }


def batches_only(path: Path, content: memoryview) -> Iterator[Entry]:
    """Yield every batch."""
    for entry, _, _ in _batches(path, content):
        yield entry


def _batches(
    path: Path, content: memoryview
) -> Iterator[tuple[dict[str, Any], BatchHeader | None, int]]:
    name = parse_offset_name(path.name)
    least_offset = name[0] if name else 0
    position = 0
    while position < len(content):
        try:
            header = parse_header(content, position)
            check_frame(header, position, len(content))
        except CorruptRecordError as error:
            yield _rest(content, position, error), None, position
            return
        entry = _batch(header, position)
        if not check_crc(content, position, header.size_bytes):
            entry["damage"] = "the checksum is wrong"
        elif header.base_offset < least_offset:
            entry["damage"] = f"offset {header.base_offset} after {least_offset - 1}"
        yield entry, header, position
        least_offset = max(least_offset, header.next_offset)
        position += header.size_bytes


def _rest(content: memoryview, position: int, error: CorruptRecordError) -> dict[str, Any]:
    rest_bytes = len(content) - position
    if not any(content[position:]):
        # Kafka reserves room ahead where preallocate is on.
        return {"kind": "unused", "position": position, "size_bytes": rest_bytes}
    return {
        "kind": "rest",
        "position": position,
        "size_bytes": rest_bytes,
        "damage": f"{error.message}; nothing behind it can be found",
    }


def _batch(header: BatchHeader, position: int) -> dict[str, Any]:
    try:
        codec = Codec(header.codec).name.lower()
    except ValueError:
        codec = f"unknown ({header.codec})"
    return {
        "kind": "batch",
        "position": position,
        "size_bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "compression": codec,
        "leader_epoch": header.leader_epoch,
        "tstype": "logappend" if header.timestamp_type == LOG_APPEND_TIME else "create",
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
    }


def _record(record: Record, header: BatchHeader, *, is_offsets: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"offset": record.offset, "ts": record.timestamp}
    if header.is_control:
        kind = control_type(record)
        found["marker"] = _MARKERS.get(kind, str(kind))
        return found
    formats.put_headers(found, record.headers)
    formats.put_bytes(found, "key", record.key)
    formats.put_bytes(found, "payload", record.value)
    if is_offsets:
        found["meaning"] = _meaning(record)
    return found


def _meaning(record: Record) -> str:
    """Say what a record of __consumer_offsets says."""
    if record.key is None or record.value is None:
        return "removed"
    try:
        entry = decode_entry(record.key, record.value)
    except HeadwaterError as error:
        return f"unreadable: {error.message}"
    if entry is None:
        return "a group of another kind"
    if isinstance(entry, tuple):
        group, (topic, partition), committed = entry
        return f"group {group} has read {topic}-{partition} up to {committed.offset}"
    members = ", ".join(member.client_id for member in entry.members.values()) or "nobody"
    return f"group {entry.group_id}, generation {entry.generation_id}: {members}"
