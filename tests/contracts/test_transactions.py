"""Transactions by raw requests: both protocols, and every refusal that clients rely on."""

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
    fetch,
    list_offset,
    missing_topic,
    new_producer_id,
    produce,
    produce_request,
)
from tests.contracts.producers import OK, Client, Producer, committed, markers_of

FENCED = ErrorCode.PRODUCER_FENCED
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
OTHER_PRODUCER = ErrorCode.INVALID_PRODUCER_ID_MAPPING
NO_TRANSACTION = ErrorCode.INVALID_TXN_STATE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE


# The whole way


def test_the_older_protocol(talk: Talk, topic: Topic, client: Client) -> None:
    first = client.me
    assert first.epoch == 0

    assert client.add(topic) is OK
    assert client.send(topic, b"a", b"b", version=9) == (OK, 0)
    assert client.end(commit=True, version=4) == (OK, Producer(-1, -1))
    client.wait_for("CompleteCommit")
    assert client.add(topic) is OK
    assert client.send(topic, b"c", sequence=2, version=9) == (OK, 3)
    assert client.end(commit=False, version=4)[0] is OK
    client.wait_for("CompleteAbort")

    assert committed(talk, topic) == [b"a", b"b"]
    assert markers_of(talk, topic) == [(2, 0, True), (4, 0, False)], "the epoch stays"
    assert client.init() == (OK, Producer(first.producer_id, 1))


def test_every_end_is_a_new_epoch(talk: Talk, topic: Topic, client: Client) -> None:
    pid = client.me.producer_id

    assert client.send(topic, b"a", b"b") == (OK, 0), "writing adds the partition"
    assert client.end(commit=True) == (OK, Producer(pid, 1))
    assert client.send(topic, b"c") == (OK, 3)
    assert client.end(commit=False) == (OK, Producer(pid, 2))
    assert client.send(topic, b"d") == (OK, 5)
    assert client.end(commit=True) == (OK, Producer(pid, 3))
    client.wait_for("CompleteCommit")

    assert committed(talk, topic) == [b"a", b"b", b"d"]
    assert markers_of(talk, topic) == [(2, 1, True), (4, 2, False), (6, 3, True)]
    described = client.describe()
    assert (described.producer_epoch, described.transaction_timeout_ms) == (3, 60_000)


def test_what_is_open_is_not_stable(talk: Talk, topic: Topic, client: Client) -> None:
    other = Client(talk)
    other.init()
    client.send(topic, b"a")
    other.send(topic, b"b")
    other.end(commit=True)
    other.wait_for("CompleteCommit")

    assert list_offset(talk, topic.name, -1, isolation_level=1).offset == 0
    assert list_offset(talk, topic.name, -1).offset == 3
    assert fetch(talk, topic, 0).last_stable_offset == 0

    client.end(commit=False)
    client.wait_for("CompleteAbort")
    assert list_offset(talk, topic.name, -1, isolation_level=1).offset == 4
    assert committed(talk, topic) == [b"b"]


def test_several_partitions_end_together(talk: Talk, client: Client) -> None:
    topic = create_topic(talk, partitions=3)
    for partition in range(3):
        assert client.send(topic, b"%d" % partition, partition=partition)[0] is OK
    described = client.describe()
    assert described.transaction_state == "Ongoing"
    assert [(each.topic, sorted(each.partitions)) for each in described.topics] == [
        (topic.name, [0, 1, 2])
    ]

    client.end(commit=True)
    client.wait_for("CompleteCommit")

    assert [committed(talk, topic, index) for index in range(3)] == [[b"0"], [b"1"], [b"2"]]
    assert client.describe().topics == []


# InitProducerId


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_time_out_out_of_bounds(talk: Talk, client: Client, timeout_ms: int) -> None:
    answer = client.init(timeout_ms=timeout_ms)

    assert answer == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, Producer(-1, -1))


def test_a_new_producer_aborts_what_is_open(talk: Talk, topic: Topic, client: Client) -> None:
    old = client.me
    client.send(topic, b"a")

    assert client.init() == (OK, Producer(old.producer_id, old.epoch + 2))

    assert client.describe().transaction_state == "Empty"
    assert committed(talk, topic) == []
    assert markers_of(talk, topic) == [(1, old.epoch + 1, False)]
    assert client.send(topic, b"b", me=old)[0] is OLD_EPOCH
    assert client.send(topic, b"b", sequence=1, me=old, version=9)[0] is OLD_EPOCH
    for version, expected in ((1, OLD_EPOCH), (2, FENCED), (5, FENCED)):
        assert client.end(commit=True, me=old, version=version)[0] is expected
    for version, expected in ((1, OLD_EPOCH), (2, FENCED), (3, FENCED)):
        assert client.add(topic, me=old, version=version) is expected


def test_an_id_and_epoch_that_the_producer_has(talk: Talk, client: Client) -> None:
    pid = client.me.producer_id

    assert client.init(expected=Producer(pid, 0)) == (OK, Producer(pid, 1))
    assert client.init(expected=Producer(pid, 0)) == (OK, Producer(pid, 1)), "asked again"
    assert client.init(expected=Producer(pid, 1)) == (OK, Producer(pid, 2))
    assert client.init(expected=Producer(pid, 0))[0] is FENCED
    assert client.init(expected=Producer(pid, 0), version=3)[0] is OLD_EPOCH
    assert client.init(expected=Producer(pid + 10**6, 2))[0] is FENCED
    assert client.init(expected=Producer(pid, 9))[0] is FENCED
    assert client.init() == (OK, Producer(pid, 3))


def test_an_unknown_id_takes_whatever_the_producer_has(talk: Talk, client: Client) -> None:
    fresh = Client(talk)
    error, given = fresh.init(expected=Producer(client.me.producer_id, 7))

    assert (error, given.epoch) == (OK, 0)
    assert given.producer_id != client.me.producer_id


def test_a_producer_goes_on_after_its_time_is_up(talk: Talk, topic: Topic, client: Client) -> None:
    old = client.me
    client.send(topic, b"a")
    Client(talk, client.transactional_id).init()
    client.wait_for("Empty")

    assert client.init(expected=old)[0] is FENCED, "somebody else has taken over"


# Partitions


def test_partitions_that_do_not_exist(talk: Talk, topic: Topic, client: Client) -> None:
    missing = missing_topic()

    errors = client.add_all({(topic.name, 0), (missing.name, 0), (topic.name, 5)})

    assert errors == {
        (topic.name, 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        (missing.name, 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (topic.name, 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert client.describe().transaction_state == "Empty"


def test_the_brokers_own_topics(talk: Talk, topic: Topic, client: Client) -> None:
    own = ("__transaction_state", 0)

    errors = client.add_all({(topic.name, 0), own})

    assert errors == {
        (topic.name, 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        own: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }


def test_producers_that_are_not_the_one(talk: Talk, topic: Topic, client: Client) -> None:
    stranger = Client(talk)
    stranger.me = client.me
    other = Producer(client.me.producer_id + 10**6, 0)
    newer = Producer(client.me.producer_id, 5)

    assert stranger.add(topic) is OTHER_PRODUCER, "an unknown id"
    assert client.add(topic, me=other) is OTHER_PRODUCER
    assert client.add(topic, me=newer) is FENCED
    assert stranger.end(commit=True)[0] is OTHER_PRODUCER
    assert client.end(commit=True, me=other)[0] is OTHER_PRODUCER
    assert client.end(commit=True, me=newer)[0] is FENCED
    assert stranger.send(topic, b"a")[0] is OTHER_PRODUCER
    assert client.send(topic, b"a", me=other)[0] is OTHER_PRODUCER
    assert client.send(topic, b"a", me=newer)[0] is OLD_EPOCH


def test_an_empty_id(talk: Talk, topic: Topic) -> None:
    nobody = Client(talk, "")
    nobody.me = Producer(new_producer_id(talk), 0)

    assert nobody.init()[0] is ErrorCode.INVALID_REQUEST
    assert nobody.add(topic) is ErrorCode.INVALID_REQUEST
    assert nobody.end(commit=True)[0] is ErrorCode.INVALID_REQUEST
    assert nobody.describe().error_code == ErrorCode.INVALID_REQUEST


def test_adding_again_changes_nothing(talk: Talk, topic: Topic, client: Client) -> None:
    client.add(topic)
    began = client.describe().transaction_start_time_ms
    time.sleep(0.01)

    assert client.add(topic) is OK
    assert client.describe().transaction_start_time_ms == began


@pytest.mark.parametrize("version, expected", [(9, NO_TRANSACTION), (11, ABORTABLE)])
def test_a_partition_that_was_not_added(
    talk: Talk, topic: Topic, client: Client, version: int, expected: ErrorCode
) -> None:
    other = create_topic(talk)
    client.add(other)

    assert client.send(topic, b"a", version=version) == (expected, -1)
    assert client.send(other, b"a", version=version) == (OK, 0)
    assert list_offset(talk, topic.name, -1).offset == 0


@pytest.mark.parametrize("version, expected", [(9, NO_TRANSACTION), (11, ABORTABLE)])
def test_a_batch_that_comes_after_the_end(
    talk: Talk, topic: Topic, client: Client, version: int, expected: ErrorCode
) -> None:
    client.add(topic)
    client.send(topic, b"a", version=version)
    client.end(commit=True, version=4)
    client.wait_for("CompleteCommit")

    assert client.send(topic, b"b", sequence=1, version=version)[0] is expected
    assert list_offset(talk, topic.name, -1, isolation_level=1).offset == 2, "nothing hangs"


def test_a_late_batch_of_the_last_transaction(talk: Talk, topic: Topic, client: Client) -> None:
    old = client.me
    client.send(topic, b"a")
    client.end(commit=True)
    client.wait_for("CompleteCommit")

    assert client.send(topic, b"b", sequence=1, me=old)[0] is OLD_EPOCH
    assert client.send(topic, b"a", sequence=0, me=old)[0] is OLD_EPOCH, "also a repetition"


def test_a_number_of_the_last_transaction(broker: Subject, topic: Topic, client: Client) -> None:
    client.add(topic)
    client.send(topic, b"a", version=9)
    client.end(commit=False, version=4)
    client.wait_for("CompleteAbort")
    client.add(topic)

    again_and_next = [client.send(topic, b"b", sequence=each, version=9) for each in (0, 1)]

    assert again_and_next == broker.expected("produce again what has ended")


def test_a_first_batch_with_a_number_of_its_own(talk: Talk, topic: Topic, client: Client) -> None:
    assert client.send(topic, b"a", sequence=3)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.send(topic, b"a") == (OK, 0)
    assert client.send(topic, b"a") == (OK, 0), "a repetition"
    assert client.send(topic, b"b", sequence=1) == (OK, 1)


def test_plain_batches_of_a_transactional_producer(
    talk: Talk, topic: Topic, client: Client
) -> None:
    client.send(topic, b"a")

    error, _ = client.send(topic, b"b", sequence=1, transactional=False)

    assert error is NO_TRANSACTION


@pytest.mark.parametrize("version", [9, 12])
def test_transactional_batches_without_an_id(
    talk: Talk, topic: Topic, client: Client, version: int
) -> None:
    batch = batch_of(
        b"a",
        producer_id=client.me.producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )

    answer = produce(talk, topic, batch, version=version)

    assert code(answer) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_two_producers_in_one_request(talk: Talk, client: Client) -> None:
    topic = create_topic(talk, partitions=2)
    batches: dict[int, bytes | bytearray | None] = {
        index: batch_of(
            b"a",
            producer_id=client.me.producer_id,
            producer_epoch=index,
            base_sequence=0,
            is_transactional=True,
        )
        for index in range(2)
    }
    request = produce_request(topic, batches)
    request.transactional_id = client.transactional_id

    (answer,) = talk.ask(request, 12).responses

    assert {code(each) for each in answer.partition_responses} == {OTHER_PRODUCER}


# Ending


def test_nothing_to_end(talk: Talk, client: Client) -> None:
    pid = client.me.producer_id

    assert client.end(commit=True, version=4)[0] is NO_TRANSACTION
    assert client.end(commit=False, version=4)[0] is NO_TRANSACTION
    assert client.end(commit=True)[0] is NO_TRANSACTION
    assert client.end(commit=False) == (OK, Producer(pid, 1)), "a new epoch, for those who know"
    client.wait_for("CompleteAbort")
    assert client.end(commit=True)[0] is NO_TRANSACTION
    assert client.end(commit=False) == (OK, Producer(pid, 2))


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_is_asked_for_again(
    talk: Talk, topic: Topic, client: Client, *, commit: bool
) -> None:
    old = client.me
    client.send(topic, b"a")
    new = client.end(commit=commit)
    client.wait_for("CompleteCommit", "CompleteAbort")

    assert client.end(commit=commit, me=old) == new
    assert client.end(commit=not commit, me=old)[0] is NO_TRANSACTION
    assert len(markers_of(talk, topic)) == 1


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_is_asked_for_again_in_the_older_protocol(
    talk: Talk, topic: Topic, client: Client, *, commit: bool
) -> None:
    client.add(topic)
    client.end(commit=commit, version=4)
    client.wait_for("CompleteCommit", "CompleteAbort")

    assert client.end(commit=commit, version=4)[0] is OK
    assert client.end(commit=not commit, version=4)[0] is NO_TRANSACTION


def test_an_abort_after_a_commit(talk: Talk, topic: Topic, client: Client) -> None:
    client.send(topic, b"a")
    client.end(commit=True)
    client.wait_for("CompleteCommit")

    error, given = client.end(commit=False)

    assert (error, given.epoch) == (OK, 2)
    client.wait_for("CompleteAbort")
    assert committed(talk, topic) == [b"a"]


def test_a_transaction_with_a_topic_that_is_deleted(
    talk: Talk, topic: Topic, client: Client
) -> None:
    doomed = create_topic(talk)
    client.send(topic, b"a")
    client.send(doomed, b"a")
    request = messages.DeleteTopicsRequest(
        [messages.DeleteTopicsRequest.DeleteTopicState(doomed.name)], [], 10_000
    )
    assert code(talk.ask(request, 6).responses[0]) is OK

    assert client.end(commit=True)[0] is OK
    client.wait_for("CompleteCommit")
    assert committed(talk, topic) == [b"a"]
