"""The client that changes what exists: topics, configs, log starts.

This file alone decides which changes are made and in which order. One change at a time, so that
after a crash at most one of each thing is in doubt.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.record.records import Record, build_batch
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.connection import Connection
from tests.crash.broker.clients import ACKS_ALL, Client, Scene
from tests.crash.broker.promises import Ledger, Place, TopicState
from tests.crash.broker.wire import TIMEOUT_S, connect, receive_produce, send_produce

NODE = "1"
_NAMES = ("a0", "a1", "a2")
_PARTITIONS_MAX = 4
# Allowed values that change nothing about what is checked.
_CONFIGS = {
    "max.message.bytes": ("500000", "600000"),
    "retention.ms": ("3600000", "7200000"),
    "segment.ms": ("50", "200"),
    "index.interval.bytes": ("0", "400"),
}
_BROKER_CONFIG = "message.max.bytes"


class Administrator(Client):
    """Creates, deletes, configures, trims."""

    def __init__(self, name: str, ledger: Ledger, trimmed: list[Place]) -> None:
        super().__init__(name, ledger)
        self._trimmed = trimmed
        self._generation = 0

    def live(self, scene: Scene) -> None:
        """Change something until the end."""
        with (
            Cluster(scene.bootstrap, client_id=self.name, timeout_s=TIMEOUT_S) as cluster,
            connect(scene.address, self.name) as connection,
        ):
            while not scene.stop.is_set():
                self._change(cluster, connection)
                scene.stop.wait(self.dice.random() * 0.02)

    def _change(self, cluster: Cluster, connection: Connection) -> None:
        name = self.dice.choice(_NAMES)
        state = self.ledger.topics.get(name)
        if self.dice.random() < 0.2:
            self._trim(cluster)
        elif self.dice.random() < 0.05:
            self._configure_broker(cluster)
        elif state is None:
            self._create(cluster, name)
        else:
            changes: list[Callable[[], None]] = [
                lambda: self._delete(cluster, name),
                lambda: self._configure(cluster, name, state),
                lambda: self._grow(cluster, name, state),
                lambda: self._write(connection, name, state),
            ]
            (change,) = self.dice.choices(changes, (2, 2, 1, 6))
            change()

    def _create(self, cluster: Cluster, name: str) -> None:
        self._generation += 1
        state = TopicState(self.dice.randint(1, 3), self._some_configs(), self._generation)
        with self.ledger.changing(name, state):
            admin.create_topic(
                cluster, name, partitions=state.partitions, configs=dict(state.configs)
            )

    def _delete(self, cluster: Cluster, name: str) -> None:
        with self.ledger.changing(name, None):
            admin.delete_topic(cluster, name)

    def _configure(self, cluster: Cluster, name: str, state: TopicState) -> None:
        configs = self._some_configs()
        changes: dict[str, str | None] = dict.fromkeys(dict(state.configs))
        changes.update(configs)
        with self.ledger.changing(name, replace(state, configs=configs)):
            admin.alter_configs(cluster, admin.TOPIC_RESOURCE, name, changes)

    def _some_configs(self) -> frozenset[tuple[str, str]]:
        keys = self.dice.sample(list(_CONFIGS), self.dice.randint(0, len(_CONFIGS)))
        return frozenset((key, self.dice.choice(_CONFIGS[key])) for key in keys)

    def _grow(self, cluster: Cluster, name: str, state: TopicState) -> None:
        if state.partitions < _PARTITIONS_MAX:
            total = state.partitions + 1
            with self.ledger.changing(name, replace(state, partitions=total)):
                admin.add_partitions(cluster, name, total)

    def _write(self, connection: Connection, name: str, state: TopicState) -> None:
        place = (name, self.dice.randrange(state.partitions))
        values = self.values(place)
        # Of now: retention would take what claims to be old.
        now_ms = time.time_ns() // 1_000_000
        batch = bytes(build_batch([Record(0, now_ms, None, value) for value in values]))
        send_produce(connection, ACKS_ALL, {place: batch})
        for _, answer in receive_produce(connection):
            if answer.error_code:
                raise KafkaError(ErrorCode(answer.error_code), f"{place}")
            self.ledger.acknowledge(place, answer.base_offset, values, durable=True)

    def _trim(self, cluster: Cluster) -> None:
        place = self.dice.choice(self._trimmed)
        promise = self.ledger.promise(place)
        offset = self.dice.randint(promise.start, max(promise.start, promise.end))
        self.ledger.ask_start(place, offset)
        starts = admin.delete_records(cluster, {place: offset})
        self.ledger.show_start(place, starts[place])
        self.ledger.counts["trims"] += 1

    def _configure_broker(self, cluster: Cluster) -> None:
        value = str(self.dice.randint(900_000, 1_100_000)) if self.dice.random() < 0.8 else None
        wanted = frozenset({(_BROKER_CONFIG, value)} if value is not None else ())
        self.ledger.broker_configs_under_way = wanted
        admin.alter_configs(cluster, admin.BROKER_RESOURCE, NODE, {_BROKER_CONFIG: value})
        self.ledger.broker_configs = wanted
        self.ledger.broker_configs_under_way = None
