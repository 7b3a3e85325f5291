"""The producer: what it sends, and what it sends again."""

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer as ForeignConsumer
from confluent_kafka import TopicPartition

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.record.batch import BatchHeader, parse_header
from headwater.base.record.codecs import Codec
from headwater.base.schema import Message
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.errors import BrokerUnreachableError
from headwater.delivery.client.producer import Delivered, Producer
from headwater.delivery.wire.kafka import messages
from tests.delivery.client.scripted_broker import ScriptedBroker, one_node

PRODUCE, METADATA, INIT_PRODUCER_ID = 0, 3, 22


def read_all(bootstrap: str, topic: str, partitions: int) -> list[tuple[int, bytes | None]]:
    """Read a topic with librdkafka: partition and value of every record."""
    consumer = ForeignConsumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    try:
        places = [TopicPartition(topic, number, 0) for number in range(partitions)]
        ends = [consumer.get_watermark_offsets(place, timeout=30)[1] for place in places]
        consumer.assign(places)
        found: list[tuple[int, bytes | None]] = []
        while (left := sum(ends) - len(found)) > 0:
            found += [
                (message.partition() or 0, message.value())
                for message in consumer.consume(min(left, 10_000), timeout=30)
            ]
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_records_arrive_in_order(
    cluster: Cluster, bootstrap: str, name: str, codec: Codec, acks: int
) -> None:
    admin.create_topic(cluster, name)
    producer = Producer(cluster, acks=acks, codec=codec)
    for round_number in range(3):
        for number in range(100):
            producer.send(name, b"%d-%d" % (round_number, number))
        producer.flush()
    expected = [b"%d-%d" % (each, number) for each in range(3) for number in range(100)]
    # Without an acknowledgement the last batch may still be on its way.
    place = (name, 0)
    while admin.list_offsets(cluster, {place: admin.LATEST})[place] < 300:
        pass
    assert [value for _, value in read_all(bootstrap, name, 1)] == expected


def test_flush_tells_where_batches_went(cluster: Cluster, name: str) -> None:
    admin.create_topic(cluster, name, partitions=2)
    producer = Producer(cluster)
    for number in range(5):
        producer.send(name, b"x", partition=1)
        if number % 2:
            producer.send(name, b"x", partition=0)
    assert sorted(producer.flush()) == [Delivered(name, 0, 0, 2), Delivered(name, 1, 0, 5)]
    producer.send(name, b"x", partition=1)
    assert producer.flush() == [Delivered(name, 1, 5, 1)]
    assert producer.flush() == []


def test_what_was_taken_beside_a_refused_batch_is_known(cluster: Cluster, name: str) -> None:
    admin.create_topic(cluster, name, partitions=3, configs={"max.message.bytes": "2000"})
    producer = Producer(cluster)
    for partition in range(3):
        producer.send(name, b"all are ready", partition=partition)
    producer.flush()
    for partition, size in ((0, 10), (1, 5_000), (2, 10)):
        producer.send(name, bytes(size), partition=partition)
    with pytest.raises(KafkaError) as refused:
        producer.flush()
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert sorted(producer.take_delivered()) == [Delivered(name, 0, 1, 1), Delivered(name, 2, 1, 1)]
    assert producer.take_delivered() == []
    producer.send(name, b"next", partition=0)
    assert producer.flush() == [Delivered(name, 0, 2, 1)]


def test_a_with_block_sends_the_rest(cluster: Cluster, bootstrap: str, name: str) -> None:
    admin.create_topic(cluster, name)
    with Producer(cluster) as producer:
        producer.send(name, b"kept")
    with suppress(ZeroDivisionError), Producer(cluster) as producer:
        producer.send(name, b"not sent")
        _ = 1 / 0
    assert read_all(bootstrap, name, 1) == [(0, b"kept")]


def test_more_than_fits_into_one_batch(cluster: Cluster, bootstrap: str, name: str) -> None:
    """20 MB: batches stay below the broker's limit, and memory is freed on the way."""
    admin.create_topic(cluster, name, partitions=3)
    with Producer(cluster) as producer:
        for number in range(20_000):
            producer.send(name, b"%05d" % number + bytes(1000), key=b"%d" % number)
    found = read_all(bootstrap, name, 3)
    assert sorted(value[:5] for _, value in found if value) == [b"%05d" % n for n in range(20_000)]


def test_keyless_records_use_all_partitions_in_the_long_run(
    cluster: Cluster, bootstrap: str, name: str
) -> None:
    admin.create_topic(cluster, name, partitions=4)
    producer = Producer(cluster)
    for number in range(40):
        producer.send(name, b"%d" % number)
        if number % 2:
            producer.flush()
    shares = Counter(partition for partition, _ in read_all(bootstrap, name, 4))
    assert len(shares) == 4
    assert max(shares.values()) == min(shares.values()) == 10


def test_a_refused_batch_does_not_stop_those_after_it(
    cluster: Cluster, bootstrap: str, name: str
) -> None:
    admin.create_topic(cluster, name, configs={"max.message.bytes": "1000"})
    producer = Producer(cluster)
    producer.send(name, b"first")
    producer.flush()
    producer.send(name, bytes(5000))
    with pytest.raises(KafkaError) as refused:
        producer.flush()
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    producer.send(name, b"second")
    producer.flush()
    assert [value for _, value in read_all(bootstrap, name, 1)] == [b"first", b"second"]


def test_an_unknown_topic_is_refused_or_created(
    cluster: Cluster, bootstrap: str, name: str
) -> None:
    with pytest.raises(KafkaError, match="does not exist"):
        Producer(cluster).send(name, b"x")
    with Producer(cluster, create_topics=True) as producer:
        producer.send(name, b"x")
    assert len(read_all(bootstrap, name, len(cluster.topic(name).partitions))) == 1


# --- when answers get lost ----------------------------------------------------------------------


class Script:
    """One topic with one partition; each batch is answered with the next of the given answers."""

    def __init__(self, *answers: ErrorCode | None) -> None:
        self.answers = list(answers)
        self.batches: list[BatchHeader] = []
        self.broker = ScriptedBroker(self.answer)
        self.producer_ids = 0

    def answer(self, key: int, version: int, request: Any) -> Message | None:  # noqa: ANN401
        if key == METADATA:
            return one_node(self.broker.port, "t")
        if key == INIT_PRODUCER_ID:
            self.producer_ids += 1
            return messages.InitProducerIdResponse(
                producer_id=100 + self.producer_ids, producer_epoch=0
            )
        assert key == PRODUCE
        self.batches.append(parse_header(bytes(request.topic_data[0].partition_data[0].records)))
        code = self.answers.pop(0)
        if code is None:
            return None
        response = messages.ProduceResponse
        partition = response.PartitionProduceResponse(index=0, error_code=code, base_offset=7)
        topic = response.TopicProduceResponse(name="t", partition_responses=[partition])
        return response(responses=[topic])


OK = ErrorCode.NONE


def test_a_lost_answer_is_followed_by_the_same_batch() -> None:
    script = Script(None, ErrorCode.NOT_LEADER_OR_FOLLOWER, OK, OK)
    with script.broker, Cluster(script.broker.address) as cluster:
        producer = Producer(cluster)
        producer.send("t", b"a")
        producer.send("t", b"b")
        assert producer.flush() == [Delivered("t", 0, 7, 2)]
        producer.send("t", b"c")
        producer.flush()
    first, again, third, after = script.batches
    assert first == again == third
    assert (first.producer_id, first.base_sequence) == (101, 0)
    assert after.base_sequence == 2


def test_a_batch_that_was_there_already_counts_as_written() -> None:
    script = Script(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    with script.broker, Cluster(script.broker.address) as cluster:
        producer = Producer(cluster)
        producer.send("t", b"a")
        assert producer.flush() == [Delivered("t", 0, 7, 1)]


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD])
def test_after_a_refusal_numbers_begin_anew(code: ErrorCode) -> None:
    script = Script(OK, code, OK)
    with script.broker, Cluster(script.broker.address) as cluster:
        producer = Producer(cluster)
        for value in (b"a", b"b", b"c"):
            producer.send("t", value)
            if value == b"b":
                with pytest.raises(KafkaError):
                    producer.flush()
            else:
                producer.flush()
    assert [(batch.producer_id, batch.base_sequence) for batch in script.batches] == [
        (101, 0),
        (101, 1),
        (102, 0),
    ]


def test_it_gives_up_at_the_time_out() -> None:
    script = Script(*[ErrorCode.NOT_LEADER_OR_FOLLOWER] * 100)
    with script.broker, Cluster(script.broker.address, timeout_s=0.3) as cluster:
        producer = Producer(cluster)
        producer.send("t", b"a")
        with pytest.raises(KafkaError) as failed:
            producer.flush()
        assert failed.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(script.batches) > 1


def test_a_broker_that_stays_away() -> None:
    script = Script()
    with Cluster(script.broker.address, timeout_s=0.3) as cluster:
        with script.broker:
            producer = Producer(cluster, acks=1)
            producer.send("t", b"a")
        with pytest.raises(BrokerUnreachableError):
            producer.flush()
