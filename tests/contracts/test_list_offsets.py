"""ListOffsets, v1-11: the ends of a partition, and what lies at a time."""

import pytest

from headwater.base.errors import ErrorCode
from headwater.base.record.codecs import Codec
from headwater.base.record.records import Record, build_batch
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import (
    Subject,
    Talk,
    Topic,
    batch_of,
    code,
    create_topic,
    list_offset,
    missing_topic,
    now_ms,
    produce,
)

VERSIONS = (1, 3, 4, 6, 7, 8, 9, 10, 11)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)
# The first version in which each of them has its meaning.
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
NOTHING = (-1, -1, -1)


def found(talk: Talk, topic: Topic, timestamp: int, **asked: int) -> tuple[int, int, int]:
    """Return offset, timestamp and leader epoch of an answer without an error."""
    answer = list_offset(talk, topic.name, timestamp, **asked)
    assert code(answer) is ErrorCode.NONE
    return answer.offset, answer.timestamp, answer.leader_epoch


@pytest.fixture
def timed(talk: Talk, topic: Topic) -> Topic:
    """Give a topic with records in four batches, of which the third goes back in time.

    Offsets     0    1    2 |    3    4 |    5    6 |    7    8
    Timestamps  1000 1010 1020 | 2000 2010 | 1500 1510 | 2010 2010
    """
    produce(talk, topic, batch_of(b"a", b"b", b"c", timestamp=1_000, step_ms=10))
    produce(talk, topic, batch_of(b"d", b"e", timestamp=2_000, step_ms=10, codec=Codec.GZIP))
    produce(talk, topic, batch_of(b"f", b"g", timestamp=1_500, step_ms=10))
    produce(talk, topic, batch_of(b"h", b"i", timestamp=2_010, codec=Codec.ZSTD))
    return topic


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ends(talk: Talk, timed: Topic, version: int) -> None:
    # Leader epochs are told since v4.
    epoch = 0 if version >= 4 else -1

    assert found(talk, timed, LATEST, version=version) == (9, -1, epoch)
    assert found(talk, timed, EARLIEST, version=version) == (0, -1, epoch)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_partition(talk: Talk, topic: Topic, version: int) -> None:
    epoch = 0 if version >= 4 else -1

    assert found(talk, topic, LATEST, version=version) == (0, -1, epoch)
    assert found(talk, topic, EARLIEST, version=version) == (0, -1, epoch)
    assert found(talk, topic, 0, version=version) == NOTHING
    assert found(talk, topic, 1_000, version=version) == NOTHING


@pytest.mark.parametrize("version", VERSIONS)
def test_special_timestamps_have_their_versions(talk: Talk, timed: Topic, version: int) -> None:
    expected = {
        MAX_TIMESTAMP: (4, 2_010, 0),
        EARLIEST_LOCAL: (0, -1, 0),
        LATEST_TIERED: NOTHING,
        EARLIEST_PENDING: NOTHING,
    }
    for timestamp, since in SINCE.items():
        answer = list_offset(talk, timed.name, timestamp, version=version)
        if version < since:
            assert code(answer) is ErrorCode.UNSUPPORTED_VERSION, timestamp
            assert (answer.offset, answer.timestamp, answer.leader_epoch) == NOTHING
        else:
            assert found(talk, timed, timestamp, version=version) == expected[timestamp]
    for timestamp in (-7, -100):
        answer = list_offset(talk, timed.name, timestamp, version=version)
        assert code(answer) is ErrorCode.UNSUPPORTED_VERSION


def test_special_timestamps_of_an_empty_partition(talk: Talk, topic: Topic) -> None:
    assert found(talk, topic, MAX_TIMESTAMP, version=11) == NOTHING
    assert found(talk, topic, EARLIEST_LOCAL, version=11) == (0, -1, 0)
    assert found(talk, topic, LATEST_TIERED, version=11) == NOTHING
    assert found(talk, topic, EARLIEST_PENDING, version=11) == NOTHING


@pytest.mark.parametrize("version", [1, 4, 11])
def test_the_first_record_at_or_after_a_time(talk: Talk, timed: Topic, version: int) -> None:
    expected = {
        0: (0, 1_000),
        999: (0, 1_000),
        1_000: (0, 1_000),
        1_001: (1, 1_010),
        1_010: (1, 1_010),
        1_020: (2, 1_020),
        1_021: (3, 2_000),
        1_500: (3, 2_000),
        1_999: (3, 2_000),
        2_000: (3, 2_000),
        2_005: (4, 2_010),
        2_010: (4, 2_010),
    }
    epoch = 0 if version >= 4 else -1
    for timestamp, record in expected.items():
        assert found(talk, timed, timestamp, version=version) == (*record, epoch), timestamp
    for timestamp in (2_011, 10**12):
        assert found(talk, timed, timestamp, version=version) == NOTHING


def test_read_committed_sees_the_same_without_transactions(talk: Talk, timed: Topic) -> None:
    for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, 1_001):
        committed = found(talk, timed, timestamp, isolation_level=1)
        assert committed == found(talk, timed, timestamp)


def test_below_the_log_start_nothing_is_found(talk: Talk, timed: Topic) -> None:
    partition = messages.DeleteRecordsRequest.DeleteRecordsPartition(0, 4)
    wanted = messages.DeleteRecordsRequest.DeleteRecordsTopic(timed.name, [partition])
    talk.ask(messages.DeleteRecordsRequest([wanted], 10_000), 2)

    assert found(talk, timed, EARLIEST, version=11) == (4, -1, 0)
    assert found(talk, timed, EARLIEST_LOCAL, version=11) == (4, -1, 0)
    assert found(talk, timed, LATEST, version=11) == (9, -1, 0)
    for timestamp in (MAX_TIMESTAMP, 0, 1_000, 2_000, 2_005):
        assert found(talk, timed, timestamp, version=11) == (4, 2_010, 0), timestamp


def test_disorder_inside_a_batch(talk: Talk, topic: Topic) -> None:
    times = (100, 300, 200, 300, 50)
    produce(talk, topic, build_batch([Record(0, each, b"k", b"v") for each in times]))

    assert found(talk, topic, MAX_TIMESTAMP) == (1, 300, 0)
    for timestamp, record in ((50, (0, 100)), (100, (0, 100)), (150, (1, 300)), (300, (1, 300))):
        assert found(talk, topic, timestamp) == (*record, 0)
    assert found(talk, topic, 301) == NOTHING


def test_records_without_a_time(broker: Subject, talk: Talk, topic: Topic) -> None:
    produce(talk, topic, batch_of(b"a", timestamp=-1))

    assert found(talk, topic, 0) == NOTHING
    expected = broker.expected("list offsets: the largest of no timestamps")
    assert found(talk, topic, MAX_TIMESTAMP) == expected


def test_log_append_time(talk: Talk) -> None:
    topic = create_topic(talk, configs={"message.timestamp.type": "LogAppendTime"})
    first = produce(talk, topic, batch_of(b"a", b"b", timestamp=5)).log_append_time_ms
    second = first
    while second == first:
        second = produce(talk, topic, batch_of(b"c", b"d", timestamp=5)).log_append_time_ms

    assert found(talk, topic, 5) == (0, first, 0)
    assert found(talk, topic, first) == (0, first, 0)
    largest = found(talk, topic, MAX_TIMESTAMP)
    assert largest[1] == second
    assert largest == found(talk, topic, second), "the first record of the last batch"
    assert found(talk, topic, now_ms() + 10**6) == NOTHING


@pytest.mark.parametrize("version", [4, 7, 11])
def test_the_leader_epoch(talk: Talk, timed: Topic, version: int) -> None:
    def ask(epoch: int) -> ErrorCode:
        return code(list_offset(talk, timed.name, LATEST, version=version, leader_epoch=epoch))

    assert ask(-1) is ErrorCode.NONE
    assert ask(0) is ErrorCode.NONE
    assert ask(1) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert ask(-2) is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("version", VERSIONS)
def test_what_does_not_exist(talk: Talk, topic: Topic, version: int) -> None:
    for name, partition in ((missing_topic().name, 0), (topic.name, 4), ("a b", 0), ("", 0)):
        answer = list_offset(talk, name, LATEST, version=version, partition=partition)

        assert code(answer) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (answer.offset, answer.timestamp, answer.leader_epoch) == NOTHING


@pytest.mark.parametrize("version", [1, 7, 11])
def test_a_partition_named_twice(talk: Talk, timed: Topic, version: int) -> None:
    asked = messages.ListOffsetsRequest.ListOffsetsPartition
    topic = messages.ListOffsetsRequest.ListOffsetsTopic(
        timed.name, [asked(0, -1, LATEST), asked(0, -1, EARLIEST)]
    )

    (answer,) = talk.ask(messages.ListOffsetsRequest(-1, 0, [topic]), version).topics

    codes = [code(partition) for partition in answer.partitions]
    assert codes == [ErrorCode.INVALID_REQUEST]


def test_several_partitions_and_topics(talk: Talk, timed: Topic) -> None:
    other, missing = create_topic(talk, partitions=2), missing_topic()
    produce(talk, other, batch_of(b"a"), partition=1)
    asked = messages.ListOffsetsRequest.ListOffsetsPartition
    topics = [
        messages.ListOffsetsRequest.ListOffsetsTopic(
            name, [asked(index, -1, LATEST) for index in indexes]
        )
        for name, indexes in ((timed.name, [0]), (other.name, [0, 1]), (missing.name, [0]))
    ]

    answer = talk.ask(messages.ListOffsetsRequest(-1, 0, topics), 7)

    assert {
        (topic.name, partition.partition_index): partition.offset
        for topic in answer.topics
        for partition in topic.partitions
    } == {(timed.name, 0): 9, (other.name, 0): 0, (other.name, 1): 1, (missing.name, 0): -1}


@pytest.mark.parametrize("replica_id", [5, -2])
def test_replicas_may_ask_too(talk: Talk, timed: Topic, replica_id: int) -> None:
    asked = messages.ListOffsetsRequest.ListOffsetsPartition(0, -1, LATEST)
    topic = messages.ListOffsetsRequest.ListOffsetsTopic(timed.name, [asked])

    answer = talk.ask(messages.ListOffsetsRequest(replica_id, 0, [topic]), 7)

    assert answer.topics[0].partitions[0].offset == 9


def test_an_isolation_level_that_does_not_exist(broker: Subject, talk: Talk, timed: Topic) -> None:
    answer = list_offset(talk, timed.name, LATEST, isolation_level=2)

    assert code(answer) is broker.expected("fetch at an unknown isolation level")
