"""Changes of configs that wait for the end of a round of syncs."""

from collections.abc import Callable

import pytest

from headwater.base.schema import Message
from headwater.delivery.broker.configs import Operation
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.dialects.kafka.resources import ResourceType
from headwater.delivery.wire.kafka.messages import (
    AlterConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from tests.delivery.dialects.kafka.desk import Desk

TOPIC, SET = ResourceType.TOPIC, Operation.SET


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.broker.topics.create([NewTopic("a", 1, {"retention.ms": "5000"})])
    return desk


_NEW = AlterConfigsRequest.AlterConfigsResource(
    TOPIC, "a", [AlterConfigsRequest.AlterableConfig("retention.ms", "7")]
)
_CHANGED = IncrementalAlterConfigsRequest.AlterConfigsResource(
    TOPIC, "a", [IncrementalAlterConfigsRequest.AlterableConfig("retention.ms", SET, "7")]
)


@pytest.mark.parametrize(
    "request_", [AlterConfigsRequest([_NEW]), IncrementalAlterConfigsRequest([_CHANGED])]
)
def test_configs_change_between_two_rounds_of_syncs(
    desk: Desk, request_: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_off: list[Callable[[], None]] = []
    monkeypatch.setattr(desk.commits, "between_rounds", put_off.append)
    call = desk.begin(request_)
    assert desk.broker.store.topics["a"].configs == {"retention.ms": "5000"}
    (carry_out,) = put_off
    carry_out()

    assert desk.broker.store.topics["a"].configs == {"retention.ms": "7"}
    assert [answered for answered, _ in desk.line.answers] == [call]


@pytest.mark.parametrize(
    "request_", [AlterConfigsRequest([_NEW]), IncrementalAlterConfigsRequest([_CHANGED])]
)
def test_a_change_that_fails_unexpectedly_closes_the_connection(
    desk: Desk, request_: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the round that it has waited for, nobody else would tell the client."""

    def fail(*_: object) -> None:
        raise RuntimeError("unexpected")

    put_off: list[Callable[[], None]] = []
    monkeypatch.setattr(desk.commits, "between_rounds", put_off.append)
    monkeypatch.setattr(desk.broker.topics, "set_configs", fail)
    desk.begin(request_)
    (carry_out,) = put_off
    with pytest.raises(RuntimeError, match="unexpected"):
        carry_out()

    assert desk.line.closed
    assert not desk.line.answers
