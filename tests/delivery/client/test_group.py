"""Members of a group: sharing, leaving, crashing, and going on where somebody was."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer as ForeignConsumer
from confluent_kafka import TopicPartition

from headwater.base.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.consumer import Message
from headwater.delivery.client.errors import BrokerUnreachableError
from headwater.delivery.client.group import GroupConsumer
from headwater.delivery.client.producer import Producer
from headwater.testing.broker import EmbeddedBroker

# Apache Kafka takes no shorter session.
SESSION_MS = 6_000


class Reader:
    """A member in a thread of its own, with a client of its own, as a process would have it."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, instance_id: str | None = None
    ) -> None:
        self.found: list[Message] = []
        self.assignment: list[int] = []
        self._cluster = Cluster(bootstrap)
        self._member = GroupConsumer(
            self._cluster,
            group,
            [topic],
            session_timeout_ms=SESSION_MS,
            instance_id=instance_id,
        )
        self._ending = threading.Event()
        self._crashing = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._ending.is_set():
            self.found += self._member.poll(0.1)
            self.assignment = [number for _, number in self._member.assignment]
            # Whoever has the partition by now reads it again.
            with contextlib.suppress(HeadwaterError):
                self._member.commit()
        if self._crashing:
            self._member._stop_heart()
        else:
            self._member.close()
        self._cluster.close()

    def leave(self) -> None:
        self._ending.set()
        self._thread.join(60)

    def crash(self) -> None:
        """Stop without a word: no more heartbeats, no goodbye."""
        self._crashing = True
        self.leave()


def wait_until(condition: Callable[[], bool], within_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, "it has not come to that"
        time.sleep(0.02)


@pytest.fixture
def readers(bootstrap: str, name: str) -> Iterator[Callable[..., Reader]]:
    """Give a function that starts a member; all leave at the end."""
    started: list[Reader] = []

    def start(instance_id: str | None = None) -> Reader:
        started.append(Reader(bootstrap, name, name, instance_id))
        return started[-1]

    yield start
    for reader in started:
        reader.leave()


@pytest.fixture
def topic(cluster: Cluster, name: str) -> str:
    admin.create_topic(cluster, name, partitions=4)
    return name


def write(cluster: Cluster, topic: str, values: range) -> None:
    with Producer(cluster) as producer:
        for number in values:
            producer.send(topic, b"%d" % number, partition=number % 4)


def poll_for_ever(member: GroupConsumer) -> None:
    while True:
        member.poll(0.1)


def values(*readers: Reader) -> list[int]:
    return sorted(int(message.value or b"") for reader in readers for message in reader.found)


def test_a_member_alone_reads_everything(
    cluster: Cluster, topic: str, readers: Callable[..., Reader]
) -> None:
    write(cluster, topic, range(100))
    alone = readers()
    wait_until(lambda: len(alone.found) == 100)
    assert alone.assignment == [0, 1, 2, 3]
    assert values(alone) == list(range(100))


def test_two_share_and_one_takes_over_when_the_other_leaves(
    cluster: Cluster, topic: str, readers: Callable[..., Reader]
) -> None:
    first, second = readers(), readers()
    wait_until(lambda: sorted([first.assignment, second.assignment]) == [[0, 1], [2, 3]])
    write(cluster, topic, range(100))
    wait_until(lambda: len(set(values(first, second))) == 100)
    second.leave()
    wait_until(lambda: first.assignment == [0, 1, 2, 3])
    write(cluster, topic, range(100, 200))
    wait_until(lambda: len(set(values(first, second))) == 200)
    assert values(first, second) == list(range(200)), "nobody read anything twice"


def test_a_crashed_member_is_replaced_after_its_session(
    cluster: Cluster, topic: str, readers: Callable[..., Reader]
) -> None:
    first, second = readers(), readers()
    wait_until(lambda: sorted([first.assignment, second.assignment]) == [[0, 1], [2, 3]])
    second.crash()
    write(cluster, topic, range(100))
    wait_until(lambda: first.assignment == [0, 1, 2, 3])
    wait_until(lambda: len(set(values(first))) == 100)


def test_a_static_member_comes_back_to_its_partitions(
    cluster: Cluster, topic: str, readers: Callable[..., Reader]
) -> None:
    first, second = readers("one"), readers("two")
    wait_until(lambda: sorted([first.assignment, second.assignment]) == [[0, 1], [2, 3]])
    held = second.assignment
    generation = admin.describe_group(cluster, topic)
    second.leave()
    again = readers("two")
    wait_until(lambda: bool(again.assignment))
    assert again.assignment == held
    names = {member.instance_id for member in admin.describe_group(cluster, topic).members}
    assert names == {"one", "two"}
    assert len(generation.members) == 2


def test_a_static_member_that_was_replaced_ends(
    bootstrap: str, cluster: Cluster, topic: str
) -> None:
    """Two processes by one name: the newer one has it, and the older one does not fight back."""
    options: dict[str, Any] = {"session_timeout_ms": SESSION_MS, "instance_id": "only one"}
    with Cluster(bootstrap) as older, Cluster(bootstrap) as newer:
        first = GroupConsumer(older, topic, [topic], **options)
        second = GroupConsumer(newer, topic, [topic], **options)
        wait_until(lambda: bool(first.poll(0.1) or first.assignment))
        second.poll(0.1)
        held = second.assignment
        assert held == first.assignment

        with pytest.raises(KafkaError) as refused:
            first.commit()
        assert refused.value.code == ErrorCode.FENCED_INSTANCE_ID
        with pytest.raises(KafkaError) as ended:
            wait_until(lambda: bool(first.poll(0.1)), within_s=2 * SESSION_MS / 1000)
        assert ended.value.code == ErrorCode.FENCED_INSTANCE_ID
        assert ended.value.hint
        assert first.assignment == []
        with pytest.raises(KafkaError):
            first.poll(0.1)

        write(cluster, topic, range(8))
        found: list[Message] = []

        def all_came() -> bool:
            found.extend(second.poll(0.1))
            return len(found) == 8

        wait_until(all_came)
        second.commit()
        assert second.assignment == held
        first.close()
        second.close()


def test_a_member_beside_librdkafkas(
    cluster: Cluster, bootstrap: str, topic: str, readers: Callable[..., Reader]
) -> None:
    """Both share out by range; whichever leads, the other understands it."""
    ours = readers()
    wait_until(lambda: ours.assignment == [0, 1, 2, 3])
    foreign = ForeignConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "partition.assignment.strategy": "range",
            "session.timeout.ms": SESSION_MS,
            "auto.offset.reset": "earliest",
        }
    )
    foreign.subscribe([topic])
    try:

        def shared() -> bool:
            foreign.poll(0.05)
            theirs = {each.partition for each in foreign.assignment()}
            held = sorted([sorted(theirs), ours.assignment])
            return held == [[0, 1], [2, 3]]

        wait_until(shared)
    finally:
        foreign.close()
    wait_until(lambda: ours.assignment == [0, 1, 2, 3])


def test_what_was_committed_is_not_read_again(cluster: Cluster, bootstrap: str, topic: str) -> None:
    write(cluster, topic, range(100))
    with GroupConsumer(cluster, topic, [topic], session_timeout_ms=SESSION_MS) as member:
        found: list[Message] = []
        while len(found) < 100:
            found += member.poll()
        # Of each partition the first ten of twenty-five are dealt with.
        member.commit({(topic, number): 10 for number in range(4)} | {("other", 0): 5})
    foreign = ForeignConsumer({"bootstrap.servers": bootstrap, "group.id": topic})
    committed = foreign.committed([TopicPartition(topic, number) for number in range(4)], 30)
    foreign.close()
    assert [each.offset for each in committed] == [10, 10, 10, 10]
    with GroupConsumer(cluster, topic, [topic], session_timeout_ms=SESSION_MS) as member:
        found = []
        while len(found) < 60:
            found += member.poll()
        assert min(message.offset for message in found) == 10


def test_only_the_partition_whose_place_is_gone_is_reset(cluster: Cluster, topic: str) -> None:
    write(cluster, topic, range(100))
    admin.commit_offsets(cluster, topic, {(topic, number): 20 for number in range(4)})
    admin.commit_offsets(cluster, topic, {(topic, 1): 3})
    admin.delete_records(cluster, {(topic, 1): 10})
    with GroupConsumer(cluster, topic, [topic], session_timeout_ms=SESSION_MS) as member:
        found: list[Message] = []
        while len(found) < 30:
            found += member.poll()
    first = {message.partition: message.offset for message in reversed(found)}
    assert first == {0: 20, 1: 10, 2: 20, 3: 20}


def test_beginning_at_the_end(cluster: Cluster, topic: str) -> None:
    write(cluster, topic, range(100))
    with GroupConsumer(
        cluster, topic, [topic], from_start=False, session_timeout_ms=SESSION_MS
    ) as member:
        assert member.poll(0.1) == []
        write(cluster, topic, range(100, 104))
        found: list[Message] = []
        while len(found) < 4:
            found += member.poll()
        assert sorted(int(message.value or b"") for message in found) == [100, 101, 102, 103]


def test_a_topic_that_does_not_exist_yet(cluster: Cluster, name: str) -> None:
    with GroupConsumer(cluster, name, [name], session_timeout_ms=SESSION_MS) as member:
        assert member.poll(0.1) == []
        assert member.assignment == []


# --- a broker that goes away --------------------------------------------------------------------


def test_a_restart_of_the_broker_is_survived(name: str, tmp_path: object) -> None:
    with EmbeddedBroker(data_directory=str(tmp_path)) as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            admin.create_topic(cluster, name, partitions=4)
            write(cluster, name, range(100))
        reader = Reader(broker.bootstrap_servers, name, name)
        try:
            wait_until(lambda: len(reader.found) == 100)
            broker.stop()
            broker.start()
            with Cluster(broker.bootstrap_servers) as cluster:
                write(cluster, name, range(100, 200))
            wait_until(lambda: len(set(values(reader))) == 200)
        finally:
            reader.leave()


def test_a_broker_that_stays_away_is_told_in_the_end(name: str) -> None:
    with EmbeddedBroker() as broker, Cluster(broker.bootstrap_servers, timeout_s=0.5) as cluster:
        admin.create_topic(cluster, name)
        member = GroupConsumer(cluster, name, [name], session_timeout_ms=1000)
        assert member.poll(0.1) == []
        broker.stop()
        with pytest.raises(BrokerUnreachableError):
            poll_for_ever(member)
        member.close()
