"""Kafka's settings that can have only one value here.

This file alone decides which of them tools are told beside the settings that can be set. Each value
is the one in force: where a thing does not exist, the setting says so, and a setting that would
mean nothing here is not told at all. None can be changed, neither at the start nor later.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from headwater.base.settings import Kind, Setting
from headwater.base.settings.setting import Value


def _fixed(name: str, kind: Kind, value: Value, documentation: str) -> Setting:
    return Setting(name, kind, value, documentation, optional=value is None)


def _by_name(settings: Iterable[Setting]) -> dict[str, Setting]:
    return {setting.name: setting for setting in settings}


FIXED_CONFIGS: Final[Mapping[str, Setting]] = _by_name(
    (
        # The node.
        _fixed("process.roles", Kind.LIST, "broker,controller", "One node is everything."),
        _fixed("broker.rack", Kind.STRING, None, "One node stands in no rack."),
        _fixed(
            "auto.leader.rebalance.enable",
            Kind.BOOLEAN,
            value=False,
            documentation="The only replica always leads.",
        ),
        _fixed("replica.selector.class", Kind.STRING, None, "Consumers read from the leader."),
        _fixed("metadata.log.dir", Kind.STRING, None, "Metadata lies beside the records."),
        _fixed("cordoned.log.dirs", Kind.LIST, "", "The one directory takes new partitions."),
        _fixed(
            "num.recovery.threads.per.data.dir",
            Kind.INT,
            1,
            "Partitions are recovered one after the other.",
        ),
        _fixed(
            "group.coordinator.rebalance.protocols",
            Kind.LIST,
            "classic",
            "The protocols that groups can speak.",
        ),
        _fixed(
            "offsets.topic.compression.codec",
            Kind.INT,
            0,
            "Committed offsets are not compressed.",
        ),
        _fixed(
            "transaction.two.phase.commit.enable",
            Kind.BOOLEAN,
            value=False,
            documentation="No transaction is prepared by a client and ended by another.",
        ),
        _fixed(
            "remote.log.storage.system.enable",
            Kind.BOOLEAN,
            value=False,
            documentation="No records are kept elsewhere.",
        ),
        _fixed(
            "remote.log.storage.manager.class.name",
            Kind.STRING,
            None,
            "No records are kept elsewhere.",
        ),
        # The network and who may use it.
        _fixed(
            "listener.security.protocol.map",
            Kind.STRING,
            "PLAINTEXT:PLAINTEXT",
            "The one listener and its protocol.",
        ),
        _fixed("early.start.listeners", Kind.LIST, None, "No listener opens before the others."),
        _fixed(
            "socket.receive.buffer.bytes", Kind.INT, -1, "The system chooses and adapts the size."
        ),
        _fixed("socket.send.buffer.bytes", Kind.INT, -1, "The system chooses and adapts the size."),
        _fixed("authorizer.class.name", Kind.STRING, "", "Everybody may do everything."),
        _fixed("sasl.enabled.mechanisms", Kind.LIST, "", "Nobody is authenticated."),
        _fixed("connections.max.reauth.ms", Kind.LONG, 0, "Nobody has to authenticate again."),
        _fixed("ssl.client.auth", Kind.STRING, "none", "There is no TLS."),
        _fixed("ssl.keystore.location", Kind.STRING, None, "There is no TLS."),
        _fixed("ssl.truststore.location", Kind.STRING, None, "There is no TLS."),
        _fixed("security.providers", Kind.STRING, None, "There are no plugins."),
        # Plugins.
        _fixed("alter.config.policy.class.name", Kind.CLASS, None, "There are no plugins."),
        _fixed("create.topic.policy.class.name", Kind.CLASS, None, "There are no plugins."),
        _fixed("client.quota.callback.class", Kind.CLASS, None, "There are no plugins."),
        _fixed("config.providers", Kind.LIST, "", "There are no plugins."),
        _fixed("metric.reporters", Kind.LIST, "", "There are no plugins."),
        _fixed("kafka.metrics.reporters", Kind.LIST, "", "There are no plugins."),
    )
)
"""The settings by name; the default of each is its value."""

OTHER_NAMES: Final[Mapping[str, Setting]] = {
    "node.id": _fixed("broker.id", Kind.INT, -1, "The id of this broker, by its older name."),
    "log.dirs": _fixed("log.dir", Kind.LIST, "", "The data directory, by its older name."),
}
"""Settings that have the value of another one, by the name of that one."""
