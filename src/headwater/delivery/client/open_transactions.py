"""Which transactions are open, asked of the brokers themselves.

This file alone decides how that is asked, of any broker that speaks Kafka's protocol: coordinators
tell what they know, and the logs what lies in them. Whether a transaction has been open for too
long, others decide.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.client.cluster import Cluster, Place
from headwater.delivery.wire.kafka import messages

_ONGOING = "Ongoing"
_NOT_ENDED = [_ONGOING, "PrepareCommit", "PrepareAbort"]
_DESCRIBE_PRODUCERS = 61
# Ids that are described by one request; each answer names all partitions of its transaction.
_DESCRIBED_AT_ONCE_MAX = 500


class OpenTransaction(NamedTuple):
    """A transaction that has not ended.

    Attributes:
        transactional_id: The name that the producer chose; None if no coordinator knows it.
        producer_id: Whose records they are.
        producer_epoch: As the coordinator has it; else as the log has it.
        started_ms: When it began, by the broker's clock; of one that no coordinator knows, the
            timestamp of its last record.
        timeout_ms: After which time it is aborted; None: never.
        partitions: How many partitions it has reached.
        hangs_in: The partition in whose log it is open, though no coordinator will end it.
        first_offset: Where it hangs: readers of committed data get no further.
    """

    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    started_ms: int
    timeout_ms: int | None
    partitions: int
    hangs_in: Place | None = None
    first_offset: int = -1


def list_open_transactions(cluster: Cluster) -> list[OpenTransaction]:
    """Return all open transactions, the oldest first.

    Raises:
        KafkaError: A broker cannot tell.
        HeadwaterError: A broker does not know the question.
    """
    places = [
        (topic.name, each.number)
        for topic in cluster.topics().values()
        for each in topic.partitions
        if each.leader >= 0
    ]
    in_logs = _open_in_logs(cluster, places)
    found: list[OpenTransaction] = []
    known: set[int] = set()
    for node_id in cluster.brokers:
        connection = cluster.broker(node_id)
        listed = connection.call(messages.ListTransactionsRequest(state_filters=_NOT_ENDED))
        if listed.error_code:
            raise KafkaError(ErrorCode(listed.error_code), "transactions cannot be listed")
        known.update(each.producer_id for each in listed.transaction_states)
        ids = [each.transactional_id for each in listed.transaction_states]
        for start in range(0, len(ids), _DESCRIBED_AT_ONCE_MAX):
            wanted = ids[start : start + _DESCRIBED_AT_ONCE_MAX]
            described = connection.call(messages.DescribeTransactionsRequest(wanted))
            found += _open_ones(described.transaction_states)
    found += _hanging(cluster, in_logs, known)
    return sorted(found, key=lambda each: each.started_ms)


def _open_ones(
    states: Iterable[messages.DescribeTransactionsResponse.TransactionState],
) -> list[OpenTransaction]:
    # Some may have ended since they were listed.
    return [
        OpenTransaction(
            state.transactional_id,
            state.producer_id,
            state.producer_epoch,
            state.transaction_start_time_ms,
            state.transaction_timeout_ms,
            sum(len(topic.partitions) for topic in state.topics),
        )
        for state in states
        if state.transaction_state == _ONGOING
    ]


class _InLog(NamedTuple):
    """By what an open transaction is known again in a log."""

    place: Place
    producer_id: int
    first_offset: int


def _hanging(
    cluster: Cluster, in_logs: Mapping[_InLog, OpenTransaction], known: set[int]
) -> list[OpenTransaction]:
    """Return those that no coordinator knows, if they are still there when asked for again.

    Others have ended between the two questions.
    """
    unknown = [each for each in in_logs if each.producer_id not in known]
    if not unknown:
        return []
    still = _open_in_logs(cluster, sorted({each.place for each in unknown}))
    return [in_logs[each] for each in unknown if each in still]


def _open_in_logs(cluster: Cluster, places: Iterable[Place]) -> dict[_InLog, OpenTransaction]:
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic, number in places:
        topics = by_leader.setdefault(cluster.leader(topic, number), {})
        topics.setdefault(topic, []).append(number)
    found = {}
    for node_id, topics in by_leader.items():
        connection = cluster.broker(node_id)
        if not connection.speaks(_DESCRIBE_PRODUCERS):
            continue
        wanted = [messages.DescribeProducersRequest.TopicRequest(*each) for each in topics.items()]
        for answer in connection.call(messages.DescribeProducersRequest(wanted)).topics:
            for partition in answer.partitions:
                place = answer.name, partition.partition_index
                for producer in partition.active_producers:
                    if producer.current_txn_start_offset >= 0:
                        key = _InLog(place, producer.producer_id, producer.current_txn_start_offset)
                        found[key] = _as_hanging(key, producer)
    return found


def _as_hanging(
    key: _InLog, producer: messages.DescribeProducersResponse.ProducerState
) -> OpenTransaction:
    return OpenTransaction(
        None,
        producer.producer_id,
        producer.producer_epoch,
        producer.last_timestamp,
        None,
        1,
        key.place,
        key.first_offset,
    )
