"""The transaction coordinator: one door for everything that clients and tools want of it.

This file alone decides what is written down before what: it carries out what `decisions` grants.

    a partition joins      record Ongoing; its data may share the sync, see below
    the end is decided     record PrepareX -> durable -> answer, and markers into every partition;
                           a commit waits until all that it commits is on disk (`written`)
    the markers are synced record CompleteX, for whose sync nobody waits: whatever follows stands
                           behind it in the same log
    meanwhile              requests for the id are held, not refused (`holding`)

A decision is in force as soon as its record is appended; answers wait for the sync. That is safe
because all records of an id lie in one partition, so that a crash leaves a prefix of them, and
because a sync that fails ends the broker.

With KIP-890 a batch is appended together with the record that its partition has joined, and both
become durable in the same round. A crash can keep the batch and lose the record: `recovery` finds
such batches at the start. Where the topic leaves its batches to the page cache, the record is
durable before they are acknowledged, and a transaction that a crash finds open is aborted: what was
acknowledged may be gone, and a commit would be half a one. That it has to be is noted in the
journal first, and forgotten when it is aborted.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from operator import length_hint
from typing import Final, NamedTuple

from headwater.base.clock import Clock, Timers
from headwater.base.errors import ErrorCode, KafkaError, MalformedMessageError
from headwater.base.settings import BrokerSettings
from headwater.delivery.broker.append_errors import error_for_client
from headwater.delivery.broker.partition import Partition
from headwater.delivery.broker.state_topic import StateTopic
from headwater.delivery.broker.topics import PartitionKey, Topics
from headwater.delivery.broker.transactions import decisions
from headwater.delivery.broker.transactions.deadlines import Deadlines
from headwater.delivery.broker.transactions.decisions import Producer
from headwater.delivery.broker.transactions.holding import Holding
from headwater.delivery.broker.transactions.markers import Marker, Markers, OffsetsEnded
from headwater.delivery.broker.transactions.records import (
    decode_transaction,
    new_transactions_topic,
    transaction_entry,
    transaction_tombstone,
)
from headwater.delivery.broker.transactions.recovery import compare
from headwater.delivery.broker.transactions.states import TransactionState
from headwater.delivery.broker.transactions.torn import Torn
from headwater.delivery.broker.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, Transaction
from headwater.delivery.broker.transactions.written import unsynced, when_all_synced
from headwater.log.noted import Note
from headwater.log.producers import EPOCH_BUMPING_VERSION

_log = logging.getLogger(__name__)

_RETRY_MS: Final = 200
# Ids that are looked at in one go, and the pause before the next ones: some milliseconds of work
# at worst, when all have expired, and 100,000 ids within half a minute.
_EXPIRED_AT_ONCE_MAX: Final = 500
_EXPIRY_PAUSE_MS: Final = 100
# The same for transactions whose time is up; their markers come on top, some tenths of a
# millisecond for each.
_ABORTED_AT_ONCE_MAX: Final = 100
_ABORT_PAUSE_MS: Final = 50

Answer = Callable[[ErrorCode], None]


class ProducerAnswer(NamedTuple):
    """The answer to InitProducerId and EndTxn: an error, or who the producer is from now on."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class Transactions:
    """All transactional ids of this node."""

    def __init__(  # noqa: PLR0913 - each is another part of the node
        self,
        *,
        topics: Topics,
        settings: BrokerSettings,
        clock: Clock,
        timers: Timers,
        node_epoch: int,
        new_producer_id: Callable[[], int],
        server_version: Callable[[], int],
        offsets_ended: OffsetsEnded,
        note: Note,
    ) -> None:
        """Put the parts together.

        Args:
            topics: Where partitions are found, and ``__transaction_state`` lives.
            settings: How long transactions and ids may live.
            clock: The time that records carry and time-outs go by.
            timers: For what is done later.
            node_epoch: Grows with every start; markers carry it, unless the log was already
                written by a coordinator with a larger one.
            new_producer_id: Gives one that nobody ever had.
            server_version: The level of ``transaction.version`` that is in force.
            offsets_ended: Told of every marker in the offsets topic.
            note: Remembers what a crash may have torn.
        """
        self._settings = settings
        self._clock = clock
        self._timers = timers
        self._topics = topics
        self._coordinator_epoch = node_epoch
        self._new_producer_id = new_producer_id
        self._server_version = server_version
        self._log = StateTopic(new_transactions_topic(settings), topics, clock)
        self._table: dict[str, Transaction] = {}
        # What records that were found at the start join when the transaction before has ended.
        self._adoptions: dict[str, set[PartitionKey]] = {}
        self._torn = Torn(topics, note)
        self._deadlines = Deadlines()
        self._holding = Holding(timers)
        self.markers = Markers(topics, timers, offsets_ended)

    # From start to stop

    def load(self, *, after_crash: bool) -> None:
        """Rebuild all transactional ids from the log, and end what was ending or cannot go on.

        Raises:
            StorageError: The disk failed or is full: what must not be committed was not noted.
        """
        for key, value in self._log.newest().items():
            try:
                transaction = decode_transaction(key, value)
            except MalformedMessageError as error:
                _log.warning("a record of %s was skipped: %s", self._log.name, error.message)
                continue
            if transaction is not None and transaction.state is not TransactionState.DEAD:
                self._put(transaction)
        state_topic = self._topics.get(self._log.name)
        for partition in state_topic.partitions if state_topic is not None else ():
            self._coordinator_epoch = max(self._coordinator_epoch, partition.log.leader_epoch)
        self._reconcile()
        self._torn.find(self, after_crash=after_crash)
        for transaction in self:
            if transaction.state.is_ending:
                self._decided(transaction, _tell_nobody)
        self._abort_torn()
        _log.info("loaded %d transactional ids, %d open", len(self), self.open_count)
        self._start_timers()

    def _reconcile(self) -> None:
        """Find an owner for every transaction that is open in a partition, or abort it."""
        found = (
            ((topic.name, partition.log.partition), opened)
            for topic in self._topics
            for partition in topic.partitions
            for opened in partition.log.open_transactions()
        )
        adopted, stray = compare(self._table.values(), found)
        for transactional_id, partitions in adopted.items():
            transaction = self._table[transactional_id]
            if transaction.state.is_ending:
                self._adoptions[transactional_id] = partitions
            else:
                self._adopt(transaction, partitions)
        for key, opened in stray:
            _log.warning(
                "%s-%d: the transaction of producer %d, open since offset %d, belongs to nobody "
                "and is aborted",
                *key,
                opened.producer_id,
                opened.first_offset,
            )
            marker = Marker(
                opened.producer_id,
                opened.producer_epoch,
                is_commit=False,
                coordinator_epoch=self._coordinator_epoch,
                transaction_version=0,
            )
            self.markers.write(marker, [key], _nothing_more)

    def _abort_torn(self) -> None:
        """Abort what a crash may have torn; what there is no room for is tried again."""
        if not self._torn:
            return
        for transaction in self:
            if transaction not in self._torn:
                continue
            try:
                self._fence(transaction)
            except KafkaError as error:
                _log.warning("torn transactions are not aborted yet: %s", error.message)
                return
            _log.warning(
                "transaction %s is aborted: what it wrote while flush.messages was above 1 may be "
                "lost",
                transaction.transactional_id,
            )

    def _start_timers(self) -> None:
        settings = self._settings
        self._timers.after(
            settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            self._abort_overdue,
        )
        self._timers.after(
            settings.transaction_remove_expired_transaction_cleanup_interval_ms, self._expire
        )

    def _adopt(self, transaction: Transaction, partitions: Iterable[PartitionKey]) -> None:
        if not transaction.partitions.issuperset(partitions):
            adopted = transaction.with_partitions(
                partitions, client_version=EPOCH_BUMPING_VERSION, now_ms=self._clock.now_ms()
            )
            try:
                self._write(adopted, _nothing_more)
            except KafkaError as error:
                # Its outcome will name them, and until then every start finds them again.
                _log.warning("transaction %s: %s", transaction.transactional_id, error.message)
                self._put(adopted)

    # What there is

    def get(self, transactional_id: str) -> Transaction | None:
        """Return what is known of a transactional id."""
        return self._table.get(transactional_id)

    def __iter__(self) -> Iterator[Transaction]:
        """Go through all transactional ids."""
        return iter(tuple(self._table.values()))

    def __len__(self) -> int:
        """Count the transactional ids."""
        return len(self._table)

    @property
    def open_count(self) -> int:
        """How many transactions are open."""
        return len(self._deadlines)

    # Beginning

    def init_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Producer | None,
        answer: Callable[[ProducerAnswer], None],
    ) -> None:
        """Give a producer its id and epoch; whoever had the transactional id before is fenced.

        A transaction that is open is aborted first.
        """
        if not 0 < timeout_ms <= self._settings.transaction_max_timeout_ms:
            answer(ProducerAnswer(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
            return
        again = partial(self.init_producer, transactional_id, timeout_ms, expected, answer)
        now_ms = self._clock.now_ms()
        current = self._table.get(transactional_id)
        try:
            if current is None:
                granted = Transaction.begun(
                    transactional_id,
                    producer_id=self._new_producer_id(),
                    timeout_ms=timeout_ms,
                    now_ms=now_ms,
                )
            else:
                decisions.check_takeover(current, expected)
                if current.state is TransactionState.ONGOING:
                    self._fence(current)
                    # Where nothing is synced it may have ended already.
                    current = self._table[transactional_id]
                if current.state.is_ending:
                    self._hold(transactional_id, again, partial(_refuse_producer, answer))
                    return
                granted = decisions.judge_init(
                    current,
                    expected,
                    timeout_ms=timeout_ms,
                    new_producer_id=self._new_producer_id,
                    now_ms=now_ms,
                )
            reply = ProducerAnswer(ErrorCode.NONE, granted.producer_id, granted.producer_epoch)
            self._write(granted, partial(answer, reply))
        except KafkaError as error:
            answer(ProducerAnswer(error_for_client(error)))

    # Reaching partitions

    def enlist(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[PartitionKey],
        answer: Answer,
        *,
        client_version: int = EPOCH_BUMPING_VERSION,
    ) -> None:
        """Add partitions to the producer's transaction; answers when that is durable."""

        def decided(error: ErrorCode) -> None:
            if error:
                answer(error)
            else:
                self._log.when_settled(transactional_id, partial(answer, ErrorCode.NONE))

        self.enlist_at_once(
            transactional_id,
            Producer(producer_id, producer_epoch),
            frozenset(partitions),
            decided,
            client_version=client_version,
        )

    def enlist_at_once(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[PartitionKey],
        decided: Answer,
        *,
        client_version: int = EPOCH_BUMPING_VERSION,
        keep: Callable[[], int] | None = None,
    ) -> None:
        """Add partitions and tell as soon as batches may be appended to them.

        What is appended then is durable no sooner than the fact that the partition is part of the
        transaction. ``keep`` is called if the decision is put off, to save what the caller needs;
        it returns how many bytes that takes.
        """
        try:
            granted = decisions.judge_enlist(
                self._table.get(transactional_id),
                producer,
                partitions,
                client_version=client_version,
                now_ms=self._clock.now_ms(),
            )
            if granted is not None:
                self._write(granted, _nothing_more)
        except KafkaError as error:
            if error.code != ErrorCode.CONCURRENT_TRANSACTIONS:
                decided(error_for_client(error))
                return
            again = partial(
                self.enlist_at_once,
                transactional_id,
                producer,
                partitions,
                decided,
                client_version=client_version,
                keep=keep,
            )
            give_up = partial(decided, ErrorCode.CONCURRENT_TRANSACTIONS)
            size = keep() if keep is not None else 0
            self._hold(transactional_id, again, give_up, size=size)
            return
        decided(ErrorCode.NONE)

    def maybe_unsettled(self, transactional_id: str) -> tuple[Partition, int] | None:
        """Return where to wait for what is known of the id to be durable, if it is not yet."""
        return self._log.maybe_unsettled(transactional_id)

    def check_enlisted(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topic: str,
        partition: int,
    ) -> None:
        """Refuse a partition that is not part of the producer's open transaction.

        Raises:
            KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, or
                TRANSACTION_ABORTABLE where it is simply not part of it.
        """
        producer = Producer(producer_id, producer_epoch)
        current = self._table.get(transactional_id)
        decisions.check_enlisted(current, producer, (topic, partition))

    # Ending

    def end(
        self,
        transactional_id: str,
        producer: Producer,
        answer: Callable[[ProducerAnswer], None],
        *,
        commit: bool,
        client_version: int,
    ) -> None:
        """Commit or abort; answers when the outcome is durable."""
        current = self._table.get(transactional_id)
        again = partial(
            self.end,
            transactional_id,
            producer,
            answer,
            commit=commit,
            client_version=client_version,
        )
        if commit and current is not None and current.state is TransactionState.ONGOING:
            waiting = unsynced(self._topics, current.producer_id, current.partitions)
            if waiting:
                when_all_synced(waiting, again)
                return
        try:
            if current is not None and current in self._torn:
                self._fence(current)
                current = self._table[transactional_id]
            granted = decisions.judge_end(
                current,
                producer,
                commit=commit,
                client_version=client_version,
                new_producer_id=self._new_producer_id,
                now_ms=self._clock.now_ms(),
            )
            if granted is None:
                assert current is not None
                self._log.when_settled(transactional_id, partial(answer, _after_end(current)))
                return
            self._write(granted, partial(self._decided, granted, answer))
        except KafkaError as error:
            if error.code != ErrorCode.CONCURRENT_TRANSACTIONS:
                answer(ProducerAnswer(error_for_client(error)))
                return
            self._hold(transactional_id, again, partial(_refuse_producer, answer))

    def _fence(self, current: Transaction) -> None:
        """Abort an open transaction whose producer is replaced or late."""
        granted = decisions.judge_fence(
            current,
            server_version=self._server_version(),
            new_producer_id=self._new_producer_id,
            now_ms=self._clock.now_ms(),
        )
        self._write(granted, partial(self._decided, granted, _tell_nobody))

    def _abort_overdue(self) -> None:
        self._timers.after(
            self._settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            self._abort_overdue,
        )
        self._abort_some_overdue()
        self._abort_torn()
        self._torn.forget_aborted(self)

    def _abort_some_overdue(self) -> None:
        now_ms = self._clock.now_ms()
        overdue = self._deadlines.overdue(now_ms, count_max=_ABORTED_AT_ONCE_MAX)
        for transactional_id in overdue:
            current = self._table[transactional_id]
            try:
                self._fence(current)
                _log.info(
                    "transaction %s: aborted, it was open for more than its %d ms",
                    transactional_id,
                    current.timeout_ms,
                )
            except KafkaError as error:
                _log.warning("late transactions are not aborted yet: %s", error.message)
                return
        if len(overdue) == _ABORTED_AT_ONCE_MAX:
            self._timers.after(_ABORT_PAUSE_MS, self._abort_some_overdue)

    def _decided(self, ending: Transaction, answer: Callable[[ProducerAnswer], None]) -> None:
        """The outcome is durable: nothing can change it any more."""
        marker = Marker(
            ending.producer_id,
            ending.producer_epoch,
            ending.is_commit,
            self._coordinator_epoch,
            ending.client_version,
        )
        try:
            answer(_after_end(ending))
        finally:
            self.markers.write(marker, ending.partitions, partial(self._complete, ending))

    def _complete(self, ending: Transaction) -> None:
        """All markers are durable."""
        try:
            completed = ending.completed(now_ms=self._clock.now_ms())
            self._write(completed, _nothing_more)
            self._adopt(completed, self._adoptions.get(ending.transactional_id, ()))
        except KafkaError as error:
            _log.warning(
                "transaction %s: its end is put off: %s", ending.transactional_id, error.message
            )
            self._timers.after(_RETRY_MS, partial(self._complete, ending))
            return
        self._adoptions.pop(ending.transactional_id, None)
        self._holding.release(ending.transactional_id)

    # Forgetting

    def _expire(self) -> None:
        self._timers.after(
            self._settings.transaction_remove_expired_transaction_cleanup_interval_ms,
            self._expire,
        )
        before_ms = self._clock.now_ms() - self._settings.transactional_id_expiration_ms
        self._expire_some(iter(tuple(self._table)), before_ms)

    def _expire_some(self, ids: Iterator[str], before_ms: int) -> None:
        """Forget ids that were idle for too long, some at a time so that others get their turn."""
        for transactional_id in islice(ids, _EXPIRED_AT_ONCE_MAX):
            current = self._table.get(transactional_id)
            if current is None or not current.state.is_idle or current.updated_ms > before_ms:
                continue
            try:
                self._log.append(
                    transactional_id, [transaction_tombstone(transactional_id)], _nothing_more
                )
            except KafkaError as error:
                _log.warning("transactional ids are not forgotten yet: %s", error.message)
                return
            del self._table[transactional_id]
        if length_hint(ids):
            self._timers.after(_EXPIRY_PAUSE_MS, partial(self._expire_some, ids, before_ms))

    # Writing

    def _write(self, transaction: Transaction, when_durable: Callable[[], None]) -> None:
        """Write a decision down; from here on it is in force.

        Raises:
            KafkaError: Nothing was written and nothing has changed.
        """
        transactional_id = transaction.transactional_id
        entry = transaction_entry(transaction, server_version=self._server_version())
        self._log.append(transactional_id, [entry], None)
        self._put(transaction)
        self._log.when_settled(transactional_id, when_durable)

    def _put(self, transaction: Transaction) -> None:
        transactional_id = transaction.transactional_id
        self._table[transactional_id] = transaction
        if transaction.state is TransactionState.ONGOING:
            deadline_ms = transaction.started_ms + transaction.timeout_ms
            self._deadlines.set(transactional_id, deadline_ms)
        else:
            self._deadlines.clear(transactional_id)

    def _hold(
        self,
        transactional_id: str,
        go_on: Callable[[], None],
        give_up: Callable[[], None],
        *,
        size: int = 0,
    ) -> None:
        self._holding.hold(transactional_id, go_on, give_up, size=size)


def _after_end(transaction: Transaction) -> ProducerAnswer:
    """Tell the client who it is after this end; the other producer id is its own already."""
    if transaction.next_producer_id != NO_PRODUCER_ID:
        return ProducerAnswer(ErrorCode.NONE, transaction.next_producer_id, 0)
    return ProducerAnswer(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)


def _refuse_producer(answer: Callable[[ProducerAnswer], None]) -> None:
    answer(ProducerAnswer(ErrorCode.CONCURRENT_TRANSACTIONS))


def _tell_nobody(_: ProducerAnswer) -> None:
    pass


def _nothing_more() -> None:
    pass
