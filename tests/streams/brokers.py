"""The broker a test of streams runs against, and what such tests do with it by foreign clients.

This file alone decides how topics are made, filled and read around Spark: by librdkafka, which
knows nothing of us. It judges nothing: expectations stand in the tests.
"""

import time
import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

HEADWATER = "headwater"
APACHE_KAFKA = "apache-kafka"
_WITHIN_S = 60.0

Pair = tuple[bytes | None, bytes | None]


class Broker(NamedTuple):
    """One of the two brokers.

    Attributes:
        name: Which one.
        bootstrap: The address for any client.
    """

    name: str
    bootstrap: str

    def topic(
        self, prefix: str = "topic", *, partitions: int = 1, config: dict[str, str] | None = None
    ) -> str:
        """Create a topic under a name that no other test has; gives the name."""
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        self.create(name, partitions=partitions, config=config)
        return name

    def create(
        self, name: str, *, partitions: int = 1, config: dict[str, str] | None = None
    ) -> None:
        """Create a topic under this name and wait until it is there."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        wanted = NewTopic(name, num_partitions=partitions, config=config or {})
        admin.create_topics([wanted])[name].result(_WITHIN_S)
        # Apache Kafka answers before its broker has heard of the topic from its controller.
        end_s = time.monotonic() + _WITHIN_S
        while len(admin.list_topics(name, _WITHIN_S).topics[name].partitions) < partitions:
            assert time.monotonic() < end_s, f"{name} was created and is not there"
            time.sleep(0.01)

    def delete(self, name: str) -> None:
        """Delete a topic."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([name])[name].result(_WITHIN_S)

    def send(
        self,
        topic: str,
        pairs: Iterable[Pair],
        *,
        partition: int | None = None,
        at_ms: int | None = None,
    ) -> None:
        """Write keys and values, as of some time if need be; acknowledged when this returns."""
        failed: list[Any] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": "5"})

        def told(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        chosen = -1 if partition is None else partition
        for key, value in pairs:
            producer.produce(topic, value, key, chosen, told, timestamp=at_ms or 0)
        assert producer.flush(_WITHIN_S) == 0
        assert not failed, failed

    def send_aborted(self, topic: str, pairs: Iterable[Pair]) -> None:
        """Write keys and values in a transaction that is then aborted."""
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": uuid.uuid4().hex}
        producer = Producer(settings)
        producer.init_transactions(_WITHIN_S)
        producer.begin_transaction()
        for key, value in pairs:
            producer.produce(topic, key=key, value=value)
        assert producer.flush(_WITHIN_S) == 0
        producer.abort_transaction(_WITHIN_S)
        # Apache Kafka answers before the end of the transaction is in the log.
        deadline_s = time.monotonic() + _WITHIN_S
        levels = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        while len({self._ends(topic, level) for level in levels}) > 1:
            assert time.monotonic() < deadline_s, "the transaction does not end"
            time.sleep(0.02)

    def _ends(self, topic: str, level: IsolationLevel) -> tuple[int, ...]:
        """Return the end of each partition for who reads at this level."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        found = sorted(admin.list_topics(topic, timeout=_WITHIN_S).topics[topic].partitions)
        asked = {TopicPartition(topic, each): OffsetSpec.latest() for each in found}  # type: ignore[no-untyped-call]
        answers = admin.list_offsets(asked, isolation_level=level)
        return tuple(answers[place].result(_WITHIN_S).offset for place in asked)

    def read(self, topic: str, *, isolation: str = "read_committed") -> list[Message]:
        """Read a topic from its beginning to its end of now, partition by partition."""
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": f"reader-{uuid.uuid4().hex}",
            "isolation.level": isolation,
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
        }
        consumer = Consumer(settings)
        try:
            found = consumer.list_topics(topic, timeout=_WITHIN_S).topics[topic].partitions
            places = [TopicPartition(topic, each, OFFSET_BEGINNING) for each in sorted(found)]
            consumer.assign(places)
            return _until_all_ended(consumer, {each.partition for each in places})
        finally:
            consumer.close()

    def values(self, topic: str) -> list[bytes | None]:
        """Read the committed values of a topic, sorted."""
        return sorted((each.value() for each in self.read(topic)), key=lambda value: value or b"")


def _until_all_ended(consumer: Consumer, open_partitions: set[int]) -> list[Message]:
    messages: list[Message] = []
    end_s = time.monotonic() + _WITHIN_S
    while open_partitions:
        assert time.monotonic() < end_s, f"no end of partitions {open_partitions} was seen"
        # It waits for so many messages or for so long, whatever it has by then.
        for message in consumer.consume(10_000, timeout=0.1):
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise AssertionError(str(error))
    return sorted(messages, key=lambda each: (each.partition(), each.offset()))
