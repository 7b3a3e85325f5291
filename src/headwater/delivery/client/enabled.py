"""What a cluster has switched on and what is in use of it: features, transactions, quotas.

This file alone decides how that is asked for. An API that the brokers do not serve is no error: the
answer is then None.
"""

from collections import Counter

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.wire.kafka import messages

_LIST_TRANSACTIONS = 66
_DESCRIBE_CLIENT_QUOTAS = 48
_SOFTWARE = "headwater"


def finalized_features(cluster: Cluster) -> dict[str, int]:
    """Return the level of every feature that is switched on (KIP-584)."""
    answer = cluster.any().call(messages.ApiVersionsRequest(_SOFTWARE, "1"))
    return {
        feature.name: feature.max_version_level
        for feature in sorted(answer.finalized_features, key=lambda feature: str(feature.name))
    }


def transactions_by_state(cluster: Cluster) -> dict[str, int] | None:
    """Count the transactional ids in each state, over all coordinators."""
    cluster.refresh([])
    states: Counter[str] = Counter()
    for node_id in cluster.brokers:
        broker = cluster.broker(node_id)
        if not broker.speaks(_LIST_TRANSACTIONS):
            return None
        answer = broker.call(messages.ListTransactionsRequest())
        _check(answer.error_code, "transactions cannot be listed")
        states.update(state.transaction_state for state in answer.transaction_states)
    return dict(states)


def quota_count(cluster: Cluster) -> int | None:
    """Count the users, clients and addresses that have quotas."""
    broker = cluster.any()
    if not broker.speaks(_DESCRIBE_CLIENT_QUOTAS):
        return None
    answer = broker.call(messages.DescribeClientQuotasRequest([], strict=False))
    _check(answer.error_code, answer.error_message or "quotas cannot be listed")
    return len(answer.entries or ())


def _check(error_code: int, message: str) -> None:
    if error_code:
        raise KafkaError(ErrorCode(error_code), message)
