"""The settings of a broker and the defaults they give to topics."""

import pytest

from headwater.base.errors import HeadwaterError, KafkaError
from headwater.base.settings import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerSettings,
    TopicConfig,
    split_address,
    split_overrides,
)

HOUR_MS = 3_600_000


def test_a_broker_that_was_told_nothing_gives_topics_their_own_defaults() -> None:
    assert TopicConfig() == BrokerSettings().topic_defaults()


@pytest.mark.parametrize(
    "configs, field, value",
    [
        ({"log.retention.ms": "5"}, "retention_ms", 5),
        ({"log.retention.minutes": "2"}, "retention_ms", 120_000),
        ({"log.retention.hours": "3"}, "retention_ms", 3 * HOUR_MS),
        ({"log.retention.hours": "-1"}, "retention_ms", -1),
        ({"log.retention.minutes": "2", "log.retention.hours": "3"}, "retention_ms", 120_000),
        ({"log.retention.ms": "-1", "log.retention.minutes": "2"}, "retention_ms", -1),
        ({"log.retention.ms": "-7"}, "retention_ms", -1),
        ({"log.roll.hours": "1"}, "segment_ms", HOUR_MS),
        ({"log.roll.ms": "9", "log.roll.hours": "1"}, "segment_ms", 9),
        ({"log.roll.jitter.hours": "1"}, "segment_jitter_ms", HOUR_MS),
        ({"log.roll.jitter.ms": "9"}, "segment_jitter_ms", 9),
        ({"log.flush.interval.ms": "9"}, "flush_ms", 9),
        ({"message.max.bytes": "9"}, "max_message_bytes", 9),
        ({"log.flush.interval.messages": "9"}, "flush_messages", 9),
        ({"log.cleaner.min.cleanable.ratio": "0.9"}, "min_cleanable_dirty_ratio", 0.9),
    ],
)
def test_broker_settings_are_synonyms_of_topic_configs(
    configs: dict[str, str], field: str, value: object
) -> None:
    assert value == getattr(BrokerSettings.parse(configs).topic_defaults(), field)


def test_which_settings_are_looked_at_again_on_a_running_broker() -> None:
    defaults = {setting.server_default for setting in TOPIC_SETTINGS.values()}
    dynamic = {name for name, setting in BROKER_SETTINGS.items() if setting.dynamic}
    assert dynamic - defaults == {
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.threads",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "producer.id.expiration.ms",
        "transaction.partition.verification.enable",
    }


@pytest.mark.parametrize(
    "configs, reason",
    [
        ({"num.partition": "1"}, "Unknown broker config name: num.partition; did you mean num.p"),
        ({"num.partitions": "0"}, "Value must be at least 1"),
        ({"log.retention.ms": "0"}, "log.retention.ms must be 1 or more"),
        ({"log.retention.minutes": "0"}, "log.retention.ms must be 1 or more"),
        ({"log.retention.hours": "0"}, "log.retention.ms must be 1 or more"),
        ({"default.replication.factor": "3"}, "Value must be no more than 1"),
        ({"queued.max.request.bytes": "1000"}, "must not be below socket.request.max.bytes"),
        ({"group.min.session.timeout.ms": "1900000"}, "must not be above group.max.session"),
        ({"headwater.overflow": "drop"}, "needs a bound"),
        ({"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"}, "("),
    ],
)
def test_refuses_what_cannot_be(configs: dict[str, str], reason: str) -> None:
    with pytest.raises(KafkaError) as caught:
        BrokerSettings.parse(configs)
    assert reason in caught.value.message


@pytest.mark.parametrize(
    "text, address",
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("PLAINTEXT://host.example:0", ("host.example", 0)),
        ("[::1]:1", ("::1", 1)),
        (":9092", ("", 9092)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert address == split_address(text)
    assert address == BrokerSettings(listeners=text).listen_address
    assert address == BrokerSettings(advertised_listeners=text).advertised_address


@pytest.mark.parametrize("text", ["", "host", "host:", "host:99999", "host:-1", "SSL://h:1", "h:٣"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(HeadwaterError) as caught:
        split_address(text)
    assert caught.value.hint


def test_without_an_advertised_address_there_is_none() -> None:
    assert BrokerSettings().advertised_address is None


def test_bounds_of_single_addresses() -> None:
    overrides = "127.0.0.1:100, [::1]:5,0:0:0:0:0:0:0:2:7,"
    settings = BrokerSettings.parse({"max.connections.per.ip.overrides": overrides})
    assert split_overrides(settings.max_connections_per_ip_overrides) == {
        "127.0.0.1": 100,
        "::1": 5,
        "::2": 7,
    }


@pytest.mark.parametrize("text", ["127.0.0.1", "localhost:5", "127.0.0.1:many", ":5"])
def test_bounds_of_what_is_no_address(text: str) -> None:
    with pytest.raises(KafkaError, match=r"max\.connections\.per\.ip\.overrides"):
        BrokerSettings.parse({"max.connections.per.ip.overrides": text})
