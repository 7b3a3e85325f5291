"""Whether an idempotent batch is there already, also when a restart has made us forget.

This file alone decides where to look for what a snapshot does not hold: it has one batch of each
producer, and a client may send its last five again. They lie near the end of the log, so they are
looked for there, once for each producer, and only when a batch would otherwise be refused. Refused
as out of order, clients would give up, or send it as new and have it twice.
"""

import contextlib
from typing import Final

from headwater.base.errors import CorruptRecordError, ErrorCode, KafkaError
from headwater.base.record.batch import BatchHeader
from headwater.log.producers import ProducerBatch, ProducerState
from headwater.log.segments import SegmentList

LOOKED_THROUGH_BYTES: Final = 8 << 20
"""Five batches of the default `max.message.bytes`, and as much again of other producers, nearly."""


def find_repeated(
    producers: ProducerState, header: BatchHeader, segments: SegmentList
) -> ProducerBatch | None:
    """Return the batch that this one repeats, None for a new one.

    Raises:
        KafkaError: As `ProducerState.check`.
    """
    try:
        return producers.check(header)
    except KafkaError as error:
        producer_id = header.producer_id
        if error.code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or producers.is_whole(producer_id):
            raise
        with contextlib.suppress(CorruptRecordError):
            producers.fill(producer_id, _tail(segments, producer_id))
        return producers.check(header)


def _tail(segments: SegmentList, producer_id: int) -> list[BatchHeader]:
    """Return the headers of a producer near the end of the log, oldest first."""
    parts: list[list[BatchHeader]] = []
    left = LOOKED_THROUGH_BYTES
    for segment in reversed(segments.as_sequence()):
        start = segment.offset_index.floor_position(max(segment.size - left, 0))
        parts.append(
            [header for _, header in segment.headers(start) if header.producer_id == producer_id]
        )
        left -= segment.size - start
        if left <= 0:
            break
    return [header for part in reversed(parts) for header in part]
