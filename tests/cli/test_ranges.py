"""Reading ranges while the log changes under the reader."""

from pathlib import Path

import pytest

from headwater.cli.ranges import RangeReader
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.consumer import Message
from headwater.delivery.client.errors import BrokerUnreachableError
from headwater.delivery.client.producer import Producer
from headwater.testing.broker import EmbeddedBroker


def write(cluster: Cluster, topic: str, values: range) -> None:
    with Producer(cluster) as producer:
        for number in values:
            producer.send(topic, b"%d" % number, partition=0)


def read(reader: RangeReader, count: int) -> list[bytes | None]:
    found: list[Message] = []
    while len(found) < count:
        found += reader.read()
    return [message.value for message in found]


def test_a_range_ends_where_it_ended_when_it_began(cluster: Cluster, name: str) -> None:
    admin.create_topic(cluster, name)
    write(cluster, name, range(10))
    reader = RangeReader(cluster, {(name, 0): 2}, {(name, 0): 10}, on_loss=pytest.fail)
    write(cluster, name, range(10, 20))
    found = []
    while not reader.done:
        found += reader.read()
    assert [message.offset for message in found] == list(range(2, 10))
    assert reader.scanned == 8


def test_an_empty_range_is_done_at_once(cluster: Cluster, name: str) -> None:
    reader = RangeReader(cluster, {(name, 0): 7}, {(name, 0): 7}, on_loss=pytest.fail)
    assert reader.done


def test_what_falls_off_under_the_reader_is_told(cluster: Cluster, name: str) -> None:
    admin.create_topic(cluster, name)
    write(cluster, name, range(10))
    lost: list[str] = []
    reader = RangeReader(cluster, {(name, 0): 0}, None, on_loss=lost.append)
    admin.delete_records(cluster, {(name, 0): 6})
    assert read(reader, 4) == [b"6", b"7", b"8", b"9"]
    assert lost == [f"{name}-0 begins at offset 6 by now: 0 to 5 are gone"]
    assert reader.lost == 6


def test_a_range_that_was_removed_as_a_whole_is_done(cluster: Cluster, name: str) -> None:
    admin.create_topic(cluster, name)
    write(cluster, name, range(10))
    reader = RangeReader(cluster, {(name, 0): 0}, {(name, 0): 5}, on_loss=lambda _: None)
    admin.delete_records(cluster, {(name, 0): 8})
    assert reader.read() == []
    assert reader.done
    assert reader.lost == 5


def test_a_restart_of_the_broker_is_survived(name: str, tmp_path: Path) -> None:
    with (
        EmbeddedBroker(data_directory=str(tmp_path)) as broker,
        Cluster(broker.bootstrap_servers) as cluster,
    ):
        admin.create_topic(cluster, name)
        write(cluster, name, range(5))
        reader = RangeReader(cluster, {(name, 0): 0}, None, on_loss=pytest.fail)
        assert len(read(reader, 5)) == 5
        broker.stop()
        broker.start()
        with Cluster(broker.bootstrap_servers) as other:
            write(other, name, range(5, 10))
        assert read(reader, 5) == [b"%d" % number for number in range(5, 10)]


def test_a_broker_that_stays_away_is_told_in_the_end(name: str) -> None:
    with EmbeddedBroker() as broker, Cluster(broker.bootstrap_servers, timeout_s=0.5) as cluster:
        admin.create_topic(cluster, name)
        reader = RangeReader(cluster, {(name, 0): 0}, None, on_loss=pytest.fail)
        assert reader.read(0.0) == []
        broker.stop()
        with pytest.raises(BrokerUnreachableError):
            reader.read()
