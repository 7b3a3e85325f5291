"""What a cluster has switched on and what is in use of it.

This file alone decides how that is asked for. An API that the brokers do not serve is no error: the
answer is then None.
"""

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.wire.kafka import messages

_LIST_TRANSACTIONS = 66
_DESCRIBE_CLIENT_QUOTAS = 48
_SOFTWARE = "headwater"
_CLEANUP_POLICY = "cleanup.policy"
_CLEANER = "log.cleaner.enable"


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


class Compaction(NamedTuple):
    """Whether old values of keys are removed, and where.

    Attributes:
        enabled: Whether every broker does it at all.
        topics: How many topics ask for it, without the brokers' own.
    """

    enabled: bool
    topics: int


def compaction(cluster: Cluster) -> Compaction:
    """Look up who compacts what."""
    topics = cluster.topics()
    compacted = compacted_topics(cluster, [name for name in topics if not topics[name].internal])
    resource = messages.DescribeConfigsRequest.DescribeConfigsResource
    cleaners = []
    for node_id in cluster.brokers:
        wanted = resource(admin.BROKER_RESOURCE, str(node_id), [_CLEANER])
        cleaners += cluster.broker(node_id).call(messages.DescribeConfigsRequest([wanted])).results
    for result in cleaners:
        _check(result.error_code, result.error_message or "configs cannot be read")
    return Compaction(
        # Brokers without the switch always do it.
        all(config.value != "false" for result in cleaners for config in result.configs),
        len(compacted),
    )


def compacted_topics(cluster: Cluster, names: Collection[str]) -> set[str]:
    """Return which of the topics keep the latest record of each key alone."""
    resource = messages.DescribeConfigsRequest.DescribeConfigsResource
    topics = [resource(admin.TOPIC_RESOURCE, name, [_CLEANUP_POLICY]) for name in names]
    policies = cluster.any().call(messages.DescribeConfigsRequest(topics)).results if topics else []
    for result in policies:
        _check(result.error_code, result.error_message or "configs cannot be read")
    return {
        result.resource_name
        for result in policies
        for config in result.configs
        if "compact" in (config.value or "")
    }


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
