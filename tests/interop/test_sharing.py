"""Who gets which record: members of a group share, groups do not, slowness stays where it is."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka import KafkaConsumer

from headwater.testing.broker import EmbeddedBroker

PARTITIONS = 4
RECORDS = 200
WAIT_S = 30.0

Polled = list[tuple[int, bytes]]


def make_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(WAIT_S)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.02)


class Member(threading.Thread):
    """A member of a group, whatever its client: takes records one after the other."""

    def __init__(self, poll: Callable[[], Polled], assigned: Callable[[], set[int]]) -> None:
        super().__init__(daemon=True)
        self.got: Polled = []
        self.partitions: set[int] = set()
        self.ended = threading.Event()
        self.slow_may_end = threading.Event()
        self._poll = poll
        self._assigned = assigned

    def run(self) -> None:
        while not self.ended.is_set():
            for partition, value in self._poll():
                if value == b"slow":
                    self.slow_may_end.wait(WAIT_S)
                self.got.append((partition, value))
            self.partitions = self._assigned()

    @contextmanager
    def running(self) -> Iterator["Member"]:
        self.start()
        try:
            yield self
        finally:
            self.ended.set()
            self.slow_may_end.set()
            self.join(WAIT_S)


@contextmanager
def librdkafka(bootstrap: str, group: str, topic: str) -> Iterator[Member]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])

    def poll() -> Polled:
        found = []
        for message in consumer.consume(100, 0.1):
            partition, value = message.partition(), message.value()
            assert message.error() is None
            assert partition is not None
            assert value is not None
            found.append((partition, bytes(value)))
        return found

    member = Member(poll, lambda: {each.partition for each in consumer.assignment()})
    with member.running():
        yield member
    consumer.close()


@contextmanager
def kafka_python(bootstrap: str, group: str, topic: str) -> Iterator[Member]:
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
    )

    def poll() -> Polled:
        # A poll that ends between JoinGroup and SyncGroup loses the assignment, in 3.0.12.
        batches = consumer.poll(1_000).values()
        return [(each.partition, each.value) for batch in batches for each in batch]

    member = Member(poll, lambda: {each.partition for each in consumer.assignment()})
    with member.running():
        yield member
    consumer.close()


def settle(members: Sequence[Member], partitions: int) -> None:
    """Wait until the members hold all partitions between them, each at least one."""
    wait_until(
        lambda: (
            all(each.partitions for each in members)
            and sum(len(each.partitions) for each in members) == partitions
        ),
        "the group never settled",
    )


def test_members_share_and_groups_get_everything(headwater_broker: EmbeddedBroker) -> None:
    bootstrap = headwater_broker.bootstrap_servers
    make_topic(bootstrap, "shared", PARTITIONS)
    with ExitStack() as stack:
        email = [stack.enter_context(librdkafka(bootstrap, "email", "shared")) for _ in range(2)]
        audit = [stack.enter_context(kafka_python(bootstrap, "audit", "shared")) for _ in range(2)]
        alone = [stack.enter_context(librdkafka(bootstrap, "alone", "shared"))]
        groups = (email, audit, alone)
        for members in groups:
            settle(members, PARTITIONS)
        producer = Producer({"bootstrap.servers": bootstrap})
        sent = [b"record-%d" % number for number in range(RECORDS)]
        for value in sent:
            producer.produce("shared", value, key=value)
        producer.flush()
        wait_until(
            lambda: all(sum(len(each.got) for each in members) >= RECORDS for members in groups),
            "records are missing",
        )
    for members in groups:
        assert sorted(value for each in members for _, value in each.got) == sorted(sent)
        assert all(each.got for each in members), "every member had its share of the work"


def test_one_slow_record_holds_up_its_own_partition_only(headwater_broker: EmbeddedBroker) -> None:
    bootstrap = headwater_broker.bootstrap_servers
    make_topic(bootstrap, "jobs", 2)
    jobs = [b"slow", *(b"quick-%d" % number for number in range(20))]
    with ExitStack() as stack:
        workers = [stack.enter_context(librdkafka(bootstrap, "workers", "jobs")) for _ in range(2)]
        settle(workers, 2)
        slow, quick = sorted(workers, key=lambda each: min(each.partitions))
        producer = Producer({"bootstrap.servers": bootstrap})
        for value in jobs:
            producer.produce("jobs", value, partition=0)
        for value in jobs[1:]:
            producer.produce("jobs", value, partition=1)
        producer.flush()
        wait_until(lambda: len(quick.got) == len(jobs) - 1, "the other partition waits too")
        assert slow.got == [], "nothing behind the slow record may overtake it"
        slow.slow_may_end.set()
        wait_until(lambda: len(slow.got) == len(jobs), "its partition never went on")
    assert slow.got == [(0, value) for value in jobs]
    assert quick.got == [(1, value) for value in jobs[1:]]
