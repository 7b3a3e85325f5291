"""What is in the small files of a log: indexes, snapshots, checkpoints, the journal.

This file alone decides how their entries are told and which of them cannot be right. An index is
also held against the `.log` beside it, if there is one.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headwater.base.errors import CorruptRecordError
from headwater.base.record.batch import parse_header
from headwater.base.record.crc import crc32c
from headwater.cli import output
from headwater.log.checkpoints import parse_checkpoint
from headwater.log.epochs import LeaderEpochs
from headwater.log.names import LOG, parse_offset_name
from headwater.log.producers import ProducerState

Entry = Mapping[str, Any]

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TRANSACTION_ENTRY = struct.Struct(">hqqqq")
_JOURNAL_FRAME = struct.Struct(">IIH")
_JOURNAL_CHECKED_FROM = 8


# --- indexes ------------------------------------------------------------------------------------


def offset_index(path: Path, content: memoryview) -> Iterator[Entry]:
    """Yield offset and position of each entry of an `.index`."""
    base = _base_offset(path)
    log = _log_beside(path)
    last = (-1, -1)
    for number, (relative, position) in _whole(content, _OFFSET_ENTRY):
        if not any(content[number * _OFFSET_ENTRY.size :]) and number:
            yield _unused(content, number * _OFFSET_ENTRY.size)
            return
        entry = {"kind": "entry", "offset": base + relative, "position": position}
        if relative <= last[0] or position <= last[1]:
            entry["damage"] = "it does not grow"
        elif log is not None:
            _hold_against(log, entry)
        last = (relative, position)
        yield entry
    yield from _remainder(content, _OFFSET_ENTRY.size)


def _hold_against(log: bytes, entry: dict[str, Any]) -> None:
    try:
        header = parse_header(log, entry["position"])
    except CorruptRecordError:
        entry["damage"] = f"the .log ends at {len(log)}"
        return
    # Kafka writes the last offset of the batch, or of a run of batches that ends with it.
    if not header.base_offset <= entry["offset"]:
        entry["damage"] = f"the .log has offset {header.base_offset} at that position"


def time_index(path: Path, content: memoryview) -> Iterator[Entry]:
    """Yield timestamp and offset of each entry of a `.timeindex`."""
    base = _base_offset(path)
    last = (-1, -1)
    for number, (timestamp, relative) in _whole(content, _TIME_ENTRY):
        if not any(content[number * _TIME_ENTRY.size :]) and number:
            yield _unused(content, number * _TIME_ENTRY.size)
            return
        entry: dict[str, Any] = {"kind": "entry", "ts": timestamp, "offset": base + relative}
        if timestamp <= last[0] or relative < last[1]:
            entry["damage"] = "it does not grow"
        last = (timestamp, relative)
        yield entry
    yield from _remainder(content, _TIME_ENTRY.size)


def transaction_index(_: Path, content: memoryview) -> Iterator[Entry]:
    """Yield the aborted transactions of a `.txnindex`."""
    for _number, (version, producer_id, first, last, stable) in _whole(content, _TRANSACTION_ENTRY):
        entry: dict[str, Any] = {
            "kind": "aborted",
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": stable,
        }
        if version != 0:
            entry["damage"] = f"version {version} is not known"
        yield entry
    yield from _remainder(content, _TRANSACTION_ENTRY.size)


def _whole(content: memoryview, entry: struct.Struct) -> Iterator[tuple[int, tuple[Any, ...]]]:
    whole = len(content) // entry.size * entry.size
    return enumerate(entry.iter_unpack(content[:whole]))


def _unused(content: memoryview, position: int) -> Entry:
    # Kafka reserves an index at its full size while it is in use.
    return {"kind": "unused", "position": position, "size_bytes": len(content) - position}


def _remainder(content: memoryview, entry_bytes: int) -> Iterator[Entry]:
    rest = len(content) % entry_bytes
    if rest:
        yield {
            "kind": "rest",
            "position": len(content) - rest,
            "size_bytes": rest,
            "damage": f"an entry has {entry_bytes} bytes, {rest} are left",
        }


def _base_offset(path: Path) -> int:
    name = parse_offset_name(path.name)
    return name[0] if name else 0


def _log_beside(path: Path) -> bytes | None:
    beside = path.with_suffix(LOG)
    return beside.read_bytes() if beside != path and beside.exists() else None


# --- producers ----------------------------------------------------------------------------------


def producer_snapshot(_: Path, content: memoryview) -> Iterator[Entry]:
    """Yield the producers of a `.snapshot`."""
    state = ProducerState.decode(bytes(content))
    if state is None:
        yield _damaged_file("it is cut, its checksum is wrong, or its version is not known")
        return
    for producer_id, producer in state.items():
        yield {
            "kind": "producer",
            "producer_id": producer_id,
            "producer_epoch": producer.epoch,
            "last_sequence": producer.last_sequence,
            "last_offset": producer.batches[-1].last_offset if producer.batches else None,
            "ts": producer.timestamp,
            "transaction_first_offset": producer.txn_first_offset,
        }


# --- checkpoints and texts ----------------------------------------------------------------------


def offset_checkpoint(_: Path, content: memoryview) -> Iterator[Entry]:
    """Yield the partitions and offsets of a checkpoint."""
    try:
        for topic, partition, offset in parse_checkpoint(bytes(content)):
            yield {
                "kind": "partition",
                "topic": topic,
                "partition": int(partition),
                "offset": int(offset),
            }
    except ValueError as error:
        yield _damaged_file(str(error))


def leader_epochs(_: Path, content: memoryview) -> Iterator[Entry]:
    """Yield the epochs of a `leader-epoch-checkpoint`."""
    epochs = LeaderEpochs.decode(bytes(content))
    if epochs is None:
        yield _damaged_file("it is no list of growing epochs and offsets")
        return
    for epoch, start in epochs.items():
        yield {"kind": "epoch", "leader_epoch": epoch, "first_offset": start}


def properties(_: Path, content: memoryview) -> Iterator[Entry]:
    """Yield the lines of `partition.metadata` or `meta.properties`."""
    for line in bytes(content).decode(errors="backslashreplace").splitlines():
        name, mark, value = line.partition(":" if ":" in line else "=")
        if mark and not line.startswith("#"):
            yield {"kind": "property", "name": name.strip(), "value": value.strip()}


def journal(_: Path, content: memoryview) -> Iterator[Entry]:
    """Yield the changes of `headwater.journal`."""
    position = 0
    while position < len(content):
        rest = len(content) - position
        length = checksum = 0
        if rest >= _JOURNAL_FRAME.size:
            length, checksum, _version = _JOURNAL_FRAME.unpack_from(content, position)
        size = _JOURNAL_FRAME.size + length
        if rest < size or checksum != crc32c(
            content[position + _JOURNAL_CHECKED_FROM : position + size]
        ):
            yield {
                "kind": "rest",
                "position": position,
                "size_bytes": rest,
                "damage": "no whole entry; at the end of the file it is a write that was cut off",
            }
            return
        payload = json.loads(bytes(content[position + _JOURNAL_FRAME.size : position + size]))
        yield {"kind": "change", "position": position, **payload}
        position += size


def _damaged_file(reason: str) -> Entry:
    return {"kind": "file", "damage": reason}


# --- as text ------------------------------------------------------------------------------------


def as_text(entry: Entry) -> str:
    """Write an entry for people: a batch and its records on a line each, all else as pairs."""
    lines = [_batch_text(entry) if entry["kind"] == "batch" else _pairs(entry)]
    lines += [f"  {_record_text(record)}" for record in entry.get("records", ())]
    if "damage" in entry:
        lines[0] += f"  DAMAGED: {entry['damage']}"
    return "\n".join(lines)


def _pairs(entry: Entry) -> str:
    shown = [
        f"{name}={_shown(name, value)}"
        for name, value in entry.items()
        if name not in {"kind", "damage"} and value is not None
    ]
    return " ".join([entry["kind"], *shown])


def _batch_text(batch: Entry) -> str:
    parts = [
        f"batch {batch['base_offset']}-{batch['last_offset']} at {batch['position']}:",
        f"{output.count(batch['record_count'], 'record')}, {batch['size_bytes']} bytes,",
        f"compression {batch['compression']}, epoch {batch['leader_epoch']},",
        f"{batch['tstype']} time {_shown('ts', batch['max_timestamp'])}",
    ]
    if batch["producer_id"] >= 0:
        parts[-1] += ","
        parts.append(
            f"producer {batch['producer_id']}:{batch['producer_epoch']} "
            f"sequence {batch['base_sequence']}"
        )
    parts += [f"({name})" for name in ("transactional", "control") if batch[name]]
    return " ".join(parts)


def _record_text(record: Entry) -> str:
    """Leave out the bytes of a record whose meaning is known."""
    hidden = {"key", "payload", "key_b64", "payload_b64"} if "meaning" in record else set()
    pairs = [
        f"{name}={_shown(name, value)}"
        for name, value in record.items()
        if name not in hidden and name not in {"offset", "ts", "meaning"}
    ]
    text = f"{record['offset']}  {_shown('ts', record['ts'])}"
    return "  ".join([text, *([record["meaning"]] if hidden else pairs)])


def _shown(name: str, value: object) -> str:
    if name in {"ts", "max_timestamp"} and isinstance(value, int):
        return output.time_text(value) or str(value)
    if isinstance(value, str) and name not in {"key", "payload", "meaning"}:
        return value
    return json.dumps(value, ensure_ascii=False)
