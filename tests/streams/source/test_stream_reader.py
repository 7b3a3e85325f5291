"""The streaming reader as Spark asks it, against both brokers, without a JVM."""

import json
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from headwater.base.record.records import Record, build_batch
from headwater.cli import dlq_progress
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.transactor import Transactor
from headwater.delivery.wire.kafka import messages
from headwater.streams.errors import (
    DataLossError,
    OptionError,
    UnknownTopicError,
)
from headwater.streams.running import progress
from headwater.streams.sink.marker import MARKER_TOPIC
from headwater.streams.time.records import TIME_TOPIC
from headwater.testing.broker import EmbeddedBroker
from headwater.testing.manual_clock import ManualClock
from tests.delivery.client.transactional import wait_until_stable
from tests.streams.brokers import HEADWATER, Broker
from tests.streams.source.driving import (
    EARLIEST,
    GO_ON,
    WITHIN_S,
    Query,
    Streams,
    add_partitions,
    pairs,
    texts,
    values,
)


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


OWN_TOPICS = (MARKER_TOPIC, TIME_TOPIC, progress.TOPIC, dlq_progress.TOPIC)


def test_a_pattern_takes_in_no_topic_of_headwaters_own() -> None:
    with EmbeddedBroker() as fresh:
        broker = Broker(HEADWATER, fresh.bootstrap_servers)
        for name in ("orders", *OWN_TOPICS):
            broker.create(name)
            broker.send(name, pairs(0, 2))
        by_pattern = Query(broker, {"subscribePattern": ".*", **EARLIEST})
        by_name = Query(broker, {"subscribe": MARKER_TOPIC, **EARLIEST})

        try:
            assert values(by_pattern.all()) == texts(0, 2)
            assert values(by_name.all()) == texts(0, 2)
            assert list(json.loads(by_pattern.start())["topics"]) == ["orders"]
        finally:
            by_pattern.reader.stop()
            by_name.reader.stop()


def test_a_checkpoint_that_has_read_topics_of_headwaters_own_goes_on_without_them(
    broker: Broker, topic: str, stream: Streams
) -> None:
    broker.send(topic, pairs(0, 5))
    query = stream({"subscribePattern": f"{topic}|__hw_.*", **EARLIEST})
    query.all()
    kept = json.loads(query.ends[-1])
    kept["topics"]["__hw_gone"] = {"id": "", "partitions": {"0": 17}}
    query.ends.append(json.dumps(kept))
    broker.send(topic, pairs(5, 7))

    assert values(query.all()) == texts(5, 7)
    assert list(json.loads(query.ends[-1])["topics"]) == [topic]


def test_offsets_say_whether_topics_were_chosen_by_a_pattern(
    broker: Broker, topic: str, stream: Streams
) -> None:
    by_pattern = stream({"subscribePattern": topic, **EARLIEST})
    by_name = stream({"subscribe": topic, **EARLIEST})
    for number in range(2):
        broker.send(topic, pairs(number * 5, number * 5 + 5))
        for query in (by_pattern, by_name):
            assert values(query.all()) == texts(number * 5, number * 5 + 5)

        assert json.loads(by_pattern.ends[-1])["pattern"] == topic
        assert "pattern" not in json.loads(by_name.ends[-1])


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


def test_a_transaction_over_two_topics_may_come_in_two_batches_and_comes_once(
    broker: Broker, single: str, topic: str, stream: Streams
) -> None:
    """Its end is written to one partition after the other, and a batch may be cut in between."""
    query = stream({"subscribe": f"{single},{topic}", **EARLIEST})
    with Cluster(broker.bootstrap) as cluster:
        writer = Transactor(cluster, uuid.uuid4().hex)
        producer = writer.begin()
        now_ms = time.time_ns() // 1_000_000
        for place in ((single, 0), (topic, 0)):
            writer.send({place: [bytes(build_batch([Record(0, now_ms, None, place[0].encode())]))]})
        assert query.all() == []
        write = messages.WriteTxnMarkersRequest
        marker = write.WritableTxnMarker(
            *producer,
            transaction_result=True,
            topics=[write.WritableTxnMarkerTopic(single, [0])],
            coordinator_epoch=0,
        )
        cluster.broker(cluster.leader(single, 0)).call(write([marker]))
        assert [row["value"] for row in query.all()] == [single.encode()]

        writer.commit()
        wait_until_stable(cluster, topic, 2)

    assert [row["value"] for row in query.all()] == [topic.encode()]


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
