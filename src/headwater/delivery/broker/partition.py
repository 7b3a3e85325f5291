"""One partition as the broker sees it: a log, and whoever waits for it.

This file alone decides who is told when records become durable or visible; one who fails to listen
keeps nobody else from being told. It knows nothing of requests, sockets or how a sync is made: it
hands itself to ``Commits`` and is called back.

    append -> log (page cache) -> joins the commit round -> synced -> high watermark moves
                                                                        |-> producers with acks=all
                                                                        '-> waiting fetches
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from headwater.base.disk import Syncable
from headwater.base.record.batch import BatchHeader
from headwater.delivery.broker.refused import RefusedBatches
from headwater.log.appended import Appended
from headwater.log.partition import PartitionLog

Action = Callable[[], None]


class Committable(Protocol):
    """Something that has written and wants it durable.

    From ``begin_commit`` to ``end_commit`` its files must stay open: they are forgotten rather
    than closed, and the round holds them until it is over.
    """

    def begin_commit(self) -> Sequence[Syncable]:
        """Hand over what has to be synced for all that was written so far."""
        ...

    def end_commit(self) -> None:
        """Everything handed over is durable now."""
        ...


class Commits(Protocol):
    """The group commit: collects what is dirty, syncs it in rounds."""

    def add(self, item: Committable) -> None:
        """Let the item take part in the next round."""
        ...

    def between_rounds(self, action: Action) -> None:
        """Run the action while nothing is being synced; never again once a round has failed."""
        ...


class Partition:
    """A partition log with its waiters; what every dialect appends to and reads from."""

    __slots__ = (
        "_commits",
        "_in_round",
        "_syncing",
        "_waiting",
        "_watchers",
        "ended",
        "log",
        "quiet_answer",
        "refused",
    )

    def __init__(self, log: PartitionLog, commits: Commits) -> None:
        self.log = log
        # The topic was deleted; whoever still holds the partition must not wait for it.
        self.ended = False
        # What a dialect last told a reader who was at the end: (the state it told of, its bytes).
        self.quiet_answer: tuple[tuple[object, ...], bytes] | None = None
        # Made when a batch of a producer is refused that the log does not know; most never need it.
        self.refused: RefusedBatches | None = None
        self._commits = commits
        self._in_round = False
        # In offset order, because appends are: the head is always the next to become durable.
        self._waiting: deque[tuple[int, Action, Action | None]] = deque()
        # The same for those who need the disk's word, not the readers'; most never have any, and
        # a node may have 20,000 partitions.
        self._syncing: deque[tuple[int, Action]] | None = None
        self._watchers: dict[Action, None] = {}

    def append(self, batch: bytearray | memoryview, header: BatchHeader) -> Appended:
        """Append a validated batch; it becomes visible when its commit round is through."""
        log = self.log
        appended = log.append(batch, header)
        if log.commit_due():
            self.request_commit()
        if log.high_watermark > appended.last_offset:
            self._advanced()
        return appended

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        committed: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Appended:
        """End a producer's transaction here; the marker is synced whatever the topic's configs."""
        appended = self.log.append_marker(
            producer_id,
            producer_epoch,
            committed=committed,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        self.request_commit()
        if self.log.high_watermark > appended.last_offset:
            self._advanced()
        return appended

    def request_commit(self) -> None:
        """Join the next commit round, once."""
        if not self._in_round:
            self._in_round = True
            self._commits.add(self)

    def begin_commit(self) -> Sequence[Syncable]:
        """Hand over what is dirty; what is appended from here on belongs to the next round."""
        self._in_round = False
        return self.log.begin_commit()

    def end_commit(self) -> None:
        """Move the high watermark and tell those who waited for it."""
        self.log.end_commit()
        try:
            if self._syncing:
                self._synced(self._syncing)
        finally:
            self._advanced()

    def when_durable(self, last_offset: int, action: Action, failed: Action | None = None) -> None:
        """Run the action as soon as the record at ``last_offset`` is safe and visible.

        Actions run in offset order. When the disk fails, ``failed`` runs instead.
        """
        if self.log.high_watermark > last_offset:
            action()
            return
        waiting = self._waiting
        if waiting and waiting[-1][0] > last_offset:
            # A duplicate of an earlier batch waits for an offset that others wait for already.
            index = next(i for i, each in enumerate(waiting) if each[0] > last_offset)
            waiting.insert(index, (last_offset, action, failed))
        else:
            waiting.append((last_offset, action, failed))

    def when_synced(self, last_offset: int, action: Action) -> None:
        """Run the action when the record is on disk, also where readers see it sooner.

        To be asked in the order of offsets, of records for which a commit was requested.
        """
        if self.log.synced_offset > last_offset:
            action()
            return
        if self._syncing is None:
            self._syncing = deque()
        self._syncing.append((last_offset, action))

    def fail(self, reason: str) -> None:
        """The disk failed: nothing more is appended, and nobody waits in vain."""
        self.log.fail(reason)
        waiting, self._waiting = self._waiting, deque()
        for _, _, failed in waiting:
            if failed is not None:
                failed()

    def watch(self, action: Action) -> None:
        """Run the action whenever something becomes readable or the partition ends."""
        self._watchers[action] = None

    def unwatch(self, action: Action) -> None:
        """Stop watching; harmless when it was not watched."""
        self._watchers.pop(action, None)

    def end(self) -> None:
        """The topic is deleted: those who wait for records hear of it at once."""
        self.ended = True
        self.wake()

    def wake(self) -> None:
        """Let every watcher look again."""
        failure: Exception | None = None
        for action in tuple(self._watchers):
            try:
                action()
            except Exception as error:  # noqa: BLE001 - raised when all have been told
                failure = error
        if failure is not None:
            raise failure

    def _synced(self, syncing: deque[tuple[int, Action]]) -> None:
        synced_offset = self.log.synced_offset
        failure: Exception | None = None
        while syncing and syncing[0][0] < synced_offset:
            try:
                syncing.popleft()[1]()
            except Exception as error:  # noqa: BLE001 - raised when all have been told
                failure = error
        if failure is not None:
            raise failure

    def _advanced(self) -> None:
        high_watermark = self.log.high_watermark
        waiting = self._waiting
        failure: Exception | None = None
        while waiting and waiting[0][0] < high_watermark:
            try:
                waiting.popleft()[1]()
            except Exception as error:  # noqa: BLE001 - raised when all have been told
                failure = error
        if self._watchers:
            self.wake()
        if failure is not None:
            raise failure
