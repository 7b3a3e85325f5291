"""What a fetch may see, and when it has seen enough.

This file alone decides how many bytes each partition contributes, which offsets are visible, and
when a long poll ends. It hands out file ranges, never the bytes themselves, and knows nothing of
requests or sockets.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headwater.base.clock import Timer, Timers
from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.partition import Partition
from headwater.log.extent import FileRange

_NOT_THERE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Wanted(NamedTuple):
    """One partition of a fetch; without a partition the error says why."""

    partition: Partition | None
    offset: int
    max_bytes: int
    error: ErrorCode = ErrorCode.NONE


class Found(NamedTuple):
    """What one partition has to give."""

    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: FileRange | None


class Limits(NamedTuple):
    """How much a fetch wants, and how long it waits for it."""

    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    read_committed: bool


def collect(wanted: Sequence[Wanted], limits: Limits) -> tuple[list[Found], bool]:
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
    for partition, offset, max_bytes, error in wanted:
        if partition is None or partition.ended:
            gone = error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            found.append(Found(gone, -1, -1, -1, None))
            # As in Kafka, what never was there hurries nobody who also waits for what is.
            failed = failed or partition is not None or error not in _NOT_THERE
            continue
        log = partition.log
        high_watermark = log.high_watermark
        last_stable_offset = log.last_stable_offset
        upto = last_stable_offset if limits.read_committed else high_watermark
        records = None
        if offset != upto and (remaining > 0 or not total):
            try:
                records = log.read(
                    offset,
                    min(max_bytes, remaining),
                    upto_offset=upto,
                    at_least_one=not total,
                )
            except KafkaError as refused:
                error = refused.code  # noqa: PLW2901 - the finding's error
                failed = True
                # As Kafka: a range error says nothing about the log but its start.
                found.append(Found(error, -1, -1, -1, None))
                continue
        if records is not None:
            size = len(records)
            total += size
            remaining -= size
        found.append(
            Found(error, high_watermark, last_stable_offset, log.log_start_offset, records)
        )
    return found, failed or total >= limits.min_bytes


class LongPoll:
    """A fetch that waits for enough bytes, or for its time to be up."""

    __slots__ = ("_answer", "_found", "_limits", "_timer", "_wanted")

    def __init__(
        self,
        wanted: Sequence[Wanted],
        found: list[Found],
        limits: Limits,
        timers: Timers,
        answer: Callable[[list[Found]], None],
    ) -> None:
        """Wait for more than was found so far.

        Whatever changes what a reader sees wakes those who watch, so when the time is up the last
        look still holds: an idle consumer of a thousand partitions is not looked after twice.
        """
        self._wanted = wanted
        self._found = found
        self._limits = limits
        self._answer = answer
        self._timer: Timer | None = timers.after(limits.max_wait_ms, self._time_is_up)
        for each in wanted:
            if each.partition is not None:
                each.partition.watch(self._look)

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            for each in self._wanted:
                if each.partition is not None:
                    each.partition.unwatch(self._look)

    def _look(self) -> None:
        if self._timer is None:
            return
        self._found, enough = collect(self._wanted, self._limits)
        if enough:
            self.cancel()
            self._answer(self._found)

    def _time_is_up(self) -> None:
        self.cancel()
        self._answer(self._found)
