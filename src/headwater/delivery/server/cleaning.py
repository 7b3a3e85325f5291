"""When logs are compacted.

This file alone decides when work is looked for, who gets it, and that the event loop is never held
up by what comes back. Which log and how much of it is `headwater.log.compaction`'s decision.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial

from headwater.base.clock import Clock
from headwater.base.disk import Disk, RealDisk
from headwater.base.errors import StorageError
from headwater.base.settings import BrokerSettings
from headwater.delivery.server.cleaners import Cleaner, Outcome, ProcessCleaner, TurnCleaner
from headwater.log.compaction.compaction import Compaction
from headwater.log.compaction.job import Job
from headwater.log.store import LogStore

_log = logging.getLogger(__name__)


class Cleaning:
    """Keeps cleaners busy as long as there is anything to clean.

    Attributes:
        cleaners: Who runs the passes.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        compaction: Compaction,
        new_cleaner: Callable[[], Cleaner],
        *,
        settings: BrokerSettings,
        clock: Clock,
        on_failure: Callable[[StorageError], None],
    ) -> None:
        """Look for work when `log.cleaner.backoff.ms` have passed.

        Args:
            loop: The broker's.
            compaction: Says what is worth cleaning, and puts it in place.
            new_cleaner: Makes one that runs passes.
            settings: How many of them, and how long to wait when there was nothing to do.
            clock: For the age of records.
            on_failure: Called when the disk has failed: the broker must end.
        """
        self._loop = loop
        self._compaction = compaction
        self._new_cleaner = new_cleaner
        self.cleaners: list[Cleaner] = []
        self._idle: list[Cleaner] = []
        self._clock = clock
        self._on_failure = on_failure
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self.configure(settings)

    def configure(self, settings: BrokerSettings) -> None:
        """Have as many cleaners as the settings say; those that are busy finish their pass."""
        self._backoff_s = settings.log_cleaner_backoff_ms / 1000
        self._count = settings.log_cleaner_threads
        for _ in range(self._count - len(self.cleaners)):
            cleaner = self._new_cleaner()
            self.cleaners.append(cleaner)
            self._idle.append(cleaner)
        self._let_go()
        self._look_later()

    def _let_go(self) -> None:
        while self._idle and len(self.cleaners) > self._count:
            cleaner = self._idle.pop()
            self.cleaners.remove(cleaner)
            cleaner.close()

    def _rest(self, cleaner: Cleaner) -> None:
        self._idle.append(cleaner)
        self._let_go()

    def _look_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(self._backoff_s, 0.001), self._look)

    def _look(self) -> None:
        """Give work to all who have none, then look again."""
        self._look_later()
        while self._idle:
            job = self._compaction.next_job(self._clock.now_ms())
            if job is None:
                return
            cleaner = self._idle.pop()
            cleaner.start(job, partial(self._done, cleaner, job))

    def _done(self, cleaner: Cleaner, job: Job, outcome: Outcome) -> None:
        if self._closed:
            return
        if isinstance(outcome, str):
            self._compaction.give_up(job, outcome)
            self._rest(cleaner)
            return
        _log.info(
            "compacted %s-%d up to offset %d: %d bytes read, %d written, %d records dropped",
            job.topic,
            job.partition,
            outcome.clean_offset,
            outcome.read_bytes,
            outcome.written_bytes,
            outcome.dropped_records,
        )
        self._place(cleaner, self._compaction.put_in_place(job, outcome, self._clock.now_ms()))

    def _place(self, cleaner: Cleaner, steps: Iterator[None]) -> None:
        """Put one segment in place a turn, so that requests come in between."""
        if self._closed:
            return
        try:
            next(steps)
        except StopIteration:
            self._rest(cleaner)
            self._look()
        except StorageError as error:
            self._on_failure(error)
        else:
            self._loop.call_soon(self._place, cleaner, steps)

    def close(self) -> None:
        """Stop; what is under way is done again after the next start."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for cleaner in self.cleaners:
            cleaner.close()


def start_cleaning(
    loop: asyncio.AbstractEventLoop,
    store: LogStore,
    disk: Disk,
    *,
    settings: BrokerSettings,
    clock: Clock,
    on_failure: Callable[[StorageError], None],
) -> Cleaning:
    """Compact the topics of a store from now on, with as many cleaners as the settings say."""

    def new_cleaner() -> Cleaner:
        return ProcessCleaner(loop) if isinstance(disk, RealDisk) else TurnCleaner(loop, disk)

    return Cleaning(
        loop,
        store.compaction,
        new_cleaner,
        settings=settings,
        clock=clock,
        on_failure=on_failure,
    )
