"""Produce, v3-13: what is appended, what is refused, and with which words.

Sequence numbers have a file of their own, `test_idempotence`.
"""

import struct
from collections.abc import Callable

import pytest

from headwater.base.errors import ErrorCode
from headwater.base.record.batch import (
    ATTRIBUTES_POS,
    DELETE_HORIZON_MASK,
    LENGTH_POS,
    parse_header,
    write_crc,
)
from headwater.base.record.codecs import Codec
from headwater.base.record.records import Record, build_batch
from headwater.delivery.client.errors import BrokerTimeoutError
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import (
    Subject,
    Talk,
    Topic,
    batch_of,
    code,
    create_topic,
    fetch,
    missing_topic,
    now_ms,
    offsets_of,
    produce,
    produce_request,
    records_of,
    wait_until_ready,
)

VERSIONS = (3, 7, 8, 9, 12, 13)
HOUR_MS = 3_600_000

# Where the fields of a batch lie that tests spoil; the rest are the record room's constants.
MAGIC_AT = 16
CRC_AT = 17
LAST_OFFSET_DELTA_AT = 23
COUNT_AT = 57
FIRST_RECORD_AT = 61


def spoil(layout: str, position: int, value: int, *, crc: bool = True) -> bytearray:
    """Build a batch of two records, write a wrong value into it, and make it look right again."""
    batch = batch_of(b"a", b"b")
    struct.pack_into(layout, batch, position, value)
    if crc:
        write_crc(batch, 0, len(batch))
    return batch


def batch_of_many(count: int) -> bytearray:
    """Build a batch of the smallest records that there are, packed."""
    return build_batch([Record(0, now_ms(), None, None)] * count, codec=Codec.ZSTD)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_appends_and_tells_where(talk: Talk, topic: Topic, version: int) -> None:
    first = produce(talk, topic, batch_of(b"a", b"b"), version=version)
    second = produce(talk, topic, batch_of(b"c"), version=version)

    assert [code(first), first.base_offset] == [ErrorCode.NONE, 0]
    assert [code(second), second.base_offset] == [ErrorCode.NONE, 2]
    # The log start is told since v5, record errors and a message since v8.
    assert first.log_start_offset == (0 if version >= 5 else -1)
    assert first.log_append_time_ms == -1
    assert (first.record_errors, first.error_message) == ([], None)
    assert (first.current_leader.leader_id, first.current_leader.leader_epoch) == (-1, -1)


@pytest.mark.parametrize("acks", [-1, 1])
def test_acks_that_are_answered(talk: Talk, topic: Topic, acks: int) -> None:
    assert produce(talk, topic, batch_of(b"a"), acks=acks).base_offset == 0


def test_acks_0_has_no_answer(talk: Talk, topic: Topic) -> None:
    talk.tell(produce_request(topic, {0: batch_of(b"a")}, acks=0), 9)
    talk.expect_no_answer()

    # The next answer belongs to the next request, and the batch was appended before.
    assert produce(talk, topic, batch_of(b"b")).base_offset == 1


def test_acks_0_and_an_error_closes_the_connection(talk: Talk, topic: Topic) -> None:
    talk.tell(produce_request(topic, {7: batch_of(b"a")}, acks=0), 9)

    talk.assert_closed()


@pytest.mark.parametrize("acks", [-2, 2, 100])
def test_other_acks_are_refused(talk: Talk, topic: Topic, acks: int) -> None:
    answer = produce(talk, topic, batch_of(b"a"), acks=acks)

    assert [code(answer), answer.base_offset] == [ErrorCode.INVALID_REQUIRED_ACKS, -1]
    assert answer.error_message is None


def test_a_missing_topic_is_told_before_bad_acks(talk: Talk) -> None:
    answer = produce(talk, missing_topic(), batch_of(b"a"), acks=5)

    assert code(answer) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", VERSIONS)
def test_missing_topics_and_partitions(talk: Talk, topic: Topic, version: int) -> None:
    by_id = version >= 13
    no_topic = produce(talk, missing_topic(), batch_of(b"a"), version=version)
    no_partition = produce(talk, topic, batch_of(b"a"), version=version, partition=7)
    negative = produce(talk, topic, batch_of(b"a"), version=version, partition=-1)

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(no_topic) is (ErrorCode.UNKNOWN_TOPIC_ID if by_id else unknown)
    assert code(no_partition) is unknown
    assert code(negative) is unknown
    for answer in (no_topic, no_partition, negative):
        assert (answer.base_offset, answer.log_start_offset) == (-1, -1)
        assert answer.error_message is None


@pytest.mark.parametrize("name", ["", "a b", "..", "x" * 300])
def test_illegal_names_are_merely_unknown(talk: Talk, topic: Topic, name: str) -> None:
    answer = produce(talk, Topic(name, topic.topic_id), batch_of(b"a"), version=12)

    assert code(answer) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_null_topic_id_is_unknown(talk: Talk) -> None:
    answer = produce(talk, Topic("ignored", bytes(16)), batch_of(b"a"), version=13)

    assert code(answer) is ErrorCode.UNKNOWN_TOPIC_ID


def test_an_empty_request_is_answered(talk: Talk) -> None:
    answer = talk.ask(messages.ProduceRequest(acks=-1, timeout_ms=1_000), 9)

    assert (answer.responses, answer.throttle_time_ms) == ([], 0)


def test_every_partition_has_its_own_fate(talk: Talk) -> None:
    good, other, missing = create_topic(talk, partitions=2), create_topic(talk), missing_topic()
    request = produce_request(good, {1: batch_of(b"a"), 0: batch_of(b"b", b"c"), 5: batch_of(b"d")})
    request.topic_data += produce_request(missing, {0: batch_of(b"a")}).topic_data
    request.topic_data += produce_request(other, {0: spoil(">I", CRC_AT, 1, crc=False)}).topic_data

    answer = talk.ask(request, 9)

    # In which order answers come is not part of the contract.
    assert {
        (topic.name, partition.index): (code(partition), partition.base_offset)
        for topic in answer.responses
        for partition in topic.partition_responses
    } == {
        (good.name, 0): (ErrorCode.NONE, 0),
        (good.name, 1): (ErrorCode.NONE, 0),
        (good.name, 5): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (missing.name, 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (other.name, 0): (ErrorCode.CORRUPT_MESSAGE, -1),
    }


def test_a_partition_named_twice(broker: Subject, talk: Talk, topic: Topic) -> None:
    request = produce_request(topic, {0: batch_of(b"a")})
    request.topic_data[0].partition_data += [
        messages.ProduceRequest.PartitionProduceData(0, batch_of(b"b"))
    ]

    (answer,) = talk.ask(request, 9).responses

    offsets = [partition.base_offset for partition in answer.partition_responses]
    assert offsets == broker.expected("produce to a partition twice in a request")


REFUSED: dict[str, tuple[Callable[[], bytes | bytearray], ErrorCode]] = {
    "no bytes": (lambda: b"", ErrorCode.INVALID_RECORD),
    "less than a length": (lambda: bytes(11), ErrorCode.INVALID_RECORD),
    "zeros": (lambda: bytes(30), ErrorCode.CORRUPT_MESSAGE),
    "a header cut short": (lambda: batch_of(b"a")[:60], ErrorCode.INVALID_RECORD),
    "a batch cut short": (lambda: batch_of(b"a")[:70], ErrorCode.INVALID_RECORD),
    "two batches": (lambda: batch_of(b"a") + batch_of(b"b"), ErrorCode.INVALID_RECORD),
    "length too small": (lambda: spoil(">i", LENGTH_POS, 10), ErrorCode.CORRUPT_MESSAGE),
    "length below a header": (lambda: spoil(">i", LENGTH_POS, 48), ErrorCode.CORRUPT_MESSAGE),
    "length negative": (lambda: spoil(">i", LENGTH_POS, -5), ErrorCode.CORRUPT_MESSAGE),
    "length beyond the bytes": (lambda: spoil(">i", LENGTH_POS, 10**5), ErrorCode.INVALID_RECORD),
    "magic 0": (lambda: spoil(">b", MAGIC_AT, 0), ErrorCode.INVALID_RECORD),
    "magic 1": (lambda: spoil(">b", MAGIC_AT, 1), ErrorCode.INVALID_RECORD),
    "magic 3": (lambda: spoil(">b", MAGIC_AT, 3), ErrorCode.CORRUPT_MESSAGE),
    "checksum": (lambda: spoil(">I", CRC_AT, 1, crc=False), ErrorCode.CORRUPT_MESSAGE),
    "base offset": (lambda: spoil(">q", 0, 5), ErrorCode.INVALID_RECORD),
    "count too high": (lambda: spoil(">i", COUNT_AT, 3), ErrorCode.INVALID_RECORD),
    "count too low": (lambda: spoil(">i", COUNT_AT, 1), ErrorCode.INVALID_RECORD),
    "count 0": (lambda: spoil(">i", COUNT_AT, 0), ErrorCode.INVALID_RECORD),
    "count negative": (lambda: spoil(">i", COUNT_AT, -1), ErrorCode.INVALID_RECORD),
    "delta too high": (lambda: spoil(">i", LAST_OFFSET_DELTA_AT, 2), ErrorCode.INVALID_RECORD),
    "delta too low": (lambda: spoil(">i", LAST_OFFSET_DELTA_AT, 0), ErrorCode.INVALID_RECORD),
    "control batch": (lambda: batch_of(b"a", is_control=True), ErrorCode.INVALID_RECORD),
    "producer without sequence": (
        lambda: batch_of(b"a", producer_id=77, producer_epoch=0),
        ErrorCode.INVALID_RECORD,
    ),
    "transactional": (
        lambda: batch_of(
            b"a", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
        ),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "too large": (lambda: batch_of(b"x" * 1_048_589), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("version", [3, 9, 13])
def test_batches_that_are_refused(talk: Talk, version: int) -> None:
    topic = create_topic(talk)
    for case, (make, expected) in REFUSED.items():
        answer = produce(talk, topic, make(), version=version)

        assert (case, code(answer)) == (case, expected)
        assert (answer.base_offset, answer.log_append_time_ms) == (-1, -1), case
        assert answer.record_errors == [], case

    # Nothing of all that was written, and the connection is as good as before.
    assert produce(talk, topic, batch_of(b"good"), version=version).base_offset == 0


@pytest.mark.parametrize(
    "case",
    [
        "produce an unknown compression",
        "produce an impossible length",
        "produce bytes behind a batch",
        "produce malformed records",
        "produce log append time",
        "produce a delete horizon",
        "produce more than a million records",
    ],
)
def test_batches_that_the_two_judge_differently(
    broker: Subject, talk: Talk, topic: Topic, case: str
) -> None:
    batch = {
        "produce an unknown compression": lambda: spoil(">h", ATTRIBUTES_POS, 7),
        "produce an impossible length": lambda: spoil(">i", LENGTH_POS, 2**31 - 1),
        "produce bytes behind a batch": lambda: batch_of(b"a") + bytes(5),
        "produce malformed records": lambda: spoil(">B", FIRST_RECORD_AT, 0x7F),
        "produce log append time": lambda: batch_of(b"a", timestamp_type=1),
        "produce a delete horizon": lambda: spoil(">h", ATTRIBUTES_POS, DELETE_HORIZON_MASK),
        "produce more than a million records": lambda: batch_of_many((1 << 20) + 1),
    }[case]()

    answer = produce(talk, topic, batch)

    assert code(answer) is broker.expected(case)


def test_a_partition_without_bytes(broker: Subject, topic: Topic) -> None:
    expected = broker.expected("produce null instead of a batch")
    with broker.connect() as talk:
        talk.tell(produce_request(topic, {0: None}), 9)
        if expected is None:
            with pytest.raises(BrokerTimeoutError):
                talk.receive(timeout_s=0.5)
        else:
            (answered,) = talk.receive().responses[0].partition_responses
            assert code(answered) is expected


def test_what_a_refusal_tells_besides_its_code(broker: Subject, talk: Talk, topic: Topic) -> None:
    produce(talk, topic, batch_of(b"a"))
    answer = produce(talk, topic, spoil(">i", COUNT_AT, 3))

    assert answer.log_start_offset == broker.expected("produce refusal's log start")
    assert (answer.error_message is None) is broker.expected("produce refusal without a sentence")


def test_bits_without_a_meaning_are_stored(talk: Talk, topic: Topic) -> None:
    for offset, attributes in ((0, 0x80), (2, 0x4000)):
        produce(talk, topic, spoil(">h", ATTRIBUTES_POS, attributes))
        assert parse_header(fetch(talk, topic, offset).records).attributes == attributes


def test_the_broker_stamps_offset_and_epoch_and_nothing_else(talk: Talk, topic: Topic) -> None:
    sent = batch_of(b"a", timestamp=1_000, leader_epoch=55)
    produce(talk, topic, batch_of(b"before"))
    produce(talk, topic, sent)

    stored = bytes(fetch(talk, topic, 1).records)

    header = parse_header(stored)
    assert (header.base_offset, header.leader_epoch) == (1, 0)
    assert stored[MAGIC_AT:] == bytes(sent[MAGIC_AT:])


def test_the_largest_timestamp_is_the_producers_word(
    broker: Subject, talk: Talk, topic: Topic
) -> None:
    batch = batch_of(b"a", timestamp=1_000)
    struct.pack_into(">q", batch, 35, 5)
    write_crc(batch, 0, len(batch))
    produce(talk, topic, batch)

    stored = parse_header(fetch(talk, topic, 0).records)

    assert stored.max_timestamp == broker.expected("produce a wrong largest timestamp")


# Sizes


def sized(size: int) -> bytearray:
    batch = batch_of(b"x" * (size - len(batch_of(b"x" * 100)) + 100))
    assert len(batch) == size
    return batch


def test_the_size_is_judged_as_sent(talk: Talk) -> None:
    topic = create_topic(talk, configs={"max.message.bytes": "200"})

    assert code(produce(talk, topic, sized(200))) is ErrorCode.NONE
    assert code(produce(talk, topic, sized(201))) is ErrorCode.MESSAGE_TOO_LARGE
    packed = batch_of(b"x" * 5_000, codec=Codec.GZIP)
    assert len(packed) < 200
    assert code(produce(talk, topic, packed)) is ErrorCode.NONE


def test_a_batch_larger_than_a_segment(talk: Talk) -> None:
    configs = {"segment.bytes": str(1 << 20), "max.message.bytes": str(3 << 20)}
    topic = create_topic(talk, configs=configs)

    answer = produce(talk, topic, batch_of(b"x" * ((1 << 20) + 10)))

    assert code(answer) is ErrorCode.RECORD_LIST_TOO_LARGE


# Keys


@pytest.mark.parametrize("version", [7, 8, 13])
def test_a_compacted_topic_wants_keys(talk: Talk, version: int) -> None:
    topic = create_topic(talk, configs={"cleanup.policy": "compact"})
    keys = (b"k", None, None)
    batch = build_batch([Record(0, now_ms(), key, b"v") for key in keys])

    answer = produce(talk, topic, batch, version=version)

    assert [code(answer), answer.base_offset] == [ErrorCode.INVALID_RECORD, -1]
    blamed = [error.batch_index for error in answer.record_errors]
    assert blamed == ([1, 2] if version >= 8 else [])
    for error in answer.record_errors:
        sentence = error.batch_index_error_message or ""
        assert sentence.startswith("Compacted topic cannot accept message without key")
    assert bool(answer.error_message) is (version >= 8)


def test_an_empty_key_is_a_key(talk: Talk) -> None:
    topic = create_topic(talk, configs={"cleanup.policy": "compact"})
    batch = build_batch([Record(0, now_ms(), b"", b"v")], codec=Codec.GZIP)

    assert code(produce(talk, topic, batch)) is ErrorCode.NONE


# Time


@pytest.mark.parametrize("distance_ms", [-HOUR_MS, HOUR_MS])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_timestamps_out_of_bounds(
    broker: Subject, talk: Talk, distance_ms: int, codec: Codec
) -> None:
    bounds = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
    topic = create_topic(talk, configs=dict.fromkeys(bounds, "60000"))

    answer = produce(talk, topic, batch_of(b"a", timestamp=now_ms() + distance_ms, codec=codec))

    assert [code(answer), answer.base_offset] == [ErrorCode.INVALID_TIMESTAMP, -1]
    assert answer.error_message
    blamed = [error.batch_index for error in answer.record_errors]
    assert blamed == broker.expected("produce names records with bad timestamps")


def test_a_record_far_from_the_first_and_the_last(broker: Subject, talk: Talk) -> None:
    topic = create_topic(talk, configs={"message.timestamp.before.max.ms": "60000"})
    times = (now_ms(), now_ms() - HOUR_MS)
    batch = build_batch([Record(0, timestamp, b"k", b"v") for timestamp in times])

    answer = produce(talk, topic, batch)

    assert code(answer) is broker.expected("produce a bad timestamp in the middle")


def test_three_hours_ahead_is_too_far_by_default(talk: Talk, topic: Topic) -> None:
    ahead = produce(talk, topic, batch_of(b"a", timestamp=now_ms() + 3 * HOUR_MS))
    long_ago = produce(talk, topic, batch_of(b"a", timestamp=0))
    none = produce(talk, topic, batch_of(b"a", timestamp=-1))

    assert code(ahead) is ErrorCode.INVALID_TIMESTAMP
    assert [long_ago.base_offset, none.base_offset] == [0, 1]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_log_append_time(talk: Talk, codec: Codec) -> None:
    topic = create_topic(talk, configs={"message.timestamp.type": "LogAppendTime"})
    begun_ms = now_ms()
    batch = batch_of(b"a", b"b", timestamp=5, step_ms=3, codec=codec)

    answer = produce(talk, topic, batch)

    assert begun_ms <= answer.log_append_time_ms <= now_ms()
    stored = fetch(talk, topic, 0).records
    header = parse_header(stored)
    assert header.attributes == codec | 0b1000
    assert (header.base_timestamp, header.max_timestamp) == (5, answer.log_append_time_ms)
    times = [record.timestamp for record in records_of(stored)]
    assert times == [answer.log_append_time_ms] * 2


def test_the_claim_of_log_append_time_is_refused_where_it_would_be_true(talk: Talk) -> None:
    topic = create_topic(talk, configs={"message.timestamp.type": "LogAppendTime"})

    answer = produce(talk, topic, batch_of(b"a", timestamp_type=1))

    assert code(answer) is ErrorCode.INVALID_TIMESTAMP


# Compression


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_are_kept_as_they_are(talk: Talk, topic: Topic, codec: Codec) -> None:
    sent = batch_of(b"a" * 100, b"b", codec=codec)
    produce(talk, topic, sent)

    stored = fetch(talk, topic, 0).records

    assert bytes(stored)[MAGIC_AT:] == bytes(sent)[MAGIC_AT:]
    assert offsets_of(stored) == [0, 1]


@pytest.mark.parametrize("version, expected", [(6, 76), (7, 0)])
def test_zstd_needs_produce_7(talk: Talk, topic: Topic, version: int, expected: int) -> None:
    answer = produce(talk, topic, batch_of(b"a", codec=Codec.ZSTD), version=version)

    assert code(answer) == ErrorCode(expected)


@pytest.mark.parametrize("wanted", ["gzip", "uncompressed", "zstd"])
def test_a_topic_with_a_compression_of_its_own(talk: Talk, wanted: str) -> None:
    topic = create_topic(talk, configs={"compression.type": wanted})
    batch = batch_of(b"a" * 50, b"b", timestamp=1_000, step_ms=5, codec=Codec.LZ4)
    produce(talk, topic, batch)
    produce(talk, topic, batch_of(b"c", producer_id=55, producer_epoch=1, base_sequence=7))

    first = parse_header(fetch(talk, topic, 0).records)
    second = parse_header(fetch(talk, topic, 2).records)

    assert {first.codec, second.codec} == {Codec.by_name(wanted)}
    assert (first.base_timestamp, first.max_timestamp, first.record_count) == (1_000, 1_005, 2)
    assert (second.producer_id, second.producer_epoch, second.base_sequence) == (55, 1, 7)


def test_topics_of_the_broker_itself_take_nothing_from_clients(talk: Talk) -> None:
    name = "__consumer_offsets"
    asked = messages.MetadataRequest.MetadataRequestTopic(name=name)
    talk.ask(messages.MetadataRequest(topics=[asked], allow_auto_topic_creation=True), 8)
    wait_until_ready(talk, name, 1)

    answer = produce(talk, Topic(name, bytes(16)), batch_of(b"a"), version=12)

    assert (code(answer), answer.base_offset) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)


# Versions that nobody accepts


@pytest.mark.parametrize("version", [0, 1, 2, 14, -1])
def test_versions_outside_of_what_can_be_decoded(
    broker: Subject, topic: Topic, version: int
) -> None:
    name, batch = topic.name.encode(), batch_of(b"a")
    head = struct.pack(">hhih", 0, version, 5, -1)
    body = struct.pack(">hii", 1, 1_000, 1) + struct.pack(">h", len(name)) + name
    with broker.connect() as talk:
        talk.tell_raw(head + body + struct.pack(">iii", 1, 0, len(batch)) + batch)

        talk.assert_closed()
