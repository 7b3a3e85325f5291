"""What a fetch may see, and when it has seen enough.

This file alone decides how many bytes each partition contributes, which offsets are visible, and
when a long poll ends. It hands out file ranges, never the bytes themselves, and knows nothing of
requests or sockets.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from headwater.base.clock import Timer, Timers
from headwater.base.errors import ErrorCode, KafkaError, StorageError
from headwater.delivery.broker.partition import Partition
from headwater.log.extent import FileRange
from headwater.log.txn_index import AbortedTransaction

NOT_THERE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
"""The errors of partitions that do not exist."""


class Wanted:
    """One partition of a fetch; without a partition the error says why.

    A fetch session keeps it from one request to the next, with what was told of it last.
    """

    __slots__ = (
        "error",
        "index",
        "leader_epoch",
        "max_bytes",
        "offset",
        "partition",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int) -> None:
        """Name the partition; the rest is set by whoever asks."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.partition: Partition | None = None
        self.error = ErrorCode.NONE
        self.offset = 0
        self.max_bytes = 0
        self.leader_epoch = -1
        self.told_high_watermark = -1
        self.told_log_start_offset = -1


class Found(NamedTuple):
    """What one partition has to give."""

    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: FileRange | None
    aborted: Sequence[AbortedTransaction] = ()


class Limits(NamedTuple):
    """How much a fetch wants, and how long it waits for it."""

    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    read_committed: bool


def collect(wanted: Iterable[Wanted], limits: Limits) -> tuple[list[Found], bool]:
    """Look at every partition once.

    The first partition that has anything gives at least one whole batch, even one larger than all
    limits: otherwise a consumer could never pass it (KIP-74).

    Returns:
        A finding per partition, in order, and whether the fetch need not wait any longer.
    """
    remaining = limits.max_bytes
    total = 0
    failed = False
    found = []
    for each in wanted:
        partition = each.partition
        if partition is None or partition.ended:
            gone = each.error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            found.append(Found(gone, -1, -1, -1, None))
            # As in Kafka, what never was there hurries nobody who also waits for what is.
            failed = failed or partition is not None or gone not in NOT_THERE
            continue
        log = partition.log
        high_watermark = log.high_watermark
        last_stable_offset = log.last_stable_offset
        upto = last_stable_offset if limits.read_committed else high_watermark
        offset = each.offset
        records = None
        aborted: Sequence[AbortedTransaction] = ()
        if offset != upto:
            # Once the answer is full nothing is read, but a wrong offset is told all the same.
            full = total and remaining <= 0
            try:
                records = log.read(
                    offset,
                    min(each.max_bytes, remaining),
                    upto_offset=offset if full else upto,
                    at_least_one=not total,
                )
                if records is not None and limits.read_committed:
                    aborted = log.aborted_transactions(offset, records.next_offset)
            except KafkaError as refused:
                if not total or not isinstance(refused, StorageError) or not refused.passes:
                    failed = True
                    # As Kafka: an error says nothing about the log, not even where it starts.
                    found.append(Found(refused.code, -1, -1, -1, None))
                    continue
                # The ranges before it hold all the files that may be open: the answer is full.
                records = None
        if records is not None:
            size = len(records)
            total += size
            remaining -= size
        offsets = (high_watermark, last_stable_offset, log.log_start_offset)
        found.append(Found(ErrorCode.NONE, *offsets, records, aborted))
    return found, failed or total >= limits.min_bytes


class Waiting(Protocol):
    """A fetch that has not been answered yet."""

    def look(self) -> bool:
        """Look again; tell whether that is enough for an answer."""
        ...

    def answer(self) -> None:
        """Answer with what there is."""
        ...


class LongPoll:
    """Lets a fetch wait until it has enough, or its time is up.

    Whatever changes what a reader sees wakes those who watch, so when the time is up the last look
    still holds where it found nothing: an idle consumer of a thousand partitions is not looked
    after twice.
    """

    __slots__ = ("_fetch", "_partitions", "_timer")

    def __init__(
        self, fetch: Waiting, partitions: Sequence[Partition], max_wait_ms: int, timers: Timers
    ) -> None:
        """Watch the partitions for as long as the fetch may wait."""
        self._fetch = fetch
        self._partitions = partitions
        self._timer: Timer | None = timers.after(max_wait_ms, self._time_is_up)
        look = self._look
        for partition in partitions:
            partition.watch(look)

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            look = self._look
            for partition in self._partitions:
                partition.unwatch(look)

    def _look(self) -> None:
        if self._timer is not None and self._fetch.look():
            self.cancel()
            self._fetch.answer()

    def _time_is_up(self) -> None:
        self.cancel()
        self._fetch.answer()
