"""One node: its topics, its groups, and the few facts that every answer needs.

This file alone decides how the parts of the broker are put together and when their upkeep runs.
It is single-threaded and does nothing by itself: requests, timers and finished commits drive it.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from headwater.base.chance import Chance
from headwater.base.clock import Clock, Timers
from headwater.base.errors import ErrorCode, KafkaError, StorageError
from headwater.base.settings import BrokerSettings
from headwater.base.topic_names import maybe_name_problem
from headwater.delivery.broker.configs import Configs
from headwater.delivery.broker.features import Features
from headwater.delivery.broker.fetch_sessions import FetchSessions
from headwater.delivery.broker.groups import Groups
from headwater.delivery.broker.groups.offsets_topic import OFFSETS_TOPIC, new_offsets_topic
from headwater.delivery.broker.overflow import Overflow
from headwater.delivery.broker.partition import Commits
from headwater.delivery.broker.promises import Promises
from headwater.delivery.broker.quotas import Quotas
from headwater.delivery.broker.topic_rules import (
    Room,
    WantedTopic,
    plan_creation,
)
from headwater.delivery.broker.topics import NewTopic, Topics
from headwater.delivery.broker.transactions import Transactions
from headwater.delivery.broker.transactions.records import (
    TRANSACTIONS_TOPIC,
    new_transactions_topic,
)
from headwater.log.store import LogStore
from headwater.log.topic import INTERNAL_TOPICS

# How often the broker looks for files that retention or deletion has made removable.
_UPKEEP_INTERVAL_MS = 1_000
# How often a disk that stays full is complained of; clients that retry would fill the log.
_COMPLAINT_INTERVAL_MS = 10_000
# A client that has just deleted a topic refreshes what it knows of it, often with a request that
# would create the topic. Two seconds outlast the quick repetitions of librdkafka and kafka-python;
# longer would keep other programs of that host and client id from creating it.
_STAYS_DELETED_MS = 2_000

_log = logging.getLogger(__name__)


class Broker:
    """All decisions of a single node."""

    def __init__(
        self,
        store: LogStore,
        *,
        settings: BrokerSettings,
        clock: Clock,
        timers: Timers,
        chance: Chance,
        commits: Commits,
        on_failure: Callable[[StorageError], None] | None = None,
    ) -> None:
        """Put the parts together.

        ``on_failure`` is called once, when upkeep finds that the disk has failed, be it under a
        request: the broker must end.
        """
        self.store = store
        self.clock = clock
        self.timers = timers
        self.chance = chance
        self._on_failure = on_failure
        self.node_id = settings.node_id
        self.cluster_id = store.cluster_id
        self.leader_epoch = store.node_epoch
        # Where clients reach us; set once the port is known.
        self.advertised_host = ""
        self.advertised_port = 0
        self._quiet_until_ms = 0
        self.topics = Topics(store, commits)
        self.promises = Promises(timers)
        self._deleted_until_ms: dict[tuple[str, str | None, str], int] = {}
        self.groups = Groups(
            topics=self.topics, settings=settings, clock=clock, timers=timers, chance=chance
        )
        self.configs = Configs(store, self.topics, settings)
        self.settings = self.configs.in_force
        self.configs.when_changed(self._configured)
        self.features = Features(store, node_id=settings.node_id)
        self.fetch_sessions = FetchSessions(
            clock, chance, settings.max_incremental_fetch_session_cache_slots
        )
        self.quotas = Quotas(store, settings, clock)
        self.transactions = Transactions(
            topics=self.topics,
            settings=settings,
            clock=clock,
            timers=timers,
            node_epoch=store.node_epoch,
            new_producer_id=store.next_producer_id,
            server_version=lambda: self.features.transaction_version,
            offsets_ended=self.groups.committing.transaction_ended,
            note=store.note,
        )
        self.overflow = Overflow(self.groups.offsets, store.reclaim)
        self.topics.when_deleted(self.overflow.forget)

    def start(self) -> None:
        """Rebuild what lives in internal topics, then begin the upkeep."""
        self.groups.load()
        # Behind the groups, which hear of the markers that are written now.
        self.transactions.load(after_crash=not self.store.stopped_cleanly)
        for topic in self.topics:
            for partition in topic.partitions:
                self.overflow.after_start(partition)
        self.timers.after(_UPKEEP_INTERVAL_MS, self._keep_up)

    def _configured(self, settings: BrokerSettings) -> None:
        self.settings = settings

    def delete_topic(self, name: str, *, client_id: str | None, client_host: str) -> None:
        """Delete a topic, and do not create it on demand of the same client for a while.

        Many programs have their library's default id, so their address counts as well.

        Raises:
            KafkaError: As `Topics.delete`.
        """
        self.topics.delete(name)
        until_ms = self.clock.monotonic_ms() + _STAYS_DELETED_MS
        self._deleted_until_ms[name, client_id, client_host] = until_ms

    def create_on_demand(
        self,
        names: Sequence[str],
        *,
        allowed: bool,
        client_id: str | None = None,
        client_host: str = "",
    ) -> dict[str, ErrorCode]:
        """Create topics that a client merely mentioned, if that is the rule here.

        All are created with one sync. A disk that has no room for them creates none.

        Returns:
            What to tell the client of each name. As from Kafka, where the controller creates the
            topic meanwhile, that is UNKNOWN_TOPIC_OR_PARTITION for one that was created, too.
        """
        told = dict.fromkeys(names, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for name in names:
            if maybe_name_problem(name):
                told[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
        if not (allowed and self.settings.auto_create_topics_enable):
            return told
        quota = self.quotas.mutations(client_id, strict=True)
        granted: list[NewTopic] = []
        wanted = [
            name
            for name, code in told.items()
            if code != ErrorCode.INVALID_TOPIC_EXCEPTION
            and not self._stays_deleted(name, client_id, client_host)
        ]
        for name, plan in self._plan_on_demand(wanted).items():
            if isinstance(plan, KafkaError):
                told[name] = plan.code
                continue
            # Above the quota the topic is not there yet: clients ask again.
            with suppress(KafkaError):
                quota.spend(plan.partitions)
                granted.append(plan)
        try:
            if granted:
                self.topics.create(granted)
        except KafkaError as error:
            told |= {plan.name: error.code for plan in granted}
        return told

    def _stays_deleted(self, name: str, client_id: str | None, client_host: str) -> bool:
        until_ms = self._deleted_until_ms.get((name, client_id, client_host))
        return until_ms is not None and self.clock.monotonic_ms() < until_ms

    def _plan_on_demand(self, names: Sequence[str]) -> dict[str, NewTopic | KafkaError]:
        own = {
            OFFSETS_TOPIC: new_offsets_topic(self.settings),
            TRANSACTIONS_TOPIC: new_transactions_topic(self.settings),
        }
        # Nobody here writes the others that Kafka calls internal; an ordinary topic of that name
        # would mislead its readers.
        ordinary = [name for name in names if name not in INTERNAL_TOPICS]
        room = Room({topic.name for topic in self.topics}, self.topics.partition_count())
        wanted = [WantedTopic(name, -1, -1, (), {}) for name in ordinary]
        planned = plan_creation(wanted, room, self.settings, self.store.topic_defaults)
        return {name: own[name] for name in names if name in own} | dict(
            zip(ordinary, planned, strict=True)
        )

    def short_of_room(self, error: StorageError) -> None:
        """An append was refused by the disk: free what can be freed, and say so now and then."""
        self.store.make_room()
        now_ms = self.clock.monotonic_ms()
        if now_ms >= self._quiet_until_ms:
            self._quiet_until_ms = now_ms + _COMPLAINT_INTERVAL_MS
            _log.warning("records are refused: %s; %s", error.message, error.hint)

    def _keep_up(self) -> None:
        # First of all: an error that nobody thought of must not be the end of all upkeep.
        again = self.timers.after(_UPKEEP_INTERVAL_MS, self._keep_up)
        now_ms = self.clock.now_ms()
        failure = StorageError("the log cannot be written any more")
        self.quotas.forget_idle()
        self.promises.forget_kept()
        self.overflow.keep_up()
        monotonic_ms = self.clock.monotonic_ms()
        self._deleted_until_ms = {
            key: until_ms
            for key, until_ms in self._deleted_until_ms.items()
            if monotonic_ms < until_ms
        }
        try:
            self.topics.request_due_commits()
            self.store.work_due(now_ms)
        except StorageError as error:
            failure = error
            _log.warning("upkeep is put off: %s", error)
        if self.store.failed:
            again.cancel()
            if self._on_failure is None:
                raise failure
            self._on_failure(failure)


def check_leader_epoch(broker: Broker, claimed_epoch: int) -> None:
    """Refuse a client whose view of the leader is older or newer than the truth (KIP-320)."""
    if claimed_epoch in {-1, broker.leader_epoch}:
        return
    if claimed_epoch < broker.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
