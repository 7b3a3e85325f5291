"""ListConfigResources: what has configs."""

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import Talk, code, create_topic

TOPIC, BROKER, LOGGER, METRICS, GROUP = (2, 4, 8, 16, 32)


def resources(talk: Talk, *types: int) -> list[tuple[int, str]]:
    answer = talk.ask(messages.ListConfigResourcesRequest(list(types)), 1)
    assert code(answer) is ErrorCode.NONE
    return [(each.resource_type, each.resource_name) for each in answer.config_resources]


def test_only_client_metrics_in_the_oldest_version(talk: Talk) -> None:
    create_topic(talk)
    answer = talk.ask(messages.ListConfigResourcesRequest(), 0)

    assert (code(answer), answer.throttle_time_ms, answer.config_resources) == (0, 0, [])


def test_resources_of_each_type(talk: Talk) -> None:
    topics = {(TOPIC, create_topic(talk).name) for _ in range(2)}

    assert topics <= set(resources(talk, TOPIC))
    assert {kind for kind, _ in resources(talk, TOPIC)} == {TOPIC}
    assert resources(talk, BROKER) == [(BROKER, "1")]
    assert resources(talk, LOGGER) == [(LOGGER, "1")]
    assert resources(talk, METRICS) == []
    assert resources(talk, GROUP) == []


def test_several_types_and_all(talk: Talk) -> None:
    topic = (TOPIC, create_topic(talk).name)

    assert sorted(resources(talk, BROKER, LOGGER)) == [(BROKER, "1"), (LOGGER, "1")]
    assert sorted(resources(talk, BROKER, BROKER)) == [(BROKER, "1")]
    every = resources(talk)
    assert {topic, (BROKER, "1"), (LOGGER, "1")} <= set(every)
    assert len(every) == len(set(every))
    assert set(every) == set(resources(talk, TOPIC, BROKER, LOGGER, METRICS, GROUP))


@pytest.mark.parametrize("types", [[0], [1], [99], [-1], [TOPIC, 99]])
def test_unknown_types(talk: Talk, types: list[int]) -> None:
    answer = talk.ask(messages.ListConfigResourcesRequest(types), 1)

    assert (code(answer), answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
