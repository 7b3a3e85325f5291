"""Control records: the marks a broker leaves between the records of applications.

This file alone decides how the end of a transaction is written into a partition. A control batch
holds one record. When a transaction ends, which partitions get the mark and who may read what lies
before it are others' decisions.

    key      version int16 (0), type int16 (0 abort, 1 commit; others belong to Kafka's quorum)
    value    version int16 (0), coordinator_epoch int32
"""

import struct
from typing import Final, NamedTuple

from headwater.base.errors import CorruptRecordError, ErrorCode
from headwater.base.record.batch import NO_LEADER_EPOCH
from headwater.base.record.records import Record, build_batch

CONTROL_ABORT: Final = 0
CONTROL_COMMIT: Final = 1

_KEY: Final = struct.Struct(">hh")
_END_TRANSACTION: Final = struct.Struct(">hi")
_VERSION: Final = 0


class EndTransactionMarker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that said so."""

    is_commit: bool
    coordinator_epoch: int


def build_end_transaction(
    marker: EndTransactionMarker,
    *,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """Write the control batch that ends a producer's transaction in one partition."""
    key = _KEY.pack(_VERSION, CONTROL_COMMIT if marker.is_commit else CONTROL_ABORT)
    value = _END_TRANSACTION.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [Record(base_offset, timestamp, key, value)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        leader_epoch=leader_epoch,
    )


def control_type(record: Record) -> int:
    """Return the type of a control record: CONTROL_ABORT, CONTROL_COMMIT or one not ours.

    Raises:
        CorruptRecordError: The key is too short. Longer keys come from later versions.
    """
    if record.key is None or len(record.key) < _KEY.size:
        raise _malformed("key")
    kind: int = _KEY.unpack_from(record.key)[1]
    return kind


def read_end_transaction(record: Record) -> EndTransactionMarker | None:
    """Read a marker; None if the control record is of another type.

    Raises:
        CorruptRecordError: Key or value are too short.
    """
    kind = control_type(record)
    if kind not in {CONTROL_ABORT, CONTROL_COMMIT}:
        return None
    if record.value is None or len(record.value) < _END_TRANSACTION.size:
        raise _malformed("value")
    coordinator_epoch: int = _END_TRANSACTION.unpack_from(record.value)[1]
    return EndTransactionMarker(kind == CONTROL_COMMIT, coordinator_epoch)


def _malformed(part: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"the {part} of a control record is too short", ErrorCode.INVALID_RECORD
    )
