"""Asks for and changes the quotas of clients.

This file alone decides how such questions are put; both work on Headwater and on Apache Kafka. An
entity is a mapping of kinds ("user", "client-id", "ip") to names; a name that is None stands for
all that have no quota of their own.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.wire.kafka import messages

_NONE = ErrorCode.NONE


class Quota(NamedTuple):
    """What one entity is limited to, by key."""

    entity: Mapping[str, str | None]
    values: Mapping[str, float]


def describe_quotas(cluster: Cluster) -> list[Quota]:
    """Return every quota that is set."""
    answer = cluster.any().call(messages.DescribeClientQuotasRequest(components=[], strict=False))
    if answer.error_code != _NONE:
        raise KafkaError(ErrorCode(answer.error_code), answer.error_message or "")
    return [
        Quota(
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries
    ]


def alter_quotas(
    cluster: Cluster,
    entity: Mapping[str, str | None],
    values: Mapping[str, float | None],
    *,
    validate_only: bool = False,
) -> None:
    """Set quotas of an entity; None takes one away.

    Raises:
        KafkaError: The broker refused; nothing was changed.
    """
    request = messages.AlterClientQuotasRequest
    entry = request.EntryData(
        [request.EntityData(kind, name) for kind, name in entity.items()],
        [request.OpData(key, value or 0.0, value is None) for key, value in values.items()],
    )
    for answer in cluster.controller().call(request([entry], validate_only)).entries:
        if answer.error_code != _NONE:
            raise KafkaError(ErrorCode(answer.error_code), answer.error_message or "")
