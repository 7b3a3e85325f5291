"""What a consumer shows its application of what a broker sent it.

This file alone decides that, the way Kafka's own clients do it: a broker sends read_committed
consumers aborted records too, and a list that says which they are.
"""

from collections.abc import Iterable

from headwater.base.record.batch import TruncatedBatchError, scan
from headwater.base.record.control import read_end_transaction
from headwater.base.record.records import iterate
from tests.crash.txn.history import Entry


def take(
    records: bytes, start: int, aborted: Iterable[tuple[int, int]] | None
) -> tuple[tuple[Entry, ...], int]:
    """Return the records from ``start`` on, and where to go on.

    Args:
        records: Whole batches, the last perhaps cut off.
        start: What was asked for; the first batch may begin below it.
        aborted: Producer id and first offset of aborted transactions; None for read_uncommitted.
    """
    waiting = sorted(aborted or (), key=lambda each: each[1], reverse=True)
    gone: set[int] = set()
    entries: list[Entry] = []
    position = start
    try:
        for at, header in scan(records):
            while waiting and waiting[-1][1] <= header.last_offset:
                gone.add(waiting.pop()[0])
            batch = records[at : at + header.size_bytes]
            position = max(position, header.next_offset)
            if header.is_control:
                # None, where compaction has emptied the batch.
                for record in iterate(batch):
                    marker = read_end_transaction(record)
                    if marker is not None and not marker.is_commit:
                        gone.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in gone):
                entries += (
                    (record.offset, (record.value or b"").decode())
                    for record in iterate(batch)
                    if record.offset >= start
                )
    except TruncatedBatchError:
        pass
    return tuple(entries), position
