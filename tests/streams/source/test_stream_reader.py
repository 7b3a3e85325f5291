"""The streaming reader as Spark asks it, against both brokers, without a JVM."""

import json
import logging
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as KafkaPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from headwater.streams.errors import (
    CheckpointError,
    DataLossError,
    OptionError,
    TopicRecreatedError,
    UnknownTopicError,
)
from headwater.testing.manual_clock import ManualClock
from tests.streams.brokers import Broker
from tests.streams.source.driving import Query, Streams, values

WITHIN_S = 60.0
EARLIEST = {"startingOffsets": "earliest"}
GO_ON = {"failOnDataLoss": "false"}


def pairs(first: int, behind: int) -> list[tuple[bytes, bytes]]:
    """Make records that are told apart by their numbers."""
    return [(b"k%d" % number, b"%05d" % number) for number in range(first, behind)]


def texts(first: int, behind: int) -> list[str]:
    """Return the values of `pairs`."""
    return [f"{number:05d}" for number in range(first, behind)]


def add_partitions(broker: Broker, topic: str, total: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(WITHIN_S)


def remove_before(broker: Broker, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    place = TopicPartition(topic, 0, offset)
    admin.delete_records([place])[place].result(WITHIN_S)


def recreate(broker: Broker, topic: str, *, partitions: int = 1) -> None:
    broker.delete(topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    while topic in admin.list_topics(timeout=WITHIN_S).topics:
        pass
    broker.create(topic, partitions=partitions)


class Transaction:
    """A transaction of librdkafka's that stays open until it is told otherwise."""

    def __init__(self, broker: Broker) -> None:
        self.producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": uuid.uuid4().hex}
        )
        self.producer.init_transactions(WITHIN_S)

    def send(self, topic: str, records: list[tuple[bytes, bytes]]) -> None:
        self.producer.begin_transaction()
        for key, value in records:
            self.producer.produce(topic, key=key, value=value, partition=0)
        assert self.producer.flush(WITHIN_S) == 0


@pytest.fixture
def stream(broker: Broker) -> Iterator[Streams]:
    with ExitStack() as stack:

        def start(options: dict[str, str], **more: Any) -> Query:  # noqa: ANN401 - as Query's
            query = Query(broker, options, **more)
            stack.callback(query.reader.stop)
            return query

        yield start


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.topic(partitions=2)


@pytest.fixture
def single(broker: Broker) -> str:
    return broker.topic()


@pytest.fixture
def transaction(broker: Broker) -> Iterator[Transaction]:
    yield (transaction := Transaction(broker))
    del transaction.producer


def test_rows_are_what_librdkafka_reads(broker: Broker, topic: str, stream: Streams) -> None:
    broker.send(topic, [*pairs(0, 500), (None, b"no key"), (b"no value", None)])
    rows = stream({"subscribe": topic, **EARLIEST}).all()
    found = [
        (row["partition"], row["offset"], row["key"], row["value"], row["timestamp"])
        for row in rows
    ]
    expected = [
        (
            each.partition(),
            each.offset(),
            each.key(),
            each.value(),
            datetime.fromtimestamp(each.timestamp()[1] / 1000, UTC),
        )
        for each in broker.read(topic)
    ]
    assert sorted(found, key=lambda row: row[:2]) == expected
    assert {(row["topic"], row["timestampType"]) for row in rows} == {(topic, 0)}
    assert list(rows[0]) == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]


def test_headers_are_a_column_on_request(broker: Broker, single: str, stream: Streams) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(single, b"a", headers=[("h", b"1"), ("h", None), ("g", b"")])
    producer.produce(single, b"b")
    assert producer.flush(WITHIN_S) == 0
    options = {"subscribe": single, "includeHeaders": "true", **EARLIEST}
    first, second = stream(options).all()
    assert first["headers"] == [
        {"key": "h", "value": b"1"},
        {"key": "h", "value": None},
        {"key": "g", "value": b""},
    ]
    assert second["headers"] is None


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(broker: Broker, single: str, codec: str, stream: Streams) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 20}
    )
    for key, value in pairs(0, 300):
        producer.produce(single, value * 20, key)
    assert producer.flush(WITHIN_S) == 0
    rows = stream({"subscribe": single, **EARLIEST}).all()
    assert [row["value"] for row in rows] == [value * 20 for _, value in pairs(0, 300)]


# --- where it begins ----------------------------------------------------------------------------


def test_without_a_word_only_what_comes_is_read(
    broker: Broker, topic: str, stream: Streams
) -> None:
    broker.send(topic, pairs(0, 10))
    query = stream({"subscribe": topic})
    assert query.batch() is None
    broker.send(topic, pairs(10, 15))
    assert values(query.batch()) == texts(10, 15)
    assert query.batch() is None


def test_a_first_batch_is_repeated_as_it_was(broker: Broker, topic: str, stream: Streams) -> None:
    """Spark asks a restarted query for its beginning again, when its first batch did not end."""
    query = stream({"subscribe": topic})
    start = query.start()
    broker.send(topic, pairs(0, 10))
    assert values(query.batch()) == texts(0, 10)
    broker.send(topic, pairs(10, 20))
    again = stream({"subscribe": topic})
    assert again.start() != start
    assert values(again.rows(again.start(), query.ends[0])) == texts(0, 10)


def test_offsets_are_begun_at(broker: Broker, topic: str, stream: Streams) -> None:
    for number in (0, 1):
        broker.send(topic, pairs(number * 10, number * 10 + 10), partition=number)
    wanted = json.dumps({topic: {"0": 7, "1": -2}})
    rows = stream({"subscribe": topic, "startingOffsets": wanted}).all()
    assert values(rows) == texts(7, 10) + texts(10, 20)
    wanted = json.dumps({topic: {"0": 10, "1": -1}})
    assert stream({"subscribe": topic, "startingOffsets": wanted}).all() == []


@pytest.mark.parametrize(
    "offsets,error,words",
    [
        ({"0": 0}, OptionError, "has nothing for .*-1, which is read"),
        ({"0": 0, "1": 0, "2": 0}, OptionError, "has something for .*-2, which is not read"),
        ({"0": 11, "1": 0}, DataLossError, "has records 0 to 9, not 11"),
    ],
)
def test_offsets_that_are_not_there_are_named(
    broker: Broker, topic: str, offsets: dict[str, int], error: type, words: str, stream: Streams
) -> None:
    broker.send(topic, pairs(0, 10), partition=0)
    wanted = json.dumps({topic: offsets})
    with pytest.raises(error, match=words):
        stream({"subscribe": topic, "startingOffsets": wanted}).all()


def test_offsets_that_are_not_there_are_the_nearest_on_request(
    broker: Broker, topic: str, stream: Streams
) -> None:
    broker.send(topic, pairs(0, 10), partition=0)
    options = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 99, "1": 0}})}
    query = stream({**options, **GO_ON})
    assert query.all() == []
    broker.send(topic, pairs(10, 11), partition=0)
    assert values(query.all()) == texts(10, 11)


def send_at(broker: Broker, topic: str, timestamps_ms: list[int]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for timestamp_ms in timestamps_ms:
        producer.produce(topic, b"%05d" % timestamp_ms, partition=0, timestamp=timestamp_ms)
        assert producer.flush(WITHIN_S) == 0


def test_timestamps_are_begun_at(broker: Broker, single: str, stream: Streams) -> None:
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    send_at(broker, single, [now_ms - 300, now_ms - 200, now_ms - 100])
    expected = [str(now_ms - 200), str(now_ms - 100)]
    options = {"subscribe": single, "startingTimestamp": str(now_ms - 250)}
    assert values(stream(options).all()) == expected
    by_partition = json.dumps({single: {"0": now_ms - 200}})
    options = {"subscribe": single, "startingOffsetsByTimestamp": by_partition}
    assert values(stream(options).all()) == expected
    options = {"subscribe": single, "startingTimestamp": str(now_ms)}
    with pytest.raises(DataLossError, match=f"no record at or after {now_ms}"):
        stream(options).all()
    query = stream({**options, "startingOffsetsByTimestampStrategy": "latest"})
    assert query.all() == []
    broker.send(single, pairs(0, 1))
    assert values(query.all()) == texts(0, 1)


# --- what is chosen -----------------------------------------------------------------------------


def test_assigned_partitions_alone_are_read(broker: Broker, topic: str, stream: Streams) -> None:
    for number in (0, 1):
        broker.send(topic, pairs(number * 10, number * 10 + 10), partition=number)
    options = {"assign": json.dumps({topic: [1]}), **EARLIEST}
    query = stream(options)
    assert values(query.all()) == texts(10, 20)
    broker.send(topic, pairs(20, 21), partition=0)
    add_partitions(broker, topic, 3)
    broker.send(topic, pairs(21, 22), partition=2)
    assert query.batch() is None


def test_what_does_not_exist_is_named_at_once(broker: Broker, topic: str, stream: Streams) -> None:
    with pytest.raises(UnknownTopicError, match=f"x' does not exist at .*did you mean {topic}"):
        stream({"subscribe": f"{topic},{topic}x"}).all()
    with pytest.raises(UnknownTopicError, match="has no partition 2"):
        stream({"assign": json.dumps({topic: [0, 2]})}).all()


def test_a_pattern_takes_in_topics_that_appear(broker: Broker, stream: Streams) -> None:
    prefix = f"pattern-{uuid.uuid4().hex[:8]}"
    query = stream({"subscribePattern": f"{prefix}.*"})
    assert query.batch() is None
    for number in range(2):
        name = broker.topic(prefix)
        broker.send(name, pairs(number * 5, number * 5 + 5))
        assert values(query.all()) == texts(number * 5, number * 5 + 5)
    broker.topic(f"not-{prefix}")
    assert query.batch() is None


def test_a_pattern_takes_in_no_internal_topic(broker: Broker, topic: str, stream: Streams) -> None:
    admin_group = KafkaConsumer(topic, bootstrap_servers=broker.bootstrap, group_id="somebody")
    admin_group.poll(timeout_ms=2000)
    admin_group.close()
    query = stream({"subscribePattern": f"{topic}|__consumer_offsets", **EARLIEST})
    assert list(json.loads(query.start())["topics"]) == [topic]


def test_new_partitions_are_read_from_their_beginning(
    broker: Broker, single: str, stream: Streams
) -> None:
    broker.send(single, pairs(0, 5))
    query = stream({"subscribe": single})
    assert query.batch() is None
    add_partitions(broker, single, 3)
    broker.send(single, pairs(5, 8), partition=2)
    broker.send(single, pairs(8, 9), partition=0)
    assert values(query.all()) == texts(5, 9)


# --- how much -----------------------------------------------------------------------------------


def test_a_limit_holds_and_everything_comes(broker: Broker, topic: str, stream: Streams) -> None:
    broker.send(topic, pairs(0, 10), partition=0)
    broker.send(topic, pairs(10, 100), partition=1)
    query = stream({"subscribe": topic, "maxOffsetsPerTrigger": "30", **EARLIEST})
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(30)
    sizes, found = [], []
    while (rows := query.batch()) is not None:
        sizes.append(len(rows))
        found += rows
    assert sizes == [30, 30, 30, 10]
    assert values(found) == texts(0, 100)


def test_all_that_is_available_means_all(broker: Broker, topic: str, stream: Streams) -> None:
    broker.send(topic, pairs(0, 100))
    query = stream({"subscribe": topic, "maxOffsetsPerTrigger": "30", **EARLIEST})
    assert len(query.batch(ReadAllAvailable()) or []) == 100


def test_a_batch_waits_for_enough_or_for_its_time(
    broker: Broker, single: str, stream: Streams
) -> None:
    clock = ManualClock()
    options = {"subscribe": single, "minOffsetsPerTrigger": "5", "maxTriggerDelay": "1m"}
    query = stream({**options, **EARLIEST}, clock=clock)
    assert query.reader.getDefaultReadLimit() == ReadMinRows(5)
    broker.send(single, pairs(0, 2))
    assert values(query.batch()) == texts(0, 2)  # the first does not wait
    broker.send(single, pairs(2, 6))
    assert query.batch() is None
    broker.send(single, pairs(6, 7))
    assert values(query.batch()) == texts(2, 7)
    broker.send(single, pairs(7, 8))
    clock.advance(59_999)
    assert query.batch() is None
    clock.advance(1)
    assert values(query.batch()) == texts(7, 8)


@pytest.mark.parametrize("option", ["minPartitions", "maxRecordsPerPartition"])
def test_ranges_are_cut_into_more_tasks(
    broker: Broker, topic: str, option: str, stream: Streams
) -> None:
    broker.send(topic, pairs(0, 100))
    query = stream({"subscribe": topic, option: "10", **EARLIEST})
    start = query.start()
    assert values(query.all()) == texts(0, 100)
    (end,) = query.ends
    assert len(query.reader.partitions(json.loads(start), json.loads(end))) >= 10


def test_available_now_ends_where_it_began(broker: Broker, topic: str, stream: Streams) -> None:
    broker.send(topic, pairs(0, 20), partition=0)
    query = stream({"subscribe": topic, "maxOffsetsPerTrigger": "8", **EARLIEST})
    query.reader.prepareForTriggerAvailableNow()
    assert len(query.batch() or []) == 8
    broker.send(topic, pairs(20, 40), partition=0)
    broker.send(topic, pairs(40, 41), partition=1)
    add_partitions(broker, topic, 3)
    broker.send(topic, pairs(41, 42), partition=2)
    assert len(query.all()) == 12
    later = stream({"subscribe": topic}, checkpoint=query)
    later.reader.prepareForTriggerAvailableNow()
    assert values(later.all()) == texts(20, 42)


def test_available_now_does_not_wait_for_enough(
    broker: Broker, single: str, stream: Streams
) -> None:
    query = stream({"subscribe": single, "minOffsetsPerTrigger": "5"})
    broker.send(single, pairs(0, 3))
    query.batch()
    broker.send(single, pairs(3, 5))
    query.reader.prepareForTriggerAvailableNow()
    assert values(query.batch()) == texts(3, 5)


def test_the_end_of_the_topics_is_reported(broker: Broker, single: str, stream: Streams) -> None:
    broker.send(single, pairs(0, 7))
    query = stream({"subscribe": single, "maxOffsetsPerTrigger": "2", **EARLIEST})
    assert query.reader.reportLatestOffset() is None
    query.batch()
    reported = query.reader.reportLatestOffset()
    assert reported is not None
    assert reported["topics"][single]["partitions"] == {"0": 7}


# --- transactions -------------------------------------------------------------------------------


def test_aborted_records_are_unseen_unless_asked_for(
    broker: Broker, single: str, stream: Streams
) -> None:
    broker.send(single, pairs(0, 5))
    broker.send_aborted(single, pairs(5, 10))
    broker.send(single, pairs(10, 15))
    options = {"subscribe": single, **EARLIEST}
    query = stream(options)
    assert values(query.all()) == texts(0, 5) + texts(10, 15)
    assert query.batch() is None
    for more in ({"isolation": "read_uncommitted"}, {"kafka.isolation.level": "read_uncommitted"}):
        assert values(stream({**options, **more}).all()) == texts(0, 15)


def test_an_open_transaction_holds_up_what_is_behind_it(
    broker: Broker, single: str, transaction: Transaction, stream: Streams
) -> None:
    query = stream({"subscribe": single, **EARLIEST})
    broker.send(single, pairs(0, 3))
    transaction.send(single, pairs(3, 6))
    broker.send(single, pairs(6, 9))
    assert values(query.batch()) == texts(0, 3)
    assert query.batch() is None
    transaction.producer.commit_transaction(WITHIN_S)
    found: list[str] = []
    while len(found) < 6:  # Apache Kafka tells the partitions after it has told the producer
        found += values(query.all())
    assert found == texts(3, 9)


# --- what is lost -------------------------------------------------------------------------------


def test_records_that_fell_off_are_an_error(broker: Broker, single: str, stream: Streams) -> None:
    broker.send(single, pairs(0, 5))
    query = stream({"subscribe": single, **EARLIEST})
    query.all()
    broker.send(single, pairs(5, 20))
    remove_before(broker, single, 10)
    with pytest.raises(DataLossError, match="records 5 to 9 were removed before") as caught:
        query.batch()
    assert any("failOnDataLoss" in note for note in caught.value.__notes__)


def test_records_that_fell_off_are_left_out_on_request(
    broker: Broker, single: str, caplog: pytest.LogCaptureFixture, stream: Streams
) -> None:
    broker.send(single, pairs(0, 5))
    query = stream({"subscribe": single, **EARLIEST, **GO_ON})
    query.all()
    broker.send(single, pairs(5, 20))
    remove_before(broker, single, 10)
    with caplog.at_level(logging.WARNING):
        assert values(query.all()) == texts(10, 20)
    assert "records 5 to 9 were removed" in caplog.text


@pytest.mark.parametrize("go_on", [False, True])
def test_records_may_fall_off_between_plan_and_task(
    broker: Broker, single: str, go_on: bool, caplog: pytest.LogCaptureFixture, stream: Streams
) -> None:
    broker.send(single, pairs(0, 20))
    query = stream({"subscribe": single, **EARLIEST, **(GO_ON if go_on else {})})
    start = query.start()
    end = json.dumps(query.reader.latestOffset(json.loads(start), ReadAllAvailable()))
    remove_before(broker, single, 15)
    if go_on:
        assert values(query.rows(start, end)) == texts(15, 20)
        assert "records 0 to 14 were removed" in caplog.text
    else:
        with pytest.raises(DataLossError, match="records 0 to 14 were removed"):
            query.rows(start, end)


def test_a_recreated_topic_is_an_error(broker: Broker, single: str, stream: Streams) -> None:
    broker.send(single, pairs(0, 5))
    query = stream({"subscribe": single, **EARLIEST})
    query.all()
    recreate(broker, single)
    broker.send(single, pairs(5, 15))
    with pytest.raises(TopicRecreatedError, match="is not the one that the checkpoint knows"):
        query.batch()


def test_a_recreated_topic_is_read_from_its_beginning_on_request(
    broker: Broker, single: str, caplog: pytest.LogCaptureFixture, stream: Streams
) -> None:
    broker.send(single, pairs(0, 5))
    query = stream({"subscribe": single, **EARLIEST, **GO_ON})
    query.all()
    recreate(broker, single)
    broker.send(single, pairs(5, 15))
    assert values(query.all()) == texts(5, 15)
    assert "is not the one that the checkpoint knows" in caplog.text


def test_a_topic_recreated_between_plan_and_task_never_gives_its_records(
    broker: Broker, single: str, stream: Streams
) -> None:
    broker.send(single, pairs(0, 5))
    options = {"subscribe": single, "kafka.request.timeout.ms": "5000", **EARLIEST}
    query = stream(options)
    start = query.start()
    end = json.dumps(query.reader.latestOffset(json.loads(start), ReadAllAvailable()))
    recreate(broker, single)
    broker.send(single, pairs(5, 15))
    with pytest.raises(TopicRecreatedError, match="records 0 to 4 cannot be read any more"):
        query.rows(start, end)
    lenient = stream({**options, **GO_ON})
    assert lenient.rows(start, end) == []


def test_a_deleted_topic_is_an_error_or_left_out(
    broker: Broker, single: str, topic: str, stream: Streams
) -> None:
    broker.send(single, pairs(0, 5))
    both = {"subscribe": f"{single},{topic}", **EARLIEST}
    strict = stream(both)
    strict.all()
    lenient = stream({**both, **GO_ON}, checkpoint=strict)
    broker.delete(single)
    with pytest.raises(DataLossError, match="does not exist any more"):
        strict.batch()
    broker.send(topic, pairs(5, 9))
    assert values(lenient.all()) == texts(5, 9)


def test_a_checkpoint_of_another_source_is_named(
    broker: Broker, single: str, stream: Streams
) -> None:
    query = stream({"subscribe": single})
    query.ends = [json.dumps({single: {"0": 3}})]
    with pytest.raises(CheckpointError, match="not those of this source"):
        query.batch()


# --- the group ----------------------------------------------------------------------------------


def committed(broker: Broker, group: str) -> dict[int, int]:
    """Ask kafka-python for what a group has committed."""
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        found = admin.list_group_offsets({group: None})[group]
        return {place.partition: each.offset for place, each in found.items()}
    finally:
        admin.close()


def test_the_lag_of_the_group_reaches_zero(broker: Broker, topic: str, stream: Streams) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    broker.send(topic, pairs(0, 100))
    broker.send_aborted(topic, pairs(100, 110))
    query = stream({"subscribe": topic, "kafka.group.id": group, **EARLIEST})
    query.all()
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group)
    try:
        places = [KafkaPartition(topic, number) for number in range(2)]
        ends = consumer.end_offsets(places)
        assert sum(ends.values()) > 110
        assert {place: ends[place] - consumer.committed(place) for place in places} == (
            dict.fromkeys(places, 0)
        )
    finally:
        consumer.close()


def test_a_query_has_a_group_of_its_own_that_its_checkpoint_keeps(
    broker: Broker, single: str, stream: Streams
) -> None:
    broker.send(single, pairs(0, 5))
    options = {"subscribe": single, "groupIdPrefix": "mirror", **EARLIEST}
    query = stream(options)
    query.all()
    group = json.loads(query.ends[0])["group"]
    assert group.startswith("mirror-")
    assert committed(broker, group) == {0: 5}
    broker.send(single, pairs(5, 9))
    stream(options, checkpoint=query).all()
    assert committed(broker, group) == {0: 9}


def test_the_start_of_a_batch_shows_that_the_one_before_is_done(
    broker: Broker, single: str, stream: Streams
) -> None:
    """Spark commits a batch only when it plans the next, which may be never."""
    query = stream({"subscribe": single, **EARLIEST})
    broker.send(single, pairs(0, 5))
    start = query.start()
    end = query.reader.latestOffset(json.loads(start), ReadAllAvailable())
    assert committed(broker, end["group"]) == {0: 0}
    assert query.reader.latestOffset(end, ReadAllAvailable()) == end
    assert committed(broker, end["group"]) == {0: 5}


def test_a_group_that_has_members_is_named_and_the_query_goes_on(
    broker: Broker, single: str, caplog: pytest.LogCaptureFixture, stream: Streams
) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    member = KafkaConsumer(single, bootstrap_servers=broker.bootstrap, group_id=group)
    try:
        while not member.assignment():
            member.poll(timeout_ms=200)
        broker.send(single, pairs(0, 5))
        query = stream({"subscribe": single, "kafka.group.id": group, **EARLIEST})
        assert values(query.all()) == texts(0, 5)
        query.reader.stop()
    finally:
        member.close()
    (told,) = [each.message for each in caplog.records if group in each.message]
    assert "the group has members of its own" in told
