"""What tools ask of transactions: lists, descriptions, producers, markers of their own."""

from typing import Any

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import (
    Talk,
    Topic,
    code,
    list_offset,
    missing_topic,
    new_producer_id,
)
from tests.contracts.producers import OK, Client, Producer, committed

OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
OTHER_PRODUCER = ErrorCode.INVALID_PRODUCER_ID_MAPPING
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE


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
