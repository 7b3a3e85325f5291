"""A topic of our own that keeps the last record of each key.

This file alone decides how such a topic is made and what of it is relied on. What its records say
is for whoever uses it.

One partition, because where a key is must not change when partitions are added. Compacted, and
nothing but compacted: a topic that forgets would have what it remembers done twice. It is read
from its start, so the settings keep it short.

A broker that is away may come back, and one that has just started may not know a topic yet. So all
is asked again until the client's patience ends, and a topic that has been seen once is never held
for one that is not there.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from headwater.base.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster, Place, is_retriable_or_broken

Result = TypeVar("Result")

_CLEANUP_POLICY: Final = "cleanup.policy"
_CONFIGS: Final = {
    _CLEANUP_POLICY: "compact",
    # A segment is compacted once it is full: the smallest that Apache Kafka takes.
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.1",
}
_REPLICAS_MAX: Final = 3


class ForgetfulTopicError(HeadwaterError):
    """A topic of ours does not keep what it has to."""


class CompactedTopic:
    """One topic of our own, in one cluster."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        """Name the topic; nobody is asked yet."""
        self.name = name
        self.place: Place = (name, 0)
        self._cluster = cluster
        self._is_there = False

    def exists(self) -> bool:
        """Ask whether the topic is there.

        Raises:
            KafkaError: It was, and is not any more.
            BrokerUnreachableError: No broker answers.
        """
        return self.retrying(self._look)

    def prepare(self) -> None:
        """Create the topic where it does not exist; refuse one that would forget.

        Raises:
            ForgetfulTopicError: It does not keep the last record of each key.
            KafkaError: It cannot be created, or its configs may not be read.
        """
        self.retrying(self._prepare)

    def bounds(self) -> tuple[int, int]:
        """Return the first offset, and the one behind the last record, committed or not."""
        return self.retrying(
            lambda: (
                admin.list_offsets(self._cluster, {self.place: admin.EARLIEST})[self.place],
                admin.list_offsets(self._cluster, {self.place: admin.LATEST})[self.place],
            )
        )

    def retrying(self, action: Callable[[], Result]) -> Result:
        """Do what may be done twice until it succeeds, or the client's patience ends."""
        return self._cluster.retrying(action, passes=is_retriable_or_broken)

    def _look(self) -> bool:
        self._cluster.refresh([self.name])
        is_known = self._cluster.knows(self.name)
        if self._is_there and not is_known:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{self.name} was there, and is not any more",
                hint="if somebody has deleted it, what it remembered is lost: see the broker's log",
            )
        self._is_there |= is_known
        return is_known

    def _prepare(self) -> None:
        if not self._cluster.knows(self.name) and not self._look():
            self._create()
        self._is_there = True
        for config in self._configs():
            if config.name == _CLEANUP_POLICY and config.value != "compact":
                raise ForgetfulTopicError(
                    f"{self.name} has cleanup.policy = {config.value}, so it would forget what was "
                    "written, and that would be written twice",
                    hint=f"headwater topic config {self.name} cleanup.policy=compact",
                )

    def _configs(self) -> list[admin.Config]:
        try:
            return admin.describe_configs(self._cluster, admin.TOPIC_RESOURCE, self.name)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            hint = f"grant the principal DESCRIBE_CONFIGS on {self.name}"
            raise KafkaError(error.code, error.message, hint=hint) from error

    def _create(self) -> None:
        replicas = min(_REPLICAS_MAX, len(self._cluster.brokers))
        configs = dict(_CONFIGS)
        if replicas == _REPLICAS_MAX:
            configs["min.insync.replicas"] = str(_REPLICAS_MAX - 1)
        try:
            admin.create_topic(
                self._cluster,
                self.name,
                partitions=1,
                replication_factor=replicas,
                configs=configs,
            )
        except KafkaError as error:
            # By somebody else, or by us: an answer may have got lost.
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            self._cluster.await_topic(self.name)
