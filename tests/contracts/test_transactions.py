"""Transactions by raw requests: both protocols, and every refusal that clients rely on."""

import time
from typing import Any

import pytest

from headwater.base.errors import ErrorCode
from headwater.base.record.batch import BatchHeader, scan
from headwater.base.record.control import read_end_transaction
from headwater.base.record.records import Record, iterate
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import (
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
from tests.contracts.producers import OK, Client, Producer

FENCED = ErrorCode.PRODUCER_FENCED
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
OTHER_PRODUCER = ErrorCode.INVALID_PRODUCER_ID_MAPPING
NO_TRANSACTION = ErrorCode.INVALID_TXN_STATE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE


@pytest.fixture
def client(talk: Talk) -> Client:
    """Give a producer with a transactional id of its own, initialized."""
    client = Client(talk)
    assert client.find() is OK
    assert client.init()[0] is OK
    return client


def committed(talk: Talk, topic: Topic, partition: int = 0) -> list[bytes]:
    """Read what a reader of committed data gets of all that is stable by now."""
    stable = list_offset(talk, topic.name, -1, partition=partition, isolation_level=1).offset
    answer = fetch(talk, topic, 0, partition=partition, isolation_level=1)
    assert answer.last_stable_offset == stable
    assert answer.aborted_transactions is not None
    aborted = sorted(answer.aborted_transactions, key=lambda each: each.first_offset, reverse=True)
    skipped: set[int] = set()
    values: list[bytes] = []
    for header, records in batches_of(answer.records):
        while aborted and aborted[-1].first_offset <= header.base_offset:
            skipped.add(aborted.pop().producer_id)
        if header.is_control:
            skipped.discard(header.producer_id)
        elif header.producer_id not in skipped:
            values.extend(record.value or b"" for record in records)
    return values


def batches_of(data: Any) -> list[tuple[BatchHeader, list[Record]]]:  # noqa: ANN401 - the wire's
    """Return the batches in fetched bytes, each with its records."""
    data = bytes(data)
    return [(header, list(iterate(data, position))) for position, header in scan(data)]


def markers_of(talk: Talk, topic: Topic) -> list[tuple[int, int, bool]]:
    """Return offset, epoch and outcome of every marker in a topic's first partition."""
    found = []
    for header, records in batches_of(fetch(talk, topic, 0).records):
        if header.is_control:
            marker = read_end_transaction(records[0])
            assert marker is not None
            found.append((header.base_offset, header.producer_epoch, marker.is_commit))
    return found


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


# Tools


def test_listing(talk: Talk, topic: Topic, client: Client) -> None:
    client.send(topic, b"a")
    idle = Client(talk)
    idle.init()
    both = {client.transactional_id, idle.transactional_id}

    def listed(version: int, **filters: Any) -> set[str]:  # noqa: ANN401 - fields
        answer = talk.ask(messages.ListTransactionsRequest(**filters), version)
        assert code(answer) is OK
        return {each.transactional_id for each in answer.transaction_states} & both

    assert listed(0) == both
    assert listed(0, state_filters=["Ongoing"]) == {client.transactional_id}
    assert listed(0, state_filters=["Empty", "Ongoing"]) == both
    assert listed(0, producer_id_filters=[idle.me.producer_id]) == {idle.transactional_id}
    assert listed(1, duration_filter=3_600_000) == {idle.transactional_id}, "as in Kafka"
    assert listed(1, state_filters=["Ongoing"], duration_filter=3_600_000) == set()
    assert listed(2, transactional_id_pattern=f".*{client.transactional_id[-8:]}") == {
        client.transactional_id
    }
    assert listed(2, transactional_id_pattern=client.transactional_id[:-1]) == set(), "the whole"
    assert listed(2, transactional_id_pattern="") == both


def test_listing_states_and_patterns_that_do_not_exist(talk: Talk, client: Client) -> None:
    request = messages.ListTransactionsRequest(state_filters=["Ongoing", "Asleep"])
    answer = talk.ask(request, 0)
    assert (code(answer), answer.unknown_state_filters) == (OK, ["Asleep"])

    answer = talk.ask(messages.ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert code(answer) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert (answer.unknown_state_filters, answer.transaction_states) == ([], [])


def test_describing(talk: Talk, topic: Topic, client: Client) -> None:
    empty = client.describe()
    assert (code(empty), empty.transaction_state, empty.transaction_start_time_ms) == (
        OK,
        "Empty",
        -1,
    )
    assert (empty.producer_id, empty.producer_epoch, empty.topics) == (*client.me, [])
    unknown = Client(talk).describe()
    assert code(unknown) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert (unknown.transaction_state, unknown.producer_id, unknown.producer_epoch) == ("", 0, 0)
    client.add(topic)
    assert client.describe().transaction_state == "Ongoing"


def producers_of(talk: Talk, name: str, partition: int = 0) -> Any:  # noqa: ANN401 - the message
    wanted = messages.DescribeProducersRequest.TopicRequest(name, [partition])
    (topic,) = talk.ask(messages.DescribeProducersRequest([wanted]), 0).topics
    assert topic.name == name
    (answer,) = topic.partitions
    assert answer.partition_index == partition
    return answer


def test_producers_of_a_partition(talk: Talk, topic: Topic, client: Client) -> None:
    assert producers_of(talk, topic.name).active_producers == []
    client.send(topic, b"a", b"b")

    answer = producers_of(talk, topic.name)
    (found,) = answer.active_producers
    assert (code(answer), answer.error_message) == (OK, None)
    assert (found.producer_id, found.producer_epoch) == client.me
    assert (found.last_sequence, found.current_txn_start_offset) == (1, 0)
    assert found.coordinator_epoch == -1
    assert found.last_timestamp > 0

    client.end(commit=True)
    client.wait_for("CompleteCommit")
    (found,) = producers_of(talk, topic.name).active_producers
    assert (found.producer_epoch, found.last_sequence) == (1, -1)
    assert found.current_txn_start_offset == -1
    assert found.coordinator_epoch >= 0


def test_producers_of_what_does_not_exist(talk: Talk, topic: Topic) -> None:
    missing = missing_topic()
    for name, partition in ((missing.name, 0), (topic.name, 7)):
        assert code(producers_of(talk, name, partition)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(producers_of(talk, "no/name")) is ErrorCode.INVALID_TOPIC_EXCEPTION


def write_marker(
    talk: Talk,
    me: Producer,
    topic: Topic,
    *,
    commit: bool = False,
    coordinator_epoch: int = 0,
    partition: int = 0,
    version: int = 1,
    transaction_version: int = 0,
) -> ErrorCode:
    marker = messages.WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=me.producer_id,
        producer_epoch=me.epoch,
        transaction_result=commit,
        topics=[messages.WriteTxnMarkersRequest.WritableTxnMarkerTopic(topic.name, [partition])],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    (answer,) = talk.ask(messages.WriteTxnMarkersRequest([marker]), version).markers
    assert answer.producer_id == me.producer_id
    (answered,) = answer.topics
    return code(answered.partitions[0])


def test_a_marker_past_the_coordinator(talk: Talk, topic: Topic, client: Client) -> None:
    old = client.me
    client.end(commit=False)
    client.send(topic, b"a")

    assert write_marker(talk, old, topic) is OLD_EPOCH
    assert write_marker(talk, client.me, missing_topic()) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(talk, topic.name, -1, isolation_level=1).offset == 0
    assert write_marker(talk, client.me, topic) is OK
    assert list_offset(talk, topic.name, -1, isolation_level=1).offset == 2
    assert committed(talk, topic) == []


def test_markers_of_older_coordinators(talk: Talk, topic: Topic) -> None:
    me = Producer(new_producer_id(talk), 0)

    assert write_marker(talk, me, topic, coordinator_epoch=5) is OK
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert write_marker(talk, me, topic, coordinator_epoch=4) is fenced
    assert write_marker(talk, me, topic, coordinator_epoch=5) is OK


def test_markers_of_the_newer_protocol(talk: Talk, topic: Topic, client: Client) -> None:
    client.send(topic, b"a")
    raised = Producer(client.me.producer_id, client.me.epoch + 1)

    def mark(me: Producer) -> ErrorCode:
        return write_marker(talk, me, topic, version=2, transaction_version=2)

    assert mark(client.me) is OLD_EPOCH, "the epoch must have grown"
    assert mark(raised) is OK
    assert mark(raised) is OK, "the same again"


def test_no_markers_at_all(talk: Talk) -> None:
    assert talk.ask(messages.WriteTxnMarkersRequest([]), 1).markers == []


# Several transactions in one request


def test_partitions_of_several_transactions(talk: Talk, topic: Topic, client: Client) -> None:
    other = Client(talk)
    other.init()
    stranger = Client(talk)

    def ask(*, verify_only: bool, version: int) -> dict[str, ErrorCode]:
        request = messages.AddPartitionsToTxnRequest(
            transactions=[
                messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                    each.transactional_id,
                    *client.me,
                    verify_only=verify_only,
                    topics=[
                        messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(topic.name, [0])
                    ],
                )
                for each in (client, other, stranger)
            ]
        )
        answer = talk.ask(request, version)
        assert code(answer) is OK
        return {
            each.transactional_id: ErrorCode(
                each.topic_results[0].results_by_partition[0].partition_error_code
            )
            for each in answer.results_by_transaction
        }

    mapping = {other.transactional_id: OTHER_PRODUCER, stranger.transactional_id: OTHER_PRODUCER}
    assert ask(verify_only=True, version=4) == {client.transactional_id: ABORTABLE, **mapping}
    assert ask(verify_only=False, version=5) == {client.transactional_id: OK, **mapping}
    assert ask(verify_only=True, version=5) == {client.transactional_id: OK, **mapping}
