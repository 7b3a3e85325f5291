"""Which transactions are open, asked of the brokers themselves.

This file alone decides how that is asked, of any broker that speaks Kafka's protocol. Whether a
transaction has been open for too long, others decide.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.wire.kafka import messages

_ONGOING = "Ongoing"
# Ids that are described by one request; each answer names all partitions of its transaction.
_DESCRIBED_AT_ONCE_MAX = 500


class OpenTransaction(NamedTuple):
    """A transaction that has not ended.

    Attributes:
        transactional_id: The name that the producer chose.
        started_ms: When it began, by the broker's clock.
        timeout_ms: After which time it is aborted.
        partitions: How many partitions it has reached.
    """

    transactional_id: str
    started_ms: int
    timeout_ms: int
    partitions: int


def list_open_transactions(cluster: Cluster) -> list[OpenTransaction]:
    """Return all open transactions, the oldest first.

    Raises:
        KafkaError: A broker cannot tell.
        HeadwaterError: A broker does not know the question.
    """
    cluster.refresh([])
    found: list[OpenTransaction] = []
    for node_id in cluster.brokers:
        connection = cluster.broker(node_id)
        request = messages.ListTransactionsRequest(state_filters=[_ONGOING])
        listed = connection.call(request)
        if listed.error_code:
            raise KafkaError(ErrorCode(listed.error_code), "transactions cannot be listed")
        ids = [each.transactional_id for each in listed.transaction_states]
        for start in range(0, len(ids), _DESCRIBED_AT_ONCE_MAX):
            wanted = ids[start : start + _DESCRIBED_AT_ONCE_MAX]
            described = connection.call(messages.DescribeTransactionsRequest(wanted))
            found += _open_ones(described.transaction_states)
    return sorted(found, key=lambda each: each.started_ms)


def _open_ones(
    states: Iterable[messages.DescribeTransactionsResponse.TransactionState],
) -> list[OpenTransaction]:
    # Some may have ended since they were listed.
    return [
        OpenTransaction(
            state.transactional_id,
            state.transaction_start_time_ms,
            state.transaction_timeout_ms,
            sum(len(topic.partitions) for topic in state.topics),
        )
        for state in states
        if state.transaction_state == _ONGOING
    ]
