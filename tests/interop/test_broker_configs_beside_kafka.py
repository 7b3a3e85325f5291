"""What the broker tells of its settings, held against Apache Kafka: names, types and defaults.

Every setting that is told is one of Kafka's or begins with ``headwater.``, has Kafka's type, and
has Kafka's default, but for those below.
"""

from typing import Any

import pytest

from headwater.base.settings import BROKER_SETTINGS
from headwater.delivery.broker.fixed_configs import FIXED_CONFIGS, OTHER_NAMES
from headwater.delivery.wire.kafka.messages import (
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from headwater.testing.broker import EmbeddedBroker
from tests.delivery.dialects.kafka.desk import ask_over_socket

BROKER = 4
DEFAULT, STATIC = 5, 4

# Kafka's default and ours; what is behind each stands at the setting.
OTHER_DEFAULTS = {
    "auto.leader.rebalance.enable": ("true", "false"),
    "group.coordinator.rebalance.protocols": ("classic,consumer,streams", "classic"),
    "listener.security.protocol.map": (
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "PLAINTEXT:PLAINTEXT",
    ),
    "listeners": ("PLAINTEXT://:9092", "PLAINTEXT://127.0.0.1:9092"),
    "log.dirs": (None, "./headwater-data"),
    "log.flush.interval.messages": ("9223372036854775807", "1"),
    "metric.reporters": ("org.apache.kafka.common.metrics.JmxReporter", ""),
    "num.recovery.threads.per.data.dir": ("2", "1"),
    "offsets.topic.num.partitions": ("50", "4"),
    "offsets.topic.replication.factor": ("3", "1"),
    "process.roles": (None, "broker,controller"),
    "queued.max.request.bytes": ("-1", "268435456"),
    "sasl.enabled.mechanisms": ("GSSAPI", ""),
    "socket.listen.backlog.size": ("50", "1024"),
    "socket.receive.buffer.bytes": ("102400", "-1"),
    "socket.send.buffer.bytes": ("102400", "-1"),
    "transaction.state.log.min.isr": ("2", "1"),
    "transaction.state.log.num.partitions": ("50", "1"),
    "transaction.state.log.replication.factor": ("3", "1"),
}
# Lists in Kafka, text here: there is one listener and one directory, and either may have a comma.
STRING, LIST = 2, 7
NO_LISTS = {"advertised.listeners", "listeners", "log.dirs"}
# Has no default on either side: it is the broker's own, or another setting's.
OWN = {"node.id", *(setting.name for setting in OTHER_NAMES.values())}


def told(address: str) -> dict[str, Any]:
    """Return every config of the broker by name."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(BROKER, "1", None)
    request = DescribeConfigsRequest([resource], include_synonyms=True, include_documentation=True)
    (result,) = ask_over_socket(address, request).results
    assert result.error_code == 0
    return {config.name: config for config in result.configs}


def default(config: Any) -> str | None:  # noqa: ANN401 - one config of the answer
    """Return what holds where nobody says otherwise."""
    values = [each.value for each in config.synonyms if each.source == DEFAULT]
    named = [each.value for each in config.synonyms if each.name == config.name]
    found: str | None = values[0] if values and named else None
    return found


def test_names_types_and_defaults(apache_kafka: str) -> None:
    with EmbeddedBroker() as broker:
        ours = told(broker.bootstrap_servers)
    theirs = told(apache_kafka)
    kafkas = {name: config for name, config in ours.items() if not name.startswith("headwater.")}

    assert kafkas.keys() <= theirs.keys()
    types = {
        name: (theirs[name].config_type, config.config_type) for name, config in kafkas.items()
    }
    other_types = {name: both for name, both in types.items() if both[0] != both[1]}
    assert other_types == dict.fromkeys(NO_LISTS, (LIST, STRING))
    differing = {
        name: (default(theirs[name]), default(config))
        for name, config in kafkas.items()
        if name not in OWN and default(theirs[name]) != default(config)
    }
    assert differing == OTHER_DEFAULTS
    # What Kafka can change while it runs may be fixed here, never the other way round.
    assert all(config.read_only or not theirs[name].read_only for name, config in kafkas.items())
    assert all(config.documentation for config in ours.values())


def test_every_value_told_is_the_one_in_force(tmp_path: Any) -> None:  # noqa: ANN401 - a path
    settings = {"node.id": "1", "num.partitions": "7"}
    with EmbeddedBroker(data_directory=str(tmp_path), settings=settings) as broker:
        configs = told(broker.bootstrap_servers)
        address = broker.bootstrap_servers

    assert not FIXED_CONFIGS.keys() & BROKER_SETTINGS.keys()
    assert configs.keys() == (
        BROKER_SETTINGS.keys() | FIXED_CONFIGS.keys() | {each.name for each in OTHER_NAMES.values()}
    )
    values = {name: (config.value, config.config_source) for name, config in configs.items()}
    assert values["listeners"] == (f"PLAINTEXT://{address}", STATIC), "the port the system chose"
    assert values["advertised.listeners"] == values["listeners"]
    assert values["log.dirs"] == values["log.dir"] == (str(tmp_path), STATIC)
    assert values["num.partitions"] == ("7", STATIC)
    assert values["broker.id"] == values["node.id"] == ("1", DEFAULT)
    assert values["authorizer.class.name"] == ("", DEFAULT)


@pytest.mark.parametrize("name", ["process.roles", "broker.id", "num.io.threads"])
def test_what_is_fixed_cannot_be_changed(name: str) -> None:
    asked = IncrementalAlterConfigsRequest
    config = asked.AlterableConfig(name, 0, "5")
    request = asked([asked.AlterConfigsResource(BROKER, "1", [config])])
    with EmbeddedBroker() as broker:
        (answer,) = ask_over_socket(broker.bootstrap_servers, request).responses

    assert answer.error_code != 0
    if name in FIXED_CONFIGS or name == "broker.id":
        assert answer.error_message == f"Cannot update these configs dynamically: [{name}]"
