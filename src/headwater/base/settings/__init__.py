"""Settings: what can be set, what it may be, and where a value came from.

Takes: text from Kafka clients, TOML files, the environment and flags.
Gives: `TopicConfig`, `BrokerSettings`, `load_settings`, and a table of facts about each setting.
May import: headwater.base.errors, headwater.base.spelling.
Start reading at: `headwater.base.settings.setting`, then `topic` and `broker`.
"""

from headwater.base.settings.addresses import split_address, split_overrides
from headwater.base.settings.broker import (
    BROKER_SETTINGS,
    BrokerSettings,
    unknown_broker_config,
)
from headwater.base.settings.dynamic import (
    EVERY_NODE,
    InForce,
    Overrides,
    by_resource,
    held_at_start,
    lay_over_what_agrees,
)
from headwater.base.settings.loading import Loaded, Shown, load_settings, variable_for
from headwater.base.settings.setting import Kind, Setting, Value
from headwater.base.settings.topic import TOPIC_SETTINGS, TopicConfig, unknown_topic_config

__all__ = [
    "BROKER_SETTINGS",
    "EVERY_NODE",
    "TOPIC_SETTINGS",
    "BrokerSettings",
    "InForce",
    "Kind",
    "Loaded",
    "Overrides",
    "Setting",
    "Shown",
    "TopicConfig",
    "Value",
    "by_resource",
    "held_at_start",
    "lay_over_what_agrees",
    "load_settings",
    "split_address",
    "split_overrides",
    "unknown_broker_config",
    "unknown_topic_config",
    "variable_for",
]
