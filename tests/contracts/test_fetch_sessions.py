"""Fetch sessions (KIP-227), v7-18: requests name what changed, answers tell what is new."""

import threading
import time

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import (
    Subject,
    Talk,
    Topic,
    batch_of,
    code,
    create_topic,
    fetch_request,
    missing_topic,
    offsets_of,
    produce,
)

VERSIONS = (7, 12, 13, 18)

pytestmark = pytest.mark.parametrize("version", VERSIONS)


class Reader:
    """A consumer that fetches in a session."""

    def __init__(self, talk: Talk, version: int) -> None:
        self._talk = talk
        self._version = version
        self.session_id = 0
        self.epoch = 0

    def fetch(
        self,
        *wanted: tuple[Topic, int, int],
        forget: tuple[tuple[Topic, int], ...] = (),
        **limits: int,
    ) -> messages.FetchResponse:
        """Send the next request of the session."""
        request = fetch_request(wanted, **limits)
        request.session_id, request.session_epoch = self.session_id, self.epoch
        request.forgotten_topics_data = [
            messages.FetchRequest.ForgottenTopic(topic.name, topic.topic_id, [partition])
            for topic, partition in forget
        ]
        answer: messages.FetchResponse = self._talk.ask(request, self._version)
        if code(answer) is ErrorCode.NONE:
            self.session_id = answer.session_id
            self.epoch += 1
        return answer


def told(answer: messages.FetchResponse) -> list[tuple[int, list[int]]]:
    """List the partitions of an answer, each with the offsets it brings."""
    assert code(answer) is ErrorCode.NONE
    return [
        (each.partition_index, offsets_of(each.records))
        for topic in answer.responses
        for each in topic.partitions
    ]


@pytest.fixture
def three(talk: Talk) -> Topic:
    """Give a topic of three partitions with two records in each."""
    topic = create_topic(talk, partitions=3)
    for partition in range(3):
        produce(talk, topic, batch_of(b"a", b"b"), partition=partition)
    return topic


@pytest.fixture
def reader(talk: Talk, version: int) -> Reader:
    return Reader(talk, version)


@pytest.fixture
def at_the_end(reader: Reader, three: Topic) -> Reader:
    """Give a reader that has seen all there is of three partitions."""
    answer = reader.fetch(*[(three, partition, 2) for partition in range(3)])
    assert told(answer) == [(0, []), (1, []), (2, [])]
    return reader


def test_the_first_answer_tells_everything(reader: Reader, three: Topic) -> None:
    answer = reader.fetch(*[(three, partition, partition) for partition in range(3)])

    assert answer.session_id > 0
    assert told(answer) == [(0, [0, 1]), (1, [0, 1]), (2, [])]


def test_nothing_new_is_not_told(at_the_end: Reader) -> None:
    session_id = at_the_end.session_id

    for _ in range(3):
        answer = at_the_end.fetch()

        assert (code(answer), answer.session_id) == (ErrorCode.NONE, session_id)
        assert answer.responses == []


def test_records_come_without_being_asked_for_again(
    at_the_end: Reader, talk: Talk, three: Topic
) -> None:
    produce(talk, three, batch_of(b"c"), partition=1)

    # Nobody says that the records arrived, so they come until somebody does.
    assert told(at_the_end.fetch()) == [(1, [2])]
    assert told(at_the_end.fetch()) == [(1, [2])]
    # Going on is a change of the session; the high watermark was told before.
    assert told(at_the_end.fetch((three, 1, 3))) == []


def test_a_waiting_fetch_of_a_session_is_woken(
    at_the_end: Reader, broker: Subject, three: Topic
) -> None:
    def write() -> None:
        with broker.connect() as other:
            produce(other, three, batch_of(b"c"), partition=2)

    writing = threading.Timer(0.3, write)
    start = time.monotonic()
    writing.start()
    answer = at_the_end.fetch(max_wait_ms=20_000, min_bytes=1)
    writing.join()

    assert told(answer) == [(2, [2])]
    assert time.monotonic() - start < 10


def test_the_next_request_by_another_connection_holds(
    at_the_end: Reader, broker: Subject, three: Topic, version: int
) -> None:
    with broker.connect() as slow:
        waits = fetch_request([], max_wait_ms=2_000, min_bytes=1)
        waits.session_id, waits.session_epoch = at_the_end.session_id, at_the_end.epoch
        slow.tell(waits, version)
        # Until it waits: before that the next one has the wrong epoch.
        at_the_end.epoch += 1
        end_s = time.monotonic() + 10
        while code(answer := at_the_end.fetch((three, 1, 0))) is not ErrorCode.NONE:
            assert time.monotonic() < end_s
        assert told(answer) == [(1, [0, 1])]
        with broker.connect() as other:
            produce(other, three, batch_of(b"c"), partition=1)
        late = slow.receive()

    assert (code(late), late.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
    assert late.session_id == at_the_end.session_id
    assert told(at_the_end.fetch()) == [(1, [0, 1, 2])]


def test_what_is_forgotten_is_told_no_more(at_the_end: Reader, talk: Talk, three: Topic) -> None:
    for partition in range(3):
        produce(talk, three, batch_of(b"c"), partition=partition)

    answer = at_the_end.fetch(forget=((three, 0), (three, 2)))

    assert told(answer) == [(1, [2])]


def test_a_partition_can_be_added(reader: Reader, three: Topic) -> None:
    assert told(reader.fetch((three, 0, 2))) == [(0, [])]

    # Its high watermark is news, though it brings no records.
    assert told(reader.fetch((three, 1, 2))) == [(1, [])]
    assert told(reader.fetch((three, 2, 0))) == [(2, [0, 1])]


def test_a_session_without_partitions_ends(at_the_end: Reader, three: Topic) -> None:
    answer = at_the_end.fetch(forget=tuple((three, partition) for partition in range(3)))

    assert (code(answer), answer.session_id, answer.responses) == (ErrorCode.NONE, 0, [])


def test_a_lost_or_doubled_request_is_noticed(at_the_end: Reader) -> None:
    for epoch in (3, 1_000, 1):
        at_the_end.epoch = epoch
        if epoch == 1:
            assert code(at_the_end.fetch()) is ErrorCode.NONE
            at_the_end.epoch = 1

        answer = at_the_end.fetch()

        assert code(answer) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert (answer.session_id, answer.responses) == (0, [])


def test_a_closed_session_cannot_go_on(at_the_end: Reader, three: Topic) -> None:
    session_id = at_the_end.session_id
    at_the_end.epoch = -1

    # The closing request is a full fetch itself.
    answer = at_the_end.fetch((three, 0, 0))

    assert (answer.session_id, told(answer)) == (0, [(0, [0, 1])])
    at_the_end.session_id, at_the_end.epoch = session_id, 1
    assert code(at_the_end.fetch()) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_new_session_ends_the_old_one(at_the_end: Reader, three: Topic) -> None:
    old = at_the_end.session_id
    at_the_end.epoch = 0

    answer = at_the_end.fetch((three, 0, 0))

    assert answer.session_id not in {0, old}
    at_the_end.session_id, at_the_end.epoch = old, 1
    assert code(at_the_end.fetch()) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_an_error_is_told_until_it_ends(reader: Reader, three: Topic) -> None:
    missing = missing_topic()
    reader.fetch((three, 0, 2), (missing, 0, 0))

    for _ in range(2):
        answer = reader.fetch()

        (topic,) = answer.responses
        (partition,) = topic.partitions
        assert code(partition) in {
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }


def test_a_position_outside_the_log_is_told_until_it_is_mended(
    reader: Reader, three: Topic
) -> None:
    reader.fetch((three, 0, 2), (three, 1, 99))

    for _ in range(2):
        ((_, _),) = [
            (each.partition_index, each.error_code)
            for each in reader.fetch().responses[0].partitions
            if code(each) is ErrorCode.OFFSET_OUT_OF_RANGE
        ]
    # The high watermark was not told with the error.
    assert told(reader.fetch((three, 1, 2))) == [(1, [])]
    assert told(reader.fetch()) == []


def test_partitions_that_gave_records_wait_for_the_others(
    at_the_end: Reader, talk: Talk, three: Topic
) -> None:
    for partition in range(3):
        produce(talk, three, batch_of(b"c" * 1000), partition=partition)
    served = []

    for _ in range(3):
        answer = told(at_the_end.fetch(max_bytes=1))
        served += [partition for partition, offsets in answer if offsets]

    assert served == [0, 1, 2]


def test_names_and_ids_cannot_be_mixed(at_the_end: Reader, version: int) -> None:
    at_the_end._version = 12 if version >= 13 else 13

    assert code(at_the_end.fetch()) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
