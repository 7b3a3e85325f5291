"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: one subject, three APIs."""

from typing import NamedTuple

import pytest

from headwater.base.errors import ErrorCode
from headwater.base.settings import BROKER_SETTINGS, TOPIC_SETTINGS
from headwater.delivery.broker.configs import Operation, Source
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.dialects.kafka.resources import ResourceType
from headwater.delivery.wire.kafka.messages import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
)
from tests.delivery.dialects.kafka.desk import Desk

Told = dict[str, DescribeConfigsResponse.DescribeConfigsResourceResult]

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
SET, DELETE, APPEND, SUBTRACT = Operation
BAD = ErrorCode.INVALID_REQUEST
CONFIG = ErrorCode.INVALID_CONFIG
DONE = (ErrorCode.NONE, None)
NOT_LONG = "Invalid value x for configuration retention.ms: Not a number of type LONG"


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: int


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.broker.topics.create([NewTopic("a", 1, {"retention.ms": "5000"}), NewTopic("b", 1, {})])
    return desk


def describe(
    desk: Desk,
    kind: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int | None = None,
    documentation: bool = False,
) -> Told:
    resource = DescribeConfigsRequest.DescribeConfigsResource(kind, name, keys)
    request = DescribeConfigsRequest(
        [resource], include_synonyms=True, include_documentation=documentation
    )
    (result,) = desk.ask(request, version).results
    assert (result.error_code, result.error_message) == (0, "")
    assert (result.resource_type, result.resource_name) == (kind, name)
    return {config.name: config for config in result.configs}


def unknown(desk: Desk, kind: int, name: str) -> tuple[ErrorCode, str | None]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(kind, name, None)
    (result,) = desk.ask(DescribeConfigsRequest([resource])).results
    assert result.configs == []
    return ErrorCode(result.error_code), result.error_message


def synonyms(told: Told, name: str) -> list[Synonym]:
    return [Synonym(one.name, one.value, one.source) for one in told[name].synonyms]


def change(
    desk: Desk,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
    version: int | None = None,
) -> tuple[ErrorCode, str | None]:
    configs = [IncrementalAlterConfigsRequest.AlterableConfig(*one) for one in changes]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(kind, name, configs)
    request = IncrementalAlterConfigsRequest([resource], validate_only=validate_only)
    (result,) = desk.ask(request, version).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return ErrorCode(result.error_code), result.error_message


def replace(
    desk: Desk,
    kind: int,
    name: str,
    *configs: tuple[str, str | None],
    validate_only: bool = False,
    version: int | None = None,
) -> tuple[ErrorCode, str | None]:
    given = [AlterConfigsRequest.AlterableConfig(*one) for one in configs]
    resource = AlterConfigsRequest.AlterConfigsResource(kind, name, given)
    request = AlterConfigsRequest([resource], validate_only=validate_only)
    (result,) = desk.ask(request, version).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return ErrorCode(result.error_code), result.error_message


def overrides(desk: Desk, name: str = "a") -> dict[str, str]:
    return desk.broker.store.topics[name].configs


# Telling.


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topic_tells_all_it_has(desk: Desk, version: int) -> None:
    told = describe(desk, TOPIC, "a", version=version, documentation=True)
    assert told.keys() == TOPIC_SETTINGS.keys()
    retention = told["retention.ms"]
    assert (retention.value, retention.config_source) == ("5000", Source.TOPIC)
    assert not retention.read_only
    assert not retention.is_sensitive
    assert synonyms(told, "retention.ms") == [Synonym("retention.ms", "5000", 1)]
    if version >= 3:
        assert retention.config_type == 5
        assert retention.documentation == TOPIC_SETTINGS["retention.ms"].documentation


def test_documentation_and_synonyms_come_only_when_asked_for(desk: Desk) -> None:
    assert describe(desk, TOPIC, "a")["retention.ms"].documentation is None
    resource = DescribeConfigsRequest.DescribeConfigsResource(TOPIC, "a", None)
    (result,) = desk.ask(DescribeConfigsRequest([resource])).results
    assert not any(config.synonyms for config in result.configs)


def test_a_default_names_the_broker_setting_it_comes_from(desk: Desk) -> None:
    told = describe(desk, TOPIC, "b")
    assert told["segment.bytes"].config_source == Source.DEFAULT
    assert synonyms(told, "segment.bytes") == [Synonym("log.segment.bytes", "1073741824", 5)]
    assert synonyms(told, "retention.ms") == []
    assert told["retention.ms"].value == "604800000"
    assert synonyms(told, "remote.storage.enable") == []


def test_what_the_broker_was_started_with_is_static() -> None:
    desk = Desk({"log.retention.hours": "1", "log.segment.bytes": "2000000"})
    desk.broker.topics.create([NewTopic("a", 1, {})])
    told = describe(desk, TOPIC, "a")
    assert (told["retention.ms"].value, told["segment.bytes"].value) == ("3600000", "2000000")
    assert synonyms(told, "segment.bytes") == [
        Synonym("log.segment.bytes", "2000000", 4),
        Synonym("log.segment.bytes", "1073741824", 5),
    ]
    broker = describe(desk, BROKER, "1")
    assert (broker["log.segment.bytes"].value, broker["log.segment.bytes"].config_source) == (
        "2000000",
        Source.STATIC_BROKER,
    )


def test_keys_are_a_filter(desk: Desk) -> None:
    assert list(describe(desk, TOPIC, "a", ["retention.ms", "none"])) == ["retention.ms"]
    assert describe(desk, TOPIC, "a", []).keys() == TOPIC_SETTINGS.keys()


def test_the_broker_tells_all_its_settings(desk: Desk) -> None:
    told = describe(desk, BROKER, "1")
    assert told.keys() >= BROKER_SETTINGS.keys()
    assert told["remote.log.storage.system.enable"].value == "false"
    assert told["broker.id"].value == told["node.id"].value == "1"
    assert told["default.replication.factor"].value == "1"
    assert told["num.partitions"].read_only
    assert not told["log.retention.ms"].read_only
    assert told["log.retention.ms"].value is None
    assert describe(desk, BROKER, "") == {}


@pytest.mark.parametrize(
    "kind, name, error, message",
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string "),
        (TOPIC, "../x", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '../x' contai"),
        (BROKER, "2", BAD, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER, "x", BAD, "Broker id must be an integer, but it is: x"),
        (8, "", BAD, "Broker id must not be empty"),
        (8, "2", BAD, "Unexpected broker id, expected 1 but received 2"),
        (8, "x", BAD, "Broker id must be an integer, but it is: x"),
        (16, "", BAD, "Client metrics subscription name must not be empty"),
        (32, "", BAD, "Group name must not be empty"),
        (0, "x", BAD, "This most likely occurs because of a request being malformed by the cli"),
        (77, "x", BAD, "This most likely occurs because of a request being malformed by the cl"),
    ],
)
def test_what_has_no_configs(
    desk: Desk, kind: int, name: str, error: ErrorCode, message: str
) -> None:
    code, told = unknown(desk, kind, name)
    assert code == error
    assert (told or "").startswith(message)


@pytest.mark.parametrize("kind", [8, 16, 32])
def test_kinds_that_kafka_has_and_we_do_not_are_empty(desk: Desk, kind: int) -> None:
    assert describe(desk, kind, "1") == {}


# Changing one by one.


@pytest.mark.parametrize("version", range(2))
def test_set_and_delete(desk: Desk, version: int) -> None:
    changes = ("retention.bytes", SET, " 99 "), ("retention.ms", DELETE, None)
    assert change(desk, TOPIC, "a", *changes, version=version) == DONE
    assert overrides(desk) == {"retention.bytes": "99"}
    topic = desk.broker.topics.get("a")
    assert topic is not None
    assert (topic.config.retention_bytes, topic.config.retention_ms) == (99, 604_800_000)
    assert topic.partitions[0].log.config.retention_bytes == 99

    desk.crash()
    assert overrides(desk) == {"retention.bytes": "99"}


def test_deleting_what_is_not_set_is_no_error(desk: Desk) -> None:
    changes = ("retention.bytes", DELETE, None), ("none", DELETE, None)
    assert change(desk, TOPIC, "a", *changes) == DONE
    assert overrides(desk) == {"retention.ms": "5000"}


def test_lists_grow_and_shrink_from_what_holds(desk: Desk) -> None:
    for operation, value, after in [
        (APPEND, "delete", None),
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "delete", "compact"),
        (APPEND, "delete, compact", "compact,delete"),
        (SUBTRACT, "compact,delete", ""),
    ]:
        assert change(desk, TOPIC, "b", ("cleanup.policy", operation, value)) == DONE
        assert overrides(desk, "b").get("cleanup.policy") == after


def test_all_or_nothing(desk: Desk) -> None:
    changes = ("retention.bytes", SET, "7"), ("retention.ms", SET, "x")
    assert change(desk, TOPIC, "a", *changes) == (CONFIG, NOT_LONG)
    assert overrides(desk) == {"retention.ms": "5000"}


def test_validate_only_changes_nothing(desk: Desk) -> None:
    assert change(desk, TOPIC, "a", ("retention.ms", SET, "6"), validate_only=True) == DONE
    bad = change(desk, TOPIC, "a", ("retention.ms", SET, "x"), validate_only=True)
    assert bad == (CONFIG, NOT_LONG)
    assert overrides(desk) == {"retention.ms": "5000"}


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ([("none", SET, "1")], CONFIG, "Unknown topic config name: none"),
        ([("retention.ms", APPEND, "1")], CONFIG, "Can't APPEND to key retention.ms because its"),
        ([("none", SUBTRACT, "1")], CONFIG, "Can't SUBTRACT to key none because its type is not"),
        ([("cleanup.policy", APPEND, "x")], CONFIG, "Invalid value x for configuration cleanup."),
        ([("retention.ms", SET, None)], BAD, "Null value not supported for : retention.ms"),
        ([("cleanup.policy", APPEND, None)], BAD, "Null value not supported for : cleanup.policy"),
        ([("retention.ms", 9, "1")], BAD, "Unknown operation type 9"),
        ([("retention.ms", SET, "1")] * 2, BAD, "Error due to duplicate config keys"),
        ([("headwater.overflow", SET, "drop")], CONFIG, "headwater.overflow=drop needs a bound"),
    ],
)
def test_refused_changes_of_a_topic(
    desk: Desk, changes: list[tuple[str, int, str | None]], error: ErrorCode, message: str
) -> None:
    code, told = change(desk, TOPIC, "a", *changes)
    assert code == error
    assert (told or "").startswith(message)
    assert overrides(desk) == {"retention.ms": "5000"}


@pytest.mark.parametrize(
    "kind, name, error, message",
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'none' does not exist."),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: 'a b' contains"),
        (TOPIC, "", BAD, "Default topic resources are not allowed."),
        (BROKER, "2", BAD, "Unexpected broker id, expected 1, but received 2"),
        (BROKER, "x", BAD, "Node id must be an integer, but it is: x"),
        (8, "1", CONFIG, "Logger retention.ms does not exist!"),
        (16, "m", BAD, "Unknown client metrics configuration: retention.ms"),
        (32, "g", CONFIG, "Unknown group config name: retention.ms"),
        (0, "x", BAD, "Unknown resource type 0"),
        (77, "x", BAD, "Unknown resource type 77"),
    ],
)
def test_resources_that_cannot_be_changed(
    desk: Desk, kind: int, name: str, error: ErrorCode, message: str
) -> None:
    code, told = change(desk, kind, name, ("retention.ms", SET, "1"))
    assert code == error
    assert (told or "").startswith(message)


def test_a_resource_may_stand_in_a_request_once(desk: Desk) -> None:
    configs = [IncrementalAlterConfigsRequest.AlterableConfig("retention.ms", SET, "1")]
    resources = [
        IncrementalAlterConfigsRequest.AlterConfigsResource(TOPIC, name, configs)
        for name in ("a", "b", "a")
    ]
    results = desk.ask(IncrementalAlterConfigsRequest(resources)).responses
    once = "Each resource must appear at most once."
    assert [(result.error_code, result.error_message) for result in results] == [
        (BAD, once),
        (0, None),
        (BAD, once),
    ]
    assert (overrides(desk), overrides(desk, "b")) == (
        {"retention.ms": "5000"},
        {"retention.ms": "1"},
    )


def test_no_change_when_the_disk_is_full(desk: Desk) -> None:
    desk.disk.fail_at(desk.disk.operations + 1, OSError(28, "No space left on device"))
    code, _ = change(desk, TOPIC, "a", ("retention.ms", SET, "1"))
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    assert overrides(desk) == {"retention.ms": "5000"}


# Replacing all.


@pytest.mark.parametrize("version", range(3))
def test_what_is_not_named_goes_back_to_its_default(desk: Desk, version: int) -> None:
    assert replace(desk, TOPIC, "a", ("retention.bytes", "5"), version=version) == DONE
    assert overrides(desk) == {"retention.bytes": "5"}
    assert replace(desk, TOPIC, "a", version=version) == DONE
    assert overrides(desk) == {}


@pytest.mark.parametrize(
    "configs, error, message",
    [
        ([("none", "1")], CONFIG, "Unknown topic config name: none"),
        ([("retention.ms", "x")], CONFIG, NOT_LONG),
        ([("retention.ms", None)], BAD, "Null value not supported for : retention.ms"),
        ([("retention.ms", "1")] * 2, BAD, "Error due to duplicate config keys"),
    ],
)
def test_refused_replacements(
    desk: Desk, configs: list[tuple[str, str | None]], error: ErrorCode, message: str
) -> None:
    assert replace(desk, TOPIC, "a", *configs) == (error, message)
    assert overrides(desk) == {"retention.ms": "5000"}


def test_a_replacement_can_be_tried(desk: Desk) -> None:
    assert replace(desk, TOPIC, "a", validate_only=True) == DONE
    assert overrides(desk) == {"retention.ms": "5000"}


def test_loggers_cannot_be_replaced(desk: Desk) -> None:
    assert replace(desk, 8, "1", ("x", "DEBUG")) == (BAD, "Unknown resource type 8")


# The broker while it runs.


def test_a_default_set_at_run_time_reaches_every_topic_without_its_own(desk: Desk) -> None:
    assert change(desk, BROKER, "1", ("log.retention.ms", SET, "99")) == DONE
    told = describe(desk, TOPIC, "b")
    assert (told["retention.ms"].value, told["retention.ms"].config_source) == ("99", 2)
    assert synonyms(told, "retention.ms") == [
        Synonym("log.retention.ms", "99", 2),
        Synonym("log.retention.hours", "168", 5),
    ]
    partition = desk.broker.topics.partition("b", 0)
    assert partition is not None
    assert partition.log.config.retention_ms == 99
    assert describe(desk, TOPIC, "a")["retention.ms"].value == "5000"

    desk.crash()
    assert describe(desk, TOPIC, "b")["retention.ms"].value == "99"
    desk.broker.topics.create([NewTopic("c", 1, {})])
    assert describe(desk, TOPIC, "c")["retention.ms"].value == "99"


def test_this_node_stands_above_every_node(desk: Desk) -> None:
    change(desk, BROKER, "", ("log.retention.ms", SET, "88"))
    assert describe(desk, TOPIC, "b")["retention.ms"].config_source == 3
    change(desk, BROKER, "1", ("log.retention.ms", SET, "99"))
    told = describe(desk, BROKER, "1")
    assert synonyms(told, "log.retention.ms") == [
        Synonym("log.retention.ms", "99", 2),
        Synonym("log.retention.ms", "88", 3),
        Synonym("log.retention.hours", "168", 5),
    ]
    every = describe(desk, BROKER, "")
    assert synonyms(every, "log.retention.ms") == [Synonym("log.retention.ms", "88", 3)]
    assert every["log.retention.ms"].value == "88"

    change(desk, BROKER, "1", ("log.retention.ms", DELETE, None))
    assert describe(desk, TOPIC, "b")["retention.ms"].value == "88"
    replace(desk, BROKER, "")
    assert describe(desk, TOPIC, "b")["retention.ms"].value == "604800000"
    assert desk.broker.store.broker_configs == {}


def test_lists_of_the_broker(desk: Desk) -> None:
    assert change(desk, BROKER, "1", ("log.cleanup.policy", APPEND, "compact")) == DONE
    assert describe(desk, TOPIC, "b")["cleanup.policy"].value == "delete,compact"


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ([("num.partitions", SET, "3")], BAD, "Cannot update these configs dynamically: [num.part"),
        (
            [("num.partitions", SET, "3"), ("log.dirs", SET, "x")],
            BAD,
            "Cannot update these configs dynamically: [num.partitions, log.dirs]",
        ),
        ([("log.retention.ms", SET, "x")], BAD, "Invalid value x for configuration log.retention."),
        ([("log.segment.bytes", SET, "1")], BAD, "Invalid value 1 for configuration log.segment.b"),
        (
            [("log.retention.ms", APPEND, "1")],
            CONFIG,
            "Config value append is not allowed for config key: log.retention.ms",
        ),
        ([("log.retention.m", SET, "1")], CONFIG, "Unknown broker config name: log.retention.m"),
        ([("log.retention.ms", SET, None)], BAD, "Null value not supported for : log.retention.ms"),
        ([("headwater.overflow", SET, "drop")], BAD, "headwater.overflow=drop needs a bound"),
    ],
)
def test_refused_changes_of_the_broker(
    desk: Desk, changes: list[tuple[str, int, str | None]], error: ErrorCode, message: str
) -> None:
    code, told = change(desk, BROKER, "1", *changes)
    assert code == error
    assert (told or "").startswith(message)
    assert desk.broker.store.broker_configs == {}


def test_a_default_that_some_topic_cannot_bear_is_refused(desk: Desk) -> None:
    change(desk, TOPIC, "a", ("max.compaction.lag.ms", SET, "5"))
    default = ("log.cleaner.min.compaction.lag.ms", SET, "10")
    code, message = change(desk, BROKER, "1", default)
    assert code == BAD
    assert (message or "").startswith("conflict topic config setting")
    assert describe(desk, TOPIC, "b")["min.compaction.lag.ms"].value == "0"


def test_the_broker_can_be_tried_too(desk: Desk) -> None:
    tried = change(desk, BROKER, "1", ("log.retention.ms", SET, "9"), validate_only=True)
    assert tried == DONE
    assert describe(desk, TOPIC, "b")["retention.ms"].value == "604800000"
    assert desk.broker.store.broker_configs == {}


def test_an_override_that_this_version_does_not_know_is_left_alone(desk: Desk) -> None:
    overrides = {"1:from.the.future": "1", "1:log.retention.ms": "9"}
    desk.broker.store.set_broker_configs(overrides, desk.broker.store.topic_defaults)
    desk.crash()
    assert describe(desk, TOPIC, "b")["retention.ms"].value == "9"


def test_producers_expire_by_the_value_that_holds_now(desk: Desk) -> None:
    assert change(desk, BROKER, "1", ("producer.id.expiration.ms", SET, "1000")) == DONE
    logs = [partition.log for topic in desk.broker.topics for partition in topic.partitions]
    assert {log.producer_id_expiration_ms for log in logs} == {1_000}
    desk.crash()
    desk.broker.topics.create([NewTopic("new", 1, {})])
    logs = [partition.log for topic in desk.broker.topics for partition in topic.partitions]
    assert {log.producer_id_expiration_ms for log in logs} == {1_000}


# Topics that hold the broker's own state.


@pytest.fixture(params=["__consumer_offsets", "__transaction_state"])
def state_topic(desk: Desk, request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    desk.broker.create_on_demand([name], allowed=True)
    return name


@pytest.mark.parametrize(
    "changes, word",
    [
        ([("cleanup.policy", SET, "delete")], "cleanup.policy=delete"),
        ([("cleanup.policy", SET, "compact,delete")], "cleanup.policy=compact,delete"),
        ([("cleanup.policy", APPEND, "delete")], "cleanup.policy=compact,delete"),
        ([("cleanup.policy", SUBTRACT, "compact")], "cleanup.policy="),
        ([("cleanup.policy", DELETE, None)], "cleanup.policy=delete"),
        ([("flush.messages", SET, "2")], "flush.messages=2"),
        ([("retention.ms", SET, "1"), ("cleanup.policy", SET, "delete")], "cleanup.policy=delete"),
    ],
)
@pytest.mark.parametrize("validate_only", [True, False])
def test_a_change_that_would_lose_the_brokers_state(
    desk: Desk,
    state_topic: str,
    changes: list[tuple[str, int, str | None]],
    word: str,
    *,
    validate_only: bool,
) -> None:
    before = overrides(desk, state_topic)
    code, message = change(desk, TOPIC, state_topic, *changes, validate_only=validate_only)
    assert code == CONFIG
    assert (message or "").startswith(f"{state_topic} holds all ")
    assert word in (message or "")
    assert overrides(desk, state_topic) == before


def test_a_replacement_that_would_lose_the_brokers_state(desk: Desk, state_topic: str) -> None:
    before = overrides(desk, state_topic)
    # What is not named goes back to its default, which is to delete.
    code, message = replace(desk, TOPIC, state_topic, ("segment.bytes", "1048576"))
    assert code == CONFIG
    assert "cleanup.policy=delete" in (message or "")
    assert overrides(desk, state_topic) == before
    assert replace(desk, TOPIC, state_topic, ("cleanup.policy", "compact")) == DONE


def test_changes_that_the_brokers_state_can_bear(desk: Desk, state_topic: str) -> None:
    harmless = [("retention.ms", SET, "1000"), ("segment.bytes", SET, "2097152")]
    assert change(desk, TOPIC, state_topic, *harmless) == DONE
    assert change(desk, TOPIC, state_topic, ("flush.messages", DELETE, None)) == DONE


def test_a_default_of_the_broker_that_would_lose_its_state(desk: Desk, state_topic: str) -> None:
    default = ("log.flush.interval.messages", SET, "10")
    assert change(desk, BROKER, "1", default) == DONE
    code, message = change(desk, TOPIC, state_topic, ("flush.messages", DELETE, None))
    assert code == CONFIG
    assert "flush.messages=10" in (message or "")
    assert describe(desk, TOPIC, state_topic)["flush.messages"].value == "1"


def test_a_default_that_would_reach_a_topic_with_the_brokers_state(
    desk: Desk, state_topic: str
) -> None:
    assert change(desk, TOPIC, state_topic, ("flush.messages", DELETE, None)) == DONE
    for resource in ("1", ""):
        code, message = change(desk, BROKER, resource, ("log.flush.interval.messages", SET, "10"))
        assert code == ErrorCode.INVALID_REQUEST
        assert (message or "").startswith(f"{state_topic} holds all ")
    assert describe(desk, TOPIC, state_topic)["flush.messages"].value == "1"


def test_a_start_with_a_default_that_would_lose_the_brokers_state(
    desk: Desk, state_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert change(desk, TOPIC, state_topic, ("flush.messages", DELETE, None)) == DONE
    desk.settings = desk.settings.with_overrides({"log.flush.interval.messages": "10"})
    desk.crash()
    assert describe(desk, TOPIC, state_topic)["flush.messages"].value == "1"
    assert describe(desk, TOPIC, state_topic)["cleanup.policy"].value == "compact"
    assert f"{state_topic} holds all " in caplog.text
