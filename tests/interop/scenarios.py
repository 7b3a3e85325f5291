"""What every client must be able to do with the broker.

This file alone decides it; a class per client inherits it and says where that client differs by
its own nature. What a client writes is read by itself and by librdkafka, and what librdkafka
writes is read by the client.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from headwater.testing.broker import EmbeddedBroker
from tests.interop.clients import WITNESS, ClientError, Clients, Speaker, eventually
from tests.interop.proxy import FETCH, wire_to
from tests.interop.records import Record, an_hour_ago_ms, by_partition, peculiar, plain


def send(
    speaker: Speaker, bootstrap: str, topic: str, records: list[Record], **options: object
) -> Any:  # noqa: ANN401 - JSON
    """Have records produced."""
    packed = [record.packed() for record in records]
    return speaker.call("produce", bootstrap=bootstrap, topic=topic, records=packed, **options)


def read(speaker: Speaker, bootstrap: str, topic: str, **options: object) -> list[Record]:
    """Have a topic read from its beginning to its end."""
    found = speaker.call("consume", bootstrap=bootstrap, topics=[topic], **options)
    return [Record.unpacked(fields) for fields in found[topic]]


def create(
    clients: Clients, bootstrap: str, topic: str, partitions: int = 1, **configs: str
) -> None:
    """Create a topic, its configs with underscores for dots."""
    clients[WITNESS].call(
        "create",
        bootstrap=bootstrap,
        topic=topic,
        partitions=partitions,
        configs={name.replace("_", "."): value for name, value in configs.items()},
    )


class Records:
    """Contents, order and acknowledgements."""

    client: ClassVar[str]
    # Some libraries refuse to send what the protocol allows.
    sends_null_headers: ClassVar[bool] = True
    sends_nothing_at_all: ClassVar[bool] = True

    def sendable(self) -> list[Record]:
        """Give the records this client is able to send."""
        records = peculiar()
        if not self.sends_null_headers:
            records = [without_null_headers(record) for record in records]
        if not self.sends_nothing_at_all:
            records = [each for each in records if (each.key, each.value) != (None, None)]
        return records

    def test_every_kind_of_record_comes_back(
        self, speaker: Speaker, clients: Clients, bootstrap: str, name: str
    ) -> None:
        create(clients, bootstrap, name)
        sent = self.sendable()
        answers = send(speaker, bootstrap, name, sent)
        if answers is not None:
            assert answers == [[0, offset] for offset in range(len(sent))]
        assert read(speaker, bootstrap, name) == sent
        assert read(clients[WITNESS], bootstrap, name) == sent

    def test_every_kind_of_record_is_read(
        self, speaker: Speaker, clients: Clients, bootstrap: str, name: str
    ) -> None:
        create(clients, bootstrap, name)
        sent = peculiar()
        send(clients[WITNESS], bootstrap, name, sent)
        assert read(speaker, bootstrap, name) == sent

    def test_order_is_kept_in_each_partition(
        self, speaker: Speaker, clients: Clients, bootstrap: str, name: str
    ) -> None:
        create(clients, bootstrap, name, partitions=3)
        sent = plain(900, partitions=3)
        send(speaker, bootstrap, name, sent)
        assert by_partition(read(speaker, bootstrap, name)) == by_partition(sent)

    @pytest.mark.parametrize("acks", ["0", "1", "all"])
    def test_acks(
        self, speaker: Speaker, clients: Clients, bootstrap: str, name: str, acks: str
    ) -> None:
        create(clients, bootstrap, name)
        sent = plain(50)
        answers = send(speaker, bootstrap, name, sent, acks=acks)
        if answers is not None and acks != "0":
            assert [offset for _, offset in answers] == list(range(50))
        # Nobody says when records that ask for no answer are there.
        for _ in eventually(20):
            if len(found := read(speaker, bootstrap, name)) == len(sent):
                break
        assert found == sent

    def test_read_committed_without_transactions_reads_everything(
        self, speaker: Speaker, clients: Clients, bootstrap: str, name: str
    ) -> None:
        create(clients, bootstrap, name)
        sent = plain(50)
        send(speaker, bootstrap, name, sent)
        assert read(speaker, bootstrap, name, isolation="read_committed") == sent

    def test_a_batch_above_every_limit_of_a_fetch_is_delivered(
        self, speaker: Speaker, clients: Clients, bootstrap: str, name: str
    ) -> None:
        create(clients, bootstrap, name)
        sent = [
            Record(b"%d" % number, b"%d" % number * 50_000, (), an_hour_ago_ms())
            for number in range(4)
        ]
        for record in sent:
            send(speaker, bootstrap, name, [record])
        assert read(speaker, bootstrap, name, fetch_max_bytes=1_000) == sent

    def test_a_record_above_the_limit_of_its_topic_is_refused(
        self, speaker: Speaker, clients: Clients, bootstrap: str, name: str
    ) -> None:
        create(clients, bootstrap, name, max_message_bytes="10000")
        with pytest.raises(ClientError) as refused:
            send(speaker, bootstrap, name, [Record(b"large", bytes(50_000), (), an_hour_ago_ms())])
        assert refused.value.code == 10
        assert read(speaker, bootstrap, name) == []

    def test_the_broker_may_say_what_time_it_is(
        self, speaker: Speaker, clients: Clients, bootstrap: str, name: str
    ) -> None:
        create(clients, bootstrap, name, message_timestamp_type="LogAppendTime")
        begun_ms = int(time.time() * 1_000)
        sent = plain(20)
        send(speaker, bootstrap, name, sent, codec="gzip")
        found = read(speaker, bootstrap, name)
        ended_ms = int(time.time() * 1_000)
        assert all(begun_ms <= record.timestamp_ms <= ended_ms for record in found)
        assert without_times(found) == without_times(sent)


class AutoCreation:
    """Topics that nobody created."""

    client: ClassVar[str]
    keeps_times: ClassVar[bool] = True
    # What a client is told to give up soon, in its own words.
    impatience: ClassVar[dict[str, object]] = {}

    def test_a_topic_is_created_on_demand(
        self, speaker: Speaker, bootstrap: str, name: str
    ) -> None:
        sent = plain(30, partitions=3)
        send(speaker, bootstrap, name, sent)
        found = read(speaker, bootstrap, name)
        if not self.keeps_times:
            sent, found = without_times(sent), without_times(found)
        assert by_partition(found) == by_partition(sent)

    def test_no_topic_is_created_where_that_is_forbidden(
        self, speaker: Speaker, clients: Clients, strict_broker: EmbeddedBroker, name: str
    ) -> None:
        with pytest.raises((ClientError, RuntimeError)):
            send(
                speaker,
                strict_broker.bootstrap_servers,
                name,
                plain(1),
                settings=self.impatience,
            )
        topics = clients[WITNESS].call("topics", bootstrap=strict_broker.bootstrap_servers)
        assert name not in topics


class LongPolls:
    """A consumer that waits costs nothing and hears at once."""

    client: ClassVar[str]

    def test_an_idle_consumer_waits_at_the_broker_and_wakes_at_once(
        self, speaker: Speaker, clients: Clients, broker: EmbeddedBroker, name: str
    ) -> None:
        create(clients, broker.bootstrap_servers, name)
        with wire_to(broker) as wire, ThreadPoolExecutor(1) as threads:

            def listen() -> tuple[float, Any]:
                record = speaker.call(
                    "tail", bootstrap=wire.bootstrap, topic=name, max_wait_ms=25_000
                )
                return time.monotonic(), record

            listening = threads.submit(listen)
            wire.wait_for(FETCH, 1)
            # An impatient client would show itself in this time.
            time.sleep(1.5)
            fetches = wire.count(FETCH)
            sent_s = time.monotonic()
            witness = clients["kafka-python" if self.client == WITNESS else WITNESS]
            sent = plain(1)
            send(witness, broker.bootstrap_servers, name, sent)
            heard_s, record = listening.result()
        assert fetches <= 3, f"{fetches} fetches in 1.5 s"
        assert Record.unpacked(record) == sent[0]
        assert heard_s - sent_s < 8, "heard only when the wait was over"


class Offsets:
    """Committing, seeking and resetting."""

    client: ClassVar[str]
    # Steps that this client's interface does not have, and answers that differ by its nature.
    offsets_without: ClassVar[frozenset[str]] = frozenset()
    offsets_differ: ClassVar[dict[str, object]] = {}

    def test_offsets(self, speaker: Speaker, clients: Clients, bootstrap: str, name: str) -> None:
        create(clients, bootstrap, name)
        base_ms = an_hour_ago_ms()
        send(clients[WITNESS], bootstrap, name, plain(10, base_ms=base_ms))
        report = speaker.call(
            "offsets", bootstrap=bootstrap, topic=name, group=f"{name}-group", base_ms=base_ms
        )
        expected: dict[str, object] = {
            "committed at first": None,
            "committed": 4,
            "metadata": "read to four, ü",
            "resumed at": 4,
            "sought": 7,
            "beginning": 0,
            "end": 10,
            "by time": 3,
            "after the last": None,
            "earliest": 0,
            "latest": 10,
            "out of range": 0,
            "none": "NoOffsetForPartitionError",
        }
        expected |= self.offsets_differ
        assert report == {
            step: answer for step, answer in expected.items() if step not in self.offsets_without
        }


class Administration:
    """Everything an administrator can call."""

    client: ClassVar[str]
    admin_without: ClassVar[frozenset[str]] = frozenset()
    admin_differs: ClassVar[dict[str, object]] = {}

    def test_administration(
        self, speaker: Speaker, clients: Clients, broker: EmbeddedBroker, bootstrap: str, name: str
    ) -> None:
        data, group = f"{name}-data", f"{name}-group"
        create(clients, bootstrap, data)
        base_ms = an_hour_ago_ms()
        records = plain(10, base_ms=base_ms)
        # The largest timestamp is not the last one.
        records[6], records[9] = (
            Record(b"6", b"6", (), base_ms + 50_000),
            Record(b"9", b"9", (), base_ms + 9_000),
        )
        send(clients[WITNESS], bootstrap, data, records)
        clients[WITNESS].call("commit", bootstrap=bootstrap, group=group, topic=data, offset=5)
        report = speaker.call(
            "admin", bootstrap=bootstrap, topic=name, data=data, group=group, base_ms=base_ms
        )
        expected: dict[str, object] = {
            "cluster": [1, 1, broker.node.broker.cluster_id],
            "created": 3,
            "listed": True,
            "create again": 36,
            "bad name": 17,
            "bad config": 40,
            "grown": 5,
            "shrunk": 37,
            "config": "7200000",
            "altered": ["3600000", "1048576"],
            "incremental": ["604800000", "1048576", "2000000", "delete,compact"],
            "broker config": "true",
            "offsets": [0, 10, 6, 3],
            "trimmed": [4, 4],
            "trim beyond": 1,
            "log dirs": True,
            "group listed": True,
            "group": ["Empty", 0],
            "group offsets": {f"{data}-0": 5},
            "group moved": {f"{data}-0": 2},
            "group forgotten": {},
            "group deleted": True,
            "delete group again": 69,
            "deleted": True,
            "delete again": 3,
        }
        expected |= self.admin_differs
        assert report == {
            step: answer for step, answer in expected.items() if step not in self.admin_without
        }


def without_times(records: list[Record]) -> list[Record]:
    """Make all records of one time."""
    return [replace(record, timestamp_ms=0) for record in records]


def without_null_headers(record: Record) -> Record:
    """Make null headers empty."""
    headers = tuple((key, value or b"") for key, value in record.headers)
    return replace(record, headers=headers)
