"""Batches written anew with some of their records.

This file alone decides which bytes a batch has after compaction. Offsets, timestamps, producer,
epochs, sequence number and compression stay; so do first and last offset of the batch, whichever
records go. As long as the base timestamp stays too, records are copied as they are.

A delete horizon takes the place of the base timestamp (KIP-534), so the records of a batch that
gets one are written with other timestamp deltas.
"""

from collections.abc import Sequence

from headwater.base.record.batch import (
    BATCH_HEADER_BYTES,
    DELETE_HORIZON_MASK,
    HEADER,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    SIZE_OVERHEAD_BYTES,
    BatchHeader,
    write_crc,
)
from headwater.base.record.codecs import Codec, compress
from headwater.base.record.varint import decode_varint, decode_varlong, encode_varint


def rewrite(
    header: BatchHeader,
    data: bytes,
    starts: Sequence[int],
    kept: Sequence[int],
    *,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """Write a batch with some of its records.

    Args:
        header: The batch's.
        data: Its records part, unpacked.
        starts: Where each record starts in it; one more entry for the end of the last.
        kept: The indexes of those that stay, growing.
        delete_horizon_ms: What the batch gets as its horizon, if it had none.
    """
    if delete_horizon_ms is None:
        body = b"".join(_runs(data, starts, kept))
        base_timestamp, attributes = header.base_timestamp, header.attributes
    else:
        body = b"".join(_with_base_timestamp(header, data, starts, kept, delete_horizon_ms))
        base_timestamp = delete_horizon_ms
        attributes = header.attributes | DELETE_HORIZON_MASK
    if header.codec != Codec.NONE:
        body = compress(header.codec, body)
    max_timestamp = header.max_timestamp
    if header.timestamp_type != LOG_APPEND_TIME and len(kept) < header.record_count:
        max_timestamp = header.base_timestamp + max(_timestamp_deltas(data, starts, kept))
    return _build(
        header,
        body,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(kept),
    )


def empty(header: BatchHeader) -> bytearray:
    """Write a batch without records, which stands for its offsets and sequence numbers."""
    return _build(
        header,
        b"",
        # Nothing is left that a horizon or a compression could concern.
        attributes=header.attributes & ~DELETE_HORIZON_MASK & ~header.codec,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        record_count=0,
    )


def _build(
    header: BatchHeader,
    body: bytes,
    *,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
) -> bytearray:
    batch = bytearray(BATCH_HEADER_BYTES)
    HEADER.pack_into(
        batch,
        0,
        header.base_offset,
        BATCH_HEADER_BYTES + len(body) - SIZE_OVERHEAD_BYTES,
        header.leader_epoch,
        MAGIC,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        record_count,
    )
    batch += body
    write_crc(batch, 0, len(batch))
    return batch


def _runs(data: bytes, starts: Sequence[int], kept: Sequence[int]) -> list[bytes]:
    """Cut out what is kept, neighbours in one piece."""
    runs: list[bytes] = []
    first = following = kept[0]
    for index in kept:
        if index != following:
            runs.append(data[starts[first] : starts[following]])
            first = index
        following = index + 1
    runs.append(data[starts[first] : starts[following]])
    return runs


def _timestamp_deltas(data: bytes, starts: Sequence[int], kept: Sequence[int]) -> list[int]:
    deltas: list[int] = []
    for index in kept:
        _, at = decode_varint(data, starts[index])
        at += 1
        folded = data[at]
        if folded < 128:
            deltas.append((folded >> 1) ^ -(folded & 1))
        else:
            deltas.append(decode_varlong(data, at)[0])
    return deltas


def _with_base_timestamp(
    header: BatchHeader,
    data: bytes,
    starts: Sequence[int],
    kept: Sequence[int],
    base_timestamp: int,
) -> list[bytes]:
    shift = header.base_timestamp - base_timestamp
    append_time = header.timestamp_type == LOG_APPEND_TIME
    parts: list[bytes] = []
    for index in kept:
        _, at = decode_varint(data, starts[index])
        attributes = data[at : at + 1]
        delta, at = decode_varlong(data, at + 1)
        delta = header.max_timestamp - base_timestamp if append_time else delta + shift
        timestamp = encode_varint(delta)
        rest = data[at : starts[index + 1]]
        length = encode_varint(1 + len(timestamp) + len(rest))
        parts += (length, attributes, timestamp, rest)
    return parts
