"""The batch reader as Spark asks it, against both brokers, without a JVM."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.errors import DataLossError, OptionError, UnknownTopicError
from headwater.testing.broker import EmbeddedBroker
from tests.streams.brokers import HEADWATER, Broker
from tests.streams.source.driving import GO_ON, batch_read, pairs, remove_before, texts, values


def test_all_there_is_is_read(broker: Broker, topic: str) -> None:
    broker.send(topic, pairs(0, 200))
    assert values(batch_read(broker, {"subscribe": topic})) == texts(0, 200)


def test_an_empty_topic_gives_no_row(broker: Broker, topic: str) -> None:
    assert batch_read(broker, {"subscribe": topic}) == []
    assert batch_read(broker, {"subscribePattern": f"{topic}-nobody"}) == []


def test_several_topics_and_a_pattern_are_read(broker: Broker, topic: str, single: str) -> None:
    broker.send(topic, pairs(0, 5))
    broker.send(single, pairs(5, 9))
    assert values(batch_read(broker, {"subscribe": f"{topic}, {single}"})) == texts(0, 9)
    assert values(batch_read(broker, {"subscribePattern": f"{topic}|{single}"})) == texts(0, 9)
    assert values(batch_read(broker, {"assign": json.dumps({single: [0]})})) == texts(5, 9)


def test_offsets_bound_what_is_read(broker: Broker, single: str) -> None:
    broker.send(single, pairs(0, 20))
    options = {
        "subscribe": single,
        "startingOffsets": json.dumps({single: {"0": 5}}),
        "endingOffsets": json.dumps({single: {"0": 12}}),
        "maxRecordsPerPartition": "2",
    }
    assert values(batch_read(broker, options)) == texts(5, 12)
    options["endingOffsets"] = json.dumps({single: {"0": -1}})
    assert values(batch_read(broker, options)) == texts(5, 20)
    options["endingOffsets"] = json.dumps({single: {"0": 4}})
    with pytest.raises(OptionError, match="would end at 4 and begin at 5"):
        batch_read(broker, options)


def test_timestamps_bound_what_is_read(broker: Broker, single: str) -> None:
    broker.send(single, pairs(0, 3))
    last_ms = max(each.timestamp()[1] for each in broker.read(single))
    options = {"subscribe": single, "endingTimestamp": str(last_ms + 60_000)}
    assert values(batch_read(broker, options)) == texts(0, 3)
    options = {"subscribe": single, "endingTimestamp": "1"}
    assert batch_read(broker, options) == []
    by_partition = json.dumps({single: {"0": 1}})
    options = {"subscribe": single, "startingOffsetsByTimestamp": by_partition}
    assert values(batch_read(broker, options)) == texts(0, 3)
    options = {"subscribe": single, "endingOffsetsByTimestamp": by_partition}
    assert batch_read(broker, options) == []


def test_an_end_that_is_not_reached_is_named_or_what_there_is(broker: Broker, single: str) -> None:
    broker.send(single, pairs(0, 5))
    options = {"subscribe": single, "endingOffsets": json.dumps({single: {"0": 6}})}
    with pytest.raises(DataLossError, match="ends at 5, before 6"):
        batch_read(broker, options)
    assert values(batch_read(broker, {**options, **GO_ON})) == texts(0, 5)


def test_a_beginning_that_fell_off_is_named_or_what_there_is(broker: Broker, single: str) -> None:
    broker.send(single, pairs(0, 5))
    remove_before(broker, single, 3)
    assert values(batch_read(broker, {"subscribe": single})) == texts(3, 5)
    options = {"subscribe": single, "startingOffsets": json.dumps({single: {"0": 1}})}
    with pytest.raises(DataLossError, match="has records 3 to 4, not 1"):
        batch_read(broker, options)
    assert values(batch_read(broker, {**options, **GO_ON})) == texts(3, 5)


def test_an_unknown_topic_is_named(broker: Broker) -> None:
    with pytest.raises(UnknownTopicError, match="'nobody-made-this' does not exist"):
        batch_read(broker, {"subscribe": "nobody-made-this"})


def test_what_was_aborted_is_unseen(broker: Broker, single: str) -> None:
    broker.send(single, pairs(0, 3))
    broker.send_aborted(single, pairs(3, 6))
    assert values(batch_read(broker, {"subscribe": single})) == texts(0, 3)


@pytest.fixture(scope="module")
def filled(embedded_broker: EmbeddedBroker) -> tuple[Broker, str]:
    """Give a topic with 60 records in batches of 7."""
    broker = Broker(HEADWATER, embedded_broker.bootstrap_servers)
    name = broker.topic()
    for first in range(0, 60, 7):
        broker.send(name, pairs(first, min(first + 7, 60)))
    return broker, name


@settings(max_examples=40)
@given(
    ends=st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted),
    partitions_min=st.integers(1, 20),
    fetch_bytes=st.integers(1, 4000),
)
def test_any_range_in_any_cut_gives_its_records_once(
    filled: tuple[Broker, str], ends: list[int], partitions_min: int, fetch_bytes: int
) -> None:
    broker, name = filled
    first, behind = ends
    options = {
        "subscribe": name,
        "startingOffsets": json.dumps({name: {"0": first}}),
        "endingOffsets": json.dumps({name: {"0": behind}}),
        "minPartitions": str(partitions_min),
        "kafka.max.partition.fetch.bytes": str(fetch_bytes),
    }
    rows = batch_read(broker, options)
    assert [row["offset"] for row in rows] == list(range(first, behind))
    assert values(rows) == texts(first, behind)
