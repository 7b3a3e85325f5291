"""DescribeConfigs, v1-4, AlterConfigs, v0-2, IncrementalAlterConfigs, v0-1.

Changes of the broker's own configs are held against Apache Kafka's in tests/interop: here the
broker is shared with other tests.
"""

import time
from typing import Any

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.client.errors import BrokerTimeoutError
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import (
    Subject,
    Talk,
    Topic,
    code,
    create_topic,
    missing_topic,
    topic_configs,
    wait_until_ready,
)

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
# Where a value comes from: the topic's own, or nobody's.
FROM_TOPIC, FROM_DEFAULT = 1, 5
# Types of configs, by their numbers in the protocol.
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = 1, 2, 3, 5, 6, 7
PATIENCE_S = 20.0


# DescribeConfigs


def describe(
    talk: Talk,
    *resources: tuple[int, str, list[str] | None],
    version: int = 4,
    synonyms: bool = False,
    documentation: bool = False,
) -> list[Any]:
    asked = messages.DescribeConfigsRequest.DescribeConfigsResource
    request = messages.DescribeConfigsRequest(
        [asked(*resource) for resource in resources], synonyms, documentation
    )
    return list(talk.ask(request, version).results)


@pytest.fixture
def configured(talk: Talk) -> Topic:
    """Give a topic with two configs of its own."""
    return create_topic(talk, configs={"retention.ms": "5000", "cleanup.policy": "compact"})


@pytest.mark.parametrize("version", range(1, 5))
def test_own_values_and_defaults(talk: Talk, configured: Topic, version: int) -> None:
    (result,) = describe(talk, (TOPIC, configured.name, None), version=version, synonyms=True)

    assert (code(result), result.error_message) == (NONE, "")
    assert (result.resource_type, result.resource_name) == (TOPIC, configured.name)
    told = {config.name: config for config in result.configs}
    own = told["cleanup.policy"]
    assert (own.value, own.config_source, own.read_only, own.is_sensitive) == (
        "compact",
        FROM_TOPIC,
        False,
        False,
    )
    assert [(each.name, each.value, each.source) for each in own.synonyms] == [
        ("cleanup.policy", "compact", FROM_TOPIC),
        ("log.cleanup.policy", "delete", FROM_DEFAULT),
    ]
    default = told["max.message.bytes"]
    assert (default.value, default.config_source) == ("1048588", FROM_DEFAULT)
    assert [(each.name, each.value, each.source) for each in default.synonyms] == [
        ("message.max.bytes", "1048588", FROM_DEFAULT)
    ]
    # Types are told since v3.
    assert (own.config_type, default.config_type) == ((LIST, INT) if version >= 3 else (0, 0))


def test_every_config_of_a_topic(broker: Subject, talk: Talk, topic: Topic) -> None:
    (result,) = describe(talk, (TOPIC, topic.name, None))

    types = {config.name: config.config_type for config in result.configs}
    ours_alone = broker.expected("describe configs: configs of ours alone")
    assert types == {
        "cleanup.policy": LIST,
        "compression.gzip.level": INT,
        "compression.lz4.level": INT,
        "compression.type": STRING,
        "compression.zstd.level": INT,
        "delete.retention.ms": LONG,
        "file.delete.delay.ms": LONG,
        "flush.messages": LONG,
        "flush.ms": LONG,
        "follower.replication.throttled.replicas": LIST,
        "index.interval.bytes": INT,
        "leader.replication.throttled.replicas": LIST,
        "local.retention.bytes": LONG,
        "local.retention.ms": LONG,
        "max.compaction.lag.ms": LONG,
        "max.message.bytes": INT,
        "message.timestamp.after.max.ms": LONG,
        "message.timestamp.before.max.ms": LONG,
        "message.timestamp.type": STRING,
        "min.cleanable.dirty.ratio": DOUBLE,
        "min.compaction.lag.ms": LONG,
        "min.insync.replicas": INT,
        "preallocate": BOOLEAN,
        "remote.log.copy.disable": BOOLEAN,
        "remote.log.delete.on.disable": BOOLEAN,
        "remote.storage.enable": BOOLEAN,
        "retention.bytes": LONG,
        "retention.ms": LONG,
        "segment.bytes": INT,
        "segment.index.bytes": INT,
        "segment.jitter.ms": LONG,
        "segment.ms": LONG,
        "unclean.leader.election.enable": BOOLEAN,
        **ours_alone,
    }


def test_defaults(broker: Subject, talk: Talk, topic: Topic) -> None:
    day_ms = 86_400_000
    expected = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "delete.retention.ms": str(day_ms),
        "file.delete.delay.ms": "60000",
        "flush.ms": str(2**63 - 1),
        "index.interval.bytes": "4096",
        "message.timestamp.after.max.ms": "3600000",
        "message.timestamp.before.max.ms": str(2**63 - 1),
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": "0.5",
        "min.insync.replicas": "1",
        "preallocate": "false",
        "retention.bytes": "-1",
        "retention.ms": str(7 * day_ms),
        "segment.bytes": str(1 << 30),
        "segment.ms": str(7 * day_ms),
        "unclean.leader.election.enable": "false",
        "flush.messages": broker.expected("describe configs: flush.messages"),
    }

    assert topic_configs(talk, topic.name, *expected) == expected


def test_keys_are_a_filter(talk: Talk, configured: Topic) -> None:
    name = configured.name
    some, none_asked, unknown_asked = describe(
        talk,
        (TOPIC, name, ["retention.ms", "no.such.config"]),
        (TOPIC, name, []),
        (TOPIC, name, ["no.such.config"]),
    )

    assert [config.name for config in some.configs] == ["retention.ms"]
    assert len(none_asked.configs) > 20, "an empty list is no filter"
    assert (code(unknown_asked), unknown_asked.configs) == (NONE, [])


@pytest.mark.parametrize("version", range(1, 5))
def test_synonyms_and_documentation_only_when_asked_for(
    talk: Talk, topic: Topic, version: int
) -> None:
    asked = (TOPIC, topic.name, ["max.message.bytes"])
    (plain,) = describe(talk, asked, version=version)
    (full,) = describe(talk, asked, version=version, synonyms=True, documentation=True)

    (config,) = plain.configs
    assert config.synonyms == []
    assert not config.documentation
    (config,) = full.configs
    assert config.synonyms
    assert bool(config.documentation) is (version >= 3)


@pytest.mark.parametrize("version", [1, 4])
def test_resources_that_do_not_exist(talk: Talk, version: int) -> None:
    missing = missing_topic().name
    for kind, name, expected in (
        (TOPIC, missing, UNKNOWN),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
        (77, "x", ErrorCode.INVALID_REQUEST),
    ):
        (result,) = describe(talk, (kind, name, None), version=version)
        assert (kind, name, code(result)) == (kind, name, expected)
        assert (result.resource_type, result.resource_name) == (kind, name)
        assert result.configs == []


def test_configs_of_the_broker(broker: Subject, talk: Talk) -> None:
    (result,) = describe(talk, (BROKER, "1", ["node.id", "log.retention.ms", "num.partitions"]))

    told = {config.name: (config.value, config.read_only) for config in result.configs}
    assert told == {
        "node.id": ("1", True),
        "log.retention.ms": (None, False),
        "num.partitions": ("1", True),
    }


def test_how_many_settings_are_told(broker: Subject, talk: Talk) -> None:
    (of_the_broker,) = describe(talk, (BROKER, "1", None))
    (of_a_group,) = describe(talk, (GROUP, "group", None))

    many, some = broker.expected("describe configs: settings of brokers and groups")
    assert (len(of_the_broker.configs) > 300, len(of_a_group.configs) > 0) == (many, some)
    assert (code(of_the_broker), code(of_a_group)) == (NONE, NONE)


# IncrementalAlterConfigs


def change(
    talk: Talk,
    name: str,
    *changes: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> tuple[ErrorCode, str | None]:
    request = messages.IncrementalAlterConfigsRequest
    configs = [request.AlterableConfig(*each) for each in changes]
    asked = request.AlterConfigsResource(TOPIC, name, configs)
    (answer,) = talk.ask(request([asked], validate_only), version).responses
    assert (answer.resource_type, answer.resource_name) == (TOPIC, name)
    return code(answer), answer.error_message


def wait_for(talk: Talk, topic: Topic, **expected: str) -> None:
    """Wait until configs have their values: Apache Kafka answers before it tells all of itself."""
    values = {name.replace("_", "."): value for name, value in expected.items()}
    end_s = time.monotonic() + PATIENCE_S
    while (told := topic_configs(talk, topic.name, *values)) != values:
        assert time.monotonic() < end_s, told


@pytest.mark.parametrize("version", [0, 1])
def test_single_configs_are_changed(talk: Talk, configured: Topic, version: int) -> None:
    name = configured.name

    def alter(*changes: tuple[str, int, str | None]) -> None:
        assert change(talk, name, *changes, version=version) == (NONE, None)

    alter(("retention.ms", SET, "8"), ("retention.bytes", SET, "9"))
    wait_for(talk, configured, retention_ms="8", retention_bytes="9", cleanup_policy="compact")
    alter(("retention.ms", DELETE, None))
    wait_for(talk, configured, retention_ms="604800000", retention_bytes="9")
    alter(("cleanup.policy", APPEND, "delete"))
    wait_for(talk, configured, cleanup_policy="compact,delete")
    alter(("cleanup.policy", SUBTRACT, "compact"))
    wait_for(talk, configured, cleanup_policy="delete")
    alter(("no.such.config", DELETE, None))
    alter()


@pytest.mark.parametrize("version", [0, 1])
def test_changes_that_are_refused(talk: Talk, configured: Topic, version: int) -> None:
    name = configured.name
    not_a_list = "Can't APPEND to key retention.ms because its type is not LIST."
    for changes, expected, words in (
        ([("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG, not_a_list),
        (
            [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (
            [("retention.ms", SET, "x")],
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            [("no.such.config", SET, "x")],
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: no.such.config",
        ),
        (
            [("retention.ms", SET, None)],
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (
            [("retention.bytes", SET, "7"), ("retention.ms", SET, "x")],
            ErrorCode.INVALID_CONFIG,
            "retention.ms",
        ),
    ):
        for validate_only in (True, False):
            error, message = change(
                talk, name, *changes, version=version, validate_only=validate_only
            )
            assert error is expected
            assert words in (message or "")
    # Nothing of a refused change is done, not even its good half.
    told = topic_configs(talk, name, "retention.ms", "retention.bytes")
    assert told == {"retention.ms": "5000", "retention.bytes": "-1"}


def test_validate_only_changes_nothing(talk: Talk, configured: Topic) -> None:
    validated = change(talk, configured.name, ("retention.ms", SET, "8"), validate_only=True)
    assert validated == (NONE, None)
    # A change of another config behind it shows that the first would be seen by now.
    change(talk, configured.name, ("retention.bytes", SET, "9"))
    wait_for(talk, configured, retention_bytes="9")

    assert topic_configs(talk, configured.name, "retention.ms") == {"retention.ms": "5000"}


def test_changes_of_what_does_not_exist(talk: Talk) -> None:
    missing = missing_topic().name
    setting = ("retention.ms", SET, "8")

    assert change(talk, missing, setting) == (UNKNOWN, f"The topic '{missing}' does not exist.")
    assert change(talk, "", setting)[0] is ErrorCode.INVALID_REQUEST
    assert change(talk, "a b", setting)[0] is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_resource_that_stands_twice(talk: Talk, configured: Topic) -> None:
    asked = messages.IncrementalAlterConfigsRequest.AlterConfigsResource(TOPIC, configured.name)

    answer = talk.ask(messages.IncrementalAlterConfigsRequest([asked, asked]), 1)

    twice = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    assert [(code(each), each.error_message) for each in answer.responses] == [twice, twice]


def test_an_operation_that_does_not_exist(broker: Subject, talk: Talk, configured: Topic) -> None:
    error, _ = change(talk, configured.name, ("retention.ms", 9, "1"))

    assert error is broker.expected("alter configs: an unknown operation")


@pytest.mark.parametrize(
    "setting", [("cleanup.policy", SET, "delete"), ("flush.messages", SET, "1000")]
)
def test_topics_that_hold_the_brokers_state(
    broker: Subject, talk: Talk, setting: tuple[str, int, str | None]
) -> None:
    name = "__consumer_offsets"
    asked = messages.MetadataRequest.MetadataRequestTopic(name=name)
    talk.ask(messages.MetadataRequest(topics=[asked], allow_auto_topic_creation=True), 8)
    wait_until_ready(talk, name, 1)

    # Only tried: other tests share the broker.
    error, _ = change(talk, name, setting, validate_only=True)

    assert error is broker.expected("alter configs: the broker's own state")
    assert change(talk, name, ("segment.bytes", SET, "2097152"), validate_only=True)[0] is NONE


# AlterConfigs


@pytest.mark.parametrize("version", range(3))
def test_all_configs_are_replaced(talk: Talk, configured: Topic, version: int) -> None:
    missing = missing_topic().name
    request = messages.AlterConfigsRequest
    configs = [request.AlterableConfig("retention.ms", "7")]
    asked = [
        request.AlterConfigsResource(TOPIC, name, configs) for name in (configured.name, missing)
    ]

    answers = talk.ask(request(asked), version).responses

    found = {each.resource_name: (code(each), each.error_message) for each in answers}
    assert found == {
        configured.name: (NONE, None),
        missing: (UNKNOWN, f"The topic '{missing}' does not exist."),
    }
    # What is not named goes back to its default.
    wait_for(talk, configured, retention_ms="7", cleanup_policy="delete")


def test_a_replaced_resource_that_stands_twice(broker: Subject, configured: Topic) -> None:
    asked = messages.AlterConfigsRequest.AlterConfigsResource(TOPIC, configured.name)
    expected = broker.expected("alter configs: a resource twice")
    with broker.connect() as talk:
        talk.tell(messages.AlterConfigsRequest([asked, asked]), 2)
        if expected is None:
            with pytest.raises(BrokerTimeoutError):
                talk.receive(timeout_s=0.5)
        else:
            assert [code(each) for each in talk.receive().responses] == expected
