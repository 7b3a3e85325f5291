"""The kinds of things that have configs in Kafka's protocol.

This file alone decides which config resources exist here and what is said about those that Kafka
has and we do not. The APIs 32, 33, 44 and 74 share it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, TypeVar

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.broker import Broker
from headwater.delivery.broker.configs import Change, Described
from headwater.delivery.dialects.kafka.call import Call


class ResourceType(IntEnum):
    """What a config belongs to, by its number in the protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_UNKNOWN = (
    "This most likely occurs because of a request being malformed by the client library or the "
    "message was sent to an incompatible broker. See the broker logs for more details."
)
# Kinds that have no configs here; with what Kafka says when their name is missing.
_EMPTY = {
    ResourceType.BROKER_LOGGER: "Broker id must not be empty",
    ResourceType.CLIENT_METRICS: "Client metrics subscription name must not be empty",
    ResourceType.GROUP: "Group name must not be empty",
}

_Answer = TypeVar("_Answer")


def describe(broker: Broker, kind: int, name: str) -> list[Described]:
    """Tell every config of a resource.

    Raises:
        KafkaError: There is no such resource.
    """
    if kind == ResourceType.TOPIC:
        return broker.configs.describe_existing_topic(name)
    if kind == ResourceType.BROKER:
        return broker.configs.describe_broker(name)
    if kind not in _EMPTY:
        raise KafkaError(ErrorCode.INVALID_REQUEST, _UNKNOWN)
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, _EMPTY[ResourceType(kind)])
    if kind == ResourceType.BROKER_LOGGER:
        broker.configs.check_node(name, "Broker", f"{broker.node_id}")
    return []


def names(broker: Broker, kind: ResourceType) -> list[str]:
    """Name every resource of a kind."""
    match kind:
        case ResourceType.TOPIC:
            return [topic.name for topic in broker.topics]
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(broker.node_id)]
        case _:
            return []


def alter(
    broker: Broker,
    kind: int,
    name: str,
    changes: Sequence[Change],
    *,
    keep_others: bool,
    validate_only: bool,
) -> None:
    """Change configs of a resource.

    Raises:
        KafkaError: Nothing was changed.
    """
    if kind == ResourceType.TOPIC:
        broker.configs.alter_topic(
            name, changes, keep_others=keep_others, validate_only=validate_only
        )
    elif kind == ResourceType.BROKER:
        broker.configs.alter_broker(
            name, changes, keep_others=keep_others, validate_only=validate_only
        )
    elif kind == ResourceType.GROUP:
        for change in changes:
            message = f"Unknown group config name: {change.name}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    elif kind == ResourceType.CLIENT_METRICS:
        for change in changes:
            message = f"Unknown client metrics configuration: {change.name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    elif kind == ResourceType.BROKER_LOGGER and keep_others:
        for change in changes:
            message = f"Logger {change.name} does not exist!"
            raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")


def reply_between_rounds(
    call: Call,
    make_response: Callable[[], Any],  # any message class
) -> None:
    """Change configs and answer, as soon as nothing is being synced.

    Args:
        call: The request.
        make_response: Makes the changes, and the answer that says what became of them.
    """

    def carry_out() -> None:
        try:
            response = make_response()
        except Exception:
            # The request may have been handled before: then only this closes the connection, and
            # without that the client would wait for ever.
            call.close()
            raise
        call.reply(response)

    call.broker.topics.between_rounds(carry_out)


def each_once(
    resources: Sequence[tuple[int, str]],
    change: Callable[[int], None],
    answer: Callable[[int, str, ErrorCode, str | None], _Answer],
) -> list[_Answer]:
    """Change resource after resource, refusing those that stand in the request twice.

    Args:
        resources: Kind and name of each.
        change: Changes the resource at an index, or raises.
        answer: Makes the answer from kind, name, code and message.
    """
    times = Counter(resources)
    answers = []
    for index, (kind, name) in enumerate(resources):
        code: ErrorCode = ErrorCode.NONE
        message: str | None = None
        if times[kind, name] > 1:
            code, message = ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
        else:
            try:
                change(index)
            except KafkaError as error:
                code, message = error.code, error.message
        answers.append(answer(kind, name, code, message))
    return answers
