"""Fetch, v4-18: which batches come, when they come, and what is said about each partition."""

import time
from typing import Any

import pytest

from headwater.base.errors import ErrorCode
from headwater.base.record.codecs import Codec
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import (
    Subject,
    Talk,
    Topic,
    batch_of,
    code,
    create_topic,
    fetch,
    fetch_request,
    missing_topic,
    offsets_of,
    produce,
)

VERSIONS = (4, 5, 7, 9, 11, 12, 13, 15, 16, 17, 18)
# Far longer than any answer takes, far shorter than a test may.
LONG_MS = 20_000
SOON_S = 10.0


@pytest.fixture
def filled(talk: Talk, topic: Topic) -> Topic:
    """Give a topic with batches of 3, 2 and 4 records, all of different sizes."""
    for count in (3, 2, 4):
        produce(talk, topic, batch_of(*[b"v" * 100] * count))
    return topic


def size_of(talk: Talk, topic: Topic, offset: int) -> int:
    """Measure the batch at an offset: the one that always comes."""
    return len(fetch(talk, topic, offset, partition_max_bytes=1).records)


def watermarks(answer: messages.FetchResponse.PartitionData) -> tuple[int, int, int]:
    return answer.high_watermark, answer.last_stable_offset, answer.log_start_offset


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_gives_the_records(talk: Talk, filled: Topic, version: int) -> None:
    answer = fetch(talk, filled, 0, version=version)

    assert code(answer) is ErrorCode.NONE
    assert offsets_of(answer.records) == list(range(9))
    # The log start is told since v5.
    assert watermarks(answer) == (9, 9, 0 if version >= 5 else -1)
    assert answer.aborted_transactions is None
    assert answer.preferred_read_replica == -1
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (-1, -1)
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (-1, -1)


def test_the_batch_that_holds_the_offset_comes_whole(talk: Talk, filled: Topic) -> None:
    for offset, first in ((0, 0), (1, 0), (2, 0), (3, 3), (4, 3), (5, 5), (8, 5)):
        assert offsets_of(fetch(talk, filled, offset).records) == list(range(first, 9))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_end_is_an_empty_success(talk: Talk, filled: Topic, version: int) -> None:
    answer = fetch(talk, filled, 9, version=version)

    assert code(answer) is ErrorCode.NONE
    assert (answer.high_watermark, bytes(answer.records)) == (9, b"")


@pytest.mark.parametrize("version", VERSIONS)
def test_beyond_the_end_and_before_the_start(talk: Talk, filled: Topic, version: int) -> None:
    for offset in (10, -1, -2, 2**40):
        answer = fetch(talk, filled, offset, version=version)

        assert code(answer) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert watermarks(answer) == (-1, -1, -1)
        assert answer.aborted_transactions is None
        assert bytes(answer.records) == b""


def test_below_a_log_start_that_was_moved(talk: Talk, filled: Topic) -> None:
    partition = messages.DeleteRecordsRequest.DeleteRecordsPartition(0, 4)
    wanted = messages.DeleteRecordsRequest.DeleteRecordsTopic(filled.name, [partition])
    talk.ask(messages.DeleteRecordsRequest([wanted], 10_000), 2)

    below, at = fetch(talk, filled, 3), fetch(talk, filled, 4)

    assert code(below) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (code(at), at.log_start_offset) == (ErrorCode.NONE, 4)
    assert offsets_of(at.records) == list(range(3, 9)), "the batch around the start comes whole"


# How much


@pytest.mark.parametrize("limit", ["partition_max_bytes", "max_bytes"])
@pytest.mark.parametrize("size", [0, 1, 100])
def test_the_first_batch_comes_however_small_the_limit(
    talk: Talk, filled: Topic, limit: str, size: int
) -> None:
    assert offsets_of(fetch(talk, filled, 0, **{limit: size}).records) == [0, 1, 2]
    assert offsets_of(fetch(talk, filled, 4, **{limit: size}).records) == [3, 4]


@pytest.mark.parametrize("limit", ["partition_max_bytes", "max_bytes"])
def test_batches_that_just_fit(talk: Talk, filled: Topic, limit: str) -> None:
    size = size_of(talk, filled, 0) + size_of(talk, filled, 3)

    assert offsets_of(fetch(talk, filled, 0, **{limit: size}).records) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("limit", ["partition_max_bytes", "max_bytes"])
def test_a_batch_that_does_not_fit(broker: Subject, talk: Talk, filled: Topic, limit: str) -> None:
    first = size_of(talk, filled, 0)

    records = fetch(talk, filled, 0, **{limit: first + 80}).records

    cut_bytes = broker.expected("fetch cuts the last batch")
    assert len(records) == first + cut_bytes


@pytest.mark.parametrize("limit", ["partition_max_bytes", "max_bytes"])
def test_a_negative_limit(broker: Subject, talk: Talk, filled: Topic, limit: str) -> None:
    assert code(fetch(talk, filled, 0, **{limit: -1})) is broker.expected("fetch less than nothing")


def sizes(answer: Any) -> list[int]:  # noqa: ANN401 - a fetch response
    return [len(part.records) for topic in answer.responses for part in topic.partitions]


def test_a_total_is_spent_in_the_order_of_the_request(talk: Talk) -> None:
    topic = create_topic(talk, partitions=3)
    for partition in range(3):
        for _ in range(3):
            produce(talk, topic, batch_of(b"v" * 1_000), partition=partition)
    one = size_of(talk, topic, 0)

    def ask(order: tuple[int, ...], **limits: int) -> list[int]:
        request = fetch_request([(topic, partition, 0) for partition in order], **limits)
        request.topics = [
            messages.FetchRequest.FetchTopic(
                topic.name, topic.topic_id, [each.partitions[0] for each in request.topics]
            )
        ]
        return sizes(talk.ask(request, 12))

    assert ask((0, 1, 2), max_bytes=1) == [one, 0, 0]
    assert ask((2, 1, 0), max_bytes=3 * one) == [3 * one, 0, 0]
    assert ask((0, 1, 2), max_bytes=4 * one) == [3 * one, one, 0]
    assert ask((0, 1, 2), max_bytes=9 * one) == [3 * one] * 3
    assert ask((0, 1, 2), partition_max_bytes=2 * one) == [2 * one] * 3
    # Only one partition of a request may give more than its limit.
    assert ask((0, 1, 2), partition_max_bytes=1) == [one, 0, 0]


def test_an_empty_partition_does_not_use_up_the_exception(talk: Talk, filled: Topic) -> None:
    empty = create_topic(talk)

    answer = talk.ask(fetch_request([(empty, 0, 0), (filled, 0, 0)], max_bytes=1), 12)

    assert sizes(answer) == [0, size_of(talk, filled, 0)]


# When


def test_it_waits_for_the_first_record(broker: Subject, talk: Talk, topic: Topic) -> None:
    talk.tell(fetch_request([(topic, 0, 0)], max_wait_ms=LONG_MS, min_bytes=1), 12)
    with broker.connect() as other:
        produce(other, topic, batch_of(b"a"))
    answer = talk.receive(timeout_s=SOON_S)

    assert offsets_of(answer.responses[0].partitions[0].records) == [0]


def test_what_is_asked_behind_it_is_answered_behind_it(talk: Talk, topic: Topic) -> None:
    talk.tell(fetch_request([(topic, 0, 0)], max_wait_ms=300, min_bytes=1), 12)
    talk.tell(messages.MetadataRequest([]), 12)
    talk.tell(messages.ApiVersionsRequest("contract", "1"), 3)

    kinds = [type(talk.receive()) for _ in range(3)]

    assert kinds == [
        messages.FetchResponse,
        messages.MetadataResponse,
        messages.ApiVersionsResponse,
    ]


@pytest.mark.parametrize("version", [4, 12, 13, 18])
def test_the_end_of_a_topic_ends_the_wait(broker: Subject, talk: Talk, version: int) -> None:
    topic = create_topic(talk)
    with broker.connect() as other:
        other.tell(fetch_request([(topic, 0, 0)], max_wait_ms=LONG_MS, min_bytes=1), version)
        state = messages.DeleteTopicsRequest.DeleteTopicState(topic.name)
        talk.ask(messages.DeleteTopicsRequest([state], timeout_ms=10_000), 6)
        answer = other.receive(timeout_s=SOON_S)

    assert code(answer.responses[0].partitions[0]) in {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        # The topic may be gone before the fetch is looked at.
        ErrorCode.UNKNOWN_TOPIC_ID,
    }


def test_it_answers_with_nothing_when_the_time_is_up(talk: Talk, topic: Topic) -> None:
    begun_s = time.monotonic()
    answer = fetch(talk, topic, 0, max_wait_ms=300, min_bytes=1)

    assert time.monotonic() - begun_s >= 0.29
    assert (code(answer), bytes(answer.records)) == (ErrorCode.NONE, b"")


def test_too_little_comes_when_the_time_is_up(talk: Talk, filled: Topic) -> None:
    begun_s = time.monotonic()
    answer = fetch(talk, filled, 0, max_wait_ms=300, min_bytes=100_000)

    assert time.monotonic() - begun_s >= 0.29
    assert offsets_of(answer.records) == list(range(9))


@pytest.mark.parametrize(
    "limits",
    [
        {"max_wait_ms": 0, "min_bytes": 1},
        {"max_wait_ms": -5, "min_bytes": 1},
        {"max_wait_ms": LONG_MS, "min_bytes": 0},
    ],
)
def test_it_does_not_wait_when_told_so(talk: Talk, topic: Topic, limits: dict[str, int]) -> None:
    request = fetch_request([(topic, 0, 0)], **limits)

    assert sizes(talk.ask(request, 12, timeout_s=SOON_S)) == [0]


def test_it_does_not_wait_for_more_than_fits(talk: Talk, filled: Topic) -> None:
    limits = {"max_wait_ms": LONG_MS, "min_bytes": 50_000, "max_bytes": 100}

    answer = talk.ask(fetch_request([(filled, 0, 0)], **limits), 12, timeout_s=SOON_S)

    assert sizes(answer) == [size_of(talk, filled, 0)]


def test_it_does_not_wait_beside_an_error(talk: Talk, filled: Topic) -> None:
    empty = create_topic(talk)
    request = fetch_request([(empty, 0, 7), (filled, 0, 0)], max_wait_ms=LONG_MS, min_bytes=50_000)

    answer = talk.ask(request, 12, timeout_s=SOON_S)

    found = {topic.topic: topic.partitions[0] for topic in answer.responses}
    assert code(found[empty.name]) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert offsets_of(found[filled.name].records) == list(range(9))


def test_an_error_is_told_though_the_answer_is_full(talk: Talk, filled: Topic) -> None:
    other = create_topic(talk)

    answer = talk.ask(fetch_request([(filled, 0, 0), (other, 0, 1)], max_bytes=1), 12)

    first, second = (topic.partitions[0] for topic in answer.responses)
    assert first.records
    assert (code(first), code(second)) == (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert (second.high_watermark, second.log_start_offset) == (-1, -1)


def test_what_does_not_exist_hurries_nobody(talk: Talk, filled: Topic) -> None:
    missing = missing_topic()
    alone = fetch_request([(missing, 0, 0)], max_wait_ms=LONG_MS, min_bytes=1)
    assert sizes(talk.ask(alone, 12, timeout_s=SOON_S)) == [0]

    beside = fetch_request([(missing, 0, 0), (filled, 0, 9)], max_wait_ms=300, min_bytes=1)
    begun_s = time.monotonic()
    answer = talk.ask(beside, 12)

    assert time.monotonic() - begun_s >= 0.29
    codes = {topic.topic: code(topic.partitions[0]) for topic in answer.responses}
    assert codes == {
        missing.name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        filled.name: ErrorCode.NONE,
    }


def test_no_partitions_at_all(talk: Talk) -> None:
    request = fetch_request([], max_wait_ms=LONG_MS, min_bytes=1)

    answer = talk.ask(request, 12, timeout_s=SOON_S)

    assert (code(answer), answer.responses) == (ErrorCode.NONE, [])


# What does not exist


@pytest.mark.parametrize("version", VERSIONS)
def test_missing_topics_and_partitions(talk: Talk, topic: Topic, version: int) -> None:
    no_topic = fetch(talk, missing_topic(), 0, version=version)
    no_partition = fetch(talk, topic, 0, version=version, partition=5)

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(no_topic) is (ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else unknown)
    assert code(no_partition) is unknown
    for answer in (no_topic, no_partition):
        assert watermarks(answer) == (-1, -1, -1)
        assert (answer.aborted_transactions, bytes(answer.records)) == ([], b"")


def test_names_and_ids_that_no_topic_can_have(talk: Talk) -> None:
    for name in ("", "a b"):
        answer = fetch(talk, Topic(name, bytes(16)), 0, version=12)
        assert code(answer) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = fetch(talk, Topic("ignored", bytes(16)), 0, version=13)
    assert code(answer) is ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [9, 12, 18])
@pytest.mark.parametrize("epoch, known", [(-2, True), (-1, True), (0, True), (1, False)])
def test_the_leader_epoch(talk: Talk, filled: Topic, version: int, epoch: int, known: bool) -> None:
    answer = fetch(talk, filled, 0, version=version, leader_epoch=epoch)

    if known:
        assert offsets_of(answer.records) == list(range(9))
    else:
        assert code(answer) is ErrorCode.UNKNOWN_LEADER_EPOCH
        assert watermarks(answer) == (-1, -1, -1)
        assert answer.aborted_transactions is None


def test_a_fetch_in_the_name_of_a_replica(broker: Subject, talk: Talk, filled: Topic) -> None:
    request = fetch_request([(filled, 0, 0)])
    request.replica_id = 5

    answer = talk.ask(request, 12).responses[0].partitions[0]

    assert code(answer) is broker.expected("fetch as a replica")


# Isolation


@pytest.mark.parametrize("version", [4, 12, 18])
def test_read_committed_has_a_list_of_aborted_transactions(
    talk: Talk, filled: Topic, version: int
) -> None:
    committed = fetch(talk, filled, 0, version=version, isolation_level=1)
    at_the_end = fetch(talk, filled, 9, version=version, isolation_level=1)
    beyond = fetch(talk, filled, 90, version=version, isolation_level=1)

    assert offsets_of(committed.records) == list(range(9))
    assert (committed.aborted_transactions, at_the_end.aborted_transactions) == ([], [])
    assert (code(beyond), beyond.aborted_transactions) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)


def test_an_isolation_level_that_does_not_exist(broker: Subject, talk: Talk, filled: Topic) -> None:
    answer = talk.ask(fetch_request([(filled, 0, 0)], isolation_level=2), 4)

    found = answer.responses[0].partitions[0]
    assert code(found) is broker.expected("fetch at an unknown isolation level")


# Sessions


@pytest.mark.parametrize("version", [7, 12, 13, 18])
@pytest.mark.parametrize("session_id", [0, 123_456])
@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_full_fetch_is_served_whatever_its_session(
    talk: Talk, filled: Topic, version: int, session_id: int, epoch: int
) -> None:
    request = fetch_request([(filled, 0, 0)])
    request.session_id, request.session_epoch = session_id, epoch

    answer = talk.ask(request, version)

    assert (code(answer), len(answer.responses)) == (ErrorCode.NONE, 1)
    assert offsets_of(answer.responses[0].partitions[0].records) == list(range(9))
    wants_a_session = epoch == 0
    assert (answer.session_id != 0) is wants_a_session


@pytest.mark.parametrize("version", [7, 12, 13, 18])
@pytest.mark.parametrize("session_id, epoch", [(123_456, 1), (0, 1), (0, 5), (123_456, -2)])
def test_an_unknown_session_cannot_be_continued(
    talk: Talk, filled: Topic, version: int, session_id: int, epoch: int
) -> None:
    request = fetch_request([(filled, 0, 0)])
    request.session_id, request.session_epoch = session_id, epoch

    answer = talk.ask(request, version)

    assert code(answer) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (answer.session_id, answer.responses) == (0, [])


# Compression


@pytest.mark.parametrize("version", [4, 9, 10, 18])
def test_zstd_is_sent_to_whoever_asks(talk: Talk, topic: Topic, version: int) -> None:
    produce(talk, topic, batch_of(b"a" * 100, codec=Codec.ZSTD))

    answer = fetch(talk, topic, 0, version=version)

    assert (code(answer), offsets_of(answer.records)) == (ErrorCode.NONE, [0])


def test_a_partition_named_twice(broker: Subject, talk: Talk, filled: Topic) -> None:
    answer = talk.ask(fetch_request([(filled, 0, 0), (filled, 0, 5)]), 12)

    found = [offsets_of(part.records) for topic in answer.responses for part in topic.partitions]
    assert found == broker.expected("fetch a partition twice")
