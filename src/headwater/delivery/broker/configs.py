"""Which configs hold, where they come from, and how they are changed while the broker runs.

This file alone decides what DescribeConfigs tells and which changes are accepted. Values and their
ranges are `headwater.base.settings`' affair; keeping them is the store's.

A topic has its own overrides over the broker's defaults. A broker has, over what it was started
with, overrides for this node and under them overrides for every node (Kafka's resource ""). The
defaults of topics can be overridden on a running broker, and those settings whose users ask for
changes (`when_changed`): everything else is read once, at the start.
"""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import dropwhile
from typing import Final, NamedTuple

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.settings import (
    BROKER_SETTINGS,
    EVERY_NODE,
    TOPIC_SETTINGS,
    BrokerSettings,
    InForce,
    Kind,
    Overrides,
    Setting,
    TopicConfig,
    by_resource,
    lay_over_what_agrees,
    unknown_broker_config,
)
from headwater.delivery.broker.fixed_configs import FIXED_CONFIGS, OTHER_NAMES
from headwater.delivery.broker.topic_rules import (
    STATE_CONFIGS,
    check_keeps_state,
    check_topic_name,
)
from headwater.delivery.broker.topics import Topics
from headwater.log.store import LogStore

# A setting without a value leaves it to the next one; Kafka tells the whole chain.
_CHAINS: Final[Sequence[tuple[str, ...]]] = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)

_FIXED_NAMES: Final = FIXED_CONFIGS.keys() | {setting.name for setting in OTHER_NAMES.values()}

logger = logging.getLogger(__name__)


class Source(IntEnum):
    """Where a value comes from, by its number in DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class Operation(IntEnum):
    """What IncrementalAlterConfigs does to one config, by its number there."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One config to be changed."""

    name: str
    operation: Operation
    value: str | None


class Synonym(NamedTuple):
    """A value that holds, or would hold if those before it did not."""

    name: str
    value: str | None
    source: Source


class Described(NamedTuple):
    """One config as it stands."""

    setting: Setting
    value: str | None
    source: Source
    read_only: bool
    synonyms: Sequence[Synonym]


class Configs:
    """The configs of all topics and of the broker.

    Attributes:
        in_force: The broker's settings as they are now.
    """

    def __init__(self, store: LogStore, topics: Topics, settings: BrokerSettings) -> None:
        """Bring back what was set on earlier runs.

        Args:
            store: Keeps the overrides.
            topics: The topics.
            settings: What the broker was started with.
        """
        self._store = store
        self._topics = topics
        self._static = settings
        self._node = str(settings.node_id)
        self._when_changed: list[Callable[[BrokerSettings], None]] = []
        self.in_force, self._left_out = lay_over_what_agrees(settings, self._stored())
        store.configure(self.in_force)
        self._warn_of_settings_without_effect()
        self._keep_state()

    def _warn_of_settings_without_effect(self) -> None:
        """Name the settings of this start that give way to what was set on the running broker."""
        defaults = BrokerSettings()
        names = {name for overrides in self._overrides().values() for name in overrides}
        for name in sorted(names):
            given, holds = self._static.render(name), self.in_force.render(name)
            if given not in {holds, defaults.render(name)} and not BROKER_SETTINGS[name].sensitive:
                logger.warning(
                    "%s is %s, which was set on the running broker and holds instead of %s; to go "
                    "back, delete it there, as with kafka-configs --delete-config %s",
                    name,
                    holds,
                    given,
                    name,
                )

    def _keep_state(self) -> None:
        """Protect the broker's own state from defaults that were changed before this start."""
        for topic in self._topics:
            try:
                check_keeps_state(topic.name, topic.config)
            except KafkaError as error:
                logger.warning("%s That is set now for this topic.", error.message)
                self._topics.set_configs(topic.name, {**topic.stored.configs, **STATE_CONFIGS})

    # Telling.

    def describe_topic(self, overrides: Mapping[str, str], config: TopicConfig) -> list[Described]:
        """Tell every config of a topic.

        Args:
            overrides: What the topic says itself.
            config: What holds.
        """
        return [
            self._describe_topic_config(setting, overrides, config)
            for setting in TOPIC_SETTINGS.values()
        ]

    def describe_existing_topic(self, name: str) -> list[Described]:
        """Tell every config of a topic that exists."""
        check_topic_name(name)
        topic = self._topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.describe_topic(topic.stored.configs, topic.config)

    def describe_broker(self, resource: str) -> list[Described]:
        """Tell every setting of this node, or what is overridden for every node."""
        overrides = self._stored()
        if resource == EVERY_NODE:
            return [
                Described(
                    BROKER_SETTINGS[name],
                    value,
                    Source.DYNAMIC_DEFAULT_BROKER,
                    read_only=False,
                    synonyms=[Synonym(name, value, Source.DYNAMIC_DEFAULT_BROKER)],
                )
                for name, value in overrides[EVERY_NODE].items()
            ]
        self.check_node(resource, "Broker", f"{self._node} or empty string,")
        overrides = self._overrides()
        told = [
            self._describe_broker_config(setting, self.in_force, overrides)
            for setting in BROKER_SETTINGS.values()
        ]
        return (
            told
            + [_fixed(setting) for setting in FIXED_CONFIGS.values()]
            + [
                _renamed(each, OTHER_NAMES[each.setting.name])
                for each in told
                if each.setting.name in OTHER_NAMES
            ]
        )

    def tell_in_force(self, configs: Mapping[str, str]) -> None:
        """Tell other values than those of the start, such as a port that the system chose."""
        self._static = self._static.with_overrides(configs)
        self.in_force, self._left_out = lay_over_what_agrees(self._static, self._stored())

    def when_changed(self, action: Callable[[BrokerSettings], None]) -> None:
        """Run the action whenever the broker's settings have changed."""
        self._when_changed.append(action)

    # Changing.

    def alter_topic(
        self, name: str, changes: Sequence[Change], *, keep_others: bool, validate_only: bool
    ) -> None:
        """Change the overrides of a topic.

        Args:
            name: The topic.
            changes: What to do, no config twice.
            keep_others: Whether overrides that are not mentioned stay.
            validate_only: Whether to stop after all checks.

        Raises:
            KafkaError: Nothing was changed.
        """
        _check_changes(changes)
        if not name:
            message = "Default topic resources are not allowed."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        check_topic_name(name)
        topic = self._topics.get(name)
        if topic is None:
            message = f"The topic '{name}' does not exist."
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        current = topic.stored.configs if keep_others else {}
        defaults = self._store.topic_defaults
        changed = _apply(current, changes, TOPIC_SETTINGS, defaults.render, _refuse_for_topic)
        parsed = TopicConfig.parse(changed, defaults)
        parsed.check_bounded()
        check_keeps_state(name, parsed)
        rendered = {key: parsed.render(key) for key in changed}
        if not validate_only and rendered != topic.stored.configs:
            self._topics.set_configs(name, rendered)

    def alter_broker(
        self, resource: str, changes: Sequence[Change], *, keep_others: bool, validate_only: bool
    ) -> None:
        """Change the overrides of this node or of every node.

        Args:
            resource: The node's id, or "" for every node.
            changes: What to do, no config twice.
            keep_others: Whether overrides that are not mentioned stay.
            validate_only: Whether to stop after all checks.

        Raises:
            KafkaError: Nothing was changed.
        """
        _check_changes(changes)
        if resource != EVERY_NODE:
            self.check_node(resource, "Node", f"{self._node},")
        overrides = self._stored()
        current = overrides[resource] if keep_others else {}
        render = self.in_force.render
        changed = _apply(current, changes, BROKER_SETTINGS, render, _refuse_for_broker)
        _check_dynamic(change.name for change in changes if change.name in changed)
        overrides[resource] = changed
        try:
            asked = {(resource, change.name) for change in changes}
            effective, left_out = self._judge(overrides, asked)
            _check_threads(self.in_force.log_cleaner_threads, effective.log_cleaner_threads)
            self._check_all_topics(effective.topic_defaults())
        except KafkaError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from None
        if not validate_only:
            self._store.set_broker_configs(_flatten(overrides), effective.topic_defaults())
            self._store.configure(effective)
            self.in_force, self._left_out = effective, left_out
            for action in self._when_changed:
                action(effective)

    def _check_all_topics(self, defaults: TopicConfig) -> None:
        for topic in self._topics:
            parsed = TopicConfig.parse(topic.stored.configs, defaults)
            check_keeps_state(topic.name, parsed)

    # Where values come from.

    def _stored(self) -> Overrides:
        """Return what was set on the running broker, for this node and for every node."""
        return by_resource(self._store.broker_configs, self._static.node_id)

    def _overrides(self) -> Overrides:
        """Return those of them that agree with the settings of this start, and so hold."""
        overrides = self._stored()
        for each in self._left_out:
            del overrides[each.resource][each.name]
        return overrides

    def _judge(self, overrides: Overrides, asked: Collection[tuple[str, str]]) -> InForce:
        """Return what would hold with these overrides.

        Raises:
            KafkaError: One does not agree that is asked for now, or did so far.
        """
        in_force = lay_over_what_agrees(self._static, overrides)
        before = {each[:3] for each in self._left_out}
        for each in in_force.left_out:
            if each[:3] not in before or each[:2] in asked:
                raise KafkaError(ErrorCode.INVALID_CONFIG, each.reason)
        return in_force

    def _describe_topic_config(
        self, setting: Setting, overrides: Mapping[str, str], config: TopicConfig
    ) -> Described:
        value = config.render(setting.name)
        synonyms = self._synonyms(setting.server_default) if setting.server_default else []
        if setting.name in overrides:
            synonyms = [Synonym(setting.name, value, Source.TOPIC), *synonyms]
        source = synonyms[0].source if synonyms else Source.DEFAULT
        return Described(setting, value, source, read_only=False, synonyms=synonyms)

    def _describe_broker_config(
        self,
        setting: Setting,
        effective: BrokerSettings,
        overrides: Mapping[str, Mapping[str, str]],
    ) -> Described:
        synonyms = self._synonyms(setting.name, overrides)
        return Described(
            setting,
            None if setting.sensitive else effective.render(setting.name),
            synonyms[0].source if synonyms else Source.DEFAULT,
            read_only=not setting.dynamic,
            synonyms=synonyms,
        )

    def _synonyms(
        self, name: str, overrides: Mapping[str, Mapping[str, str]] | None = None
    ) -> list[Synonym]:
        """Return the values of a broker setting, the one that holds first."""
        overrides = self._overrides() if overrides is None else overrides
        chain = next((chain for chain in _CHAINS if name in chain), (name,))
        found: list[Synonym] = []
        for member in chain:
            setting = BROKER_SETTINGS[member]
            default = setting.render(setting.default)
            static = self._static.render(member)
            values = (
                (overrides[self._node].get(member), Source.DYNAMIC_BROKER),
                (overrides[EVERY_NODE].get(member), Source.DYNAMIC_DEFAULT_BROKER),
                (None if static == default else static, Source.STATIC_BROKER),
                (default, Source.DEFAULT),
            )
            found += [
                Synonym(member, None if setting.sensitive else value, source)
                for value, source in values
                if value is not None
            ]
        # As in Kafka: until the setting itself has a value, its chain is not told.
        return list(dropwhile(lambda synonym: synonym.name != name, found))

    def check_node(self, resource: str, what: str, expected: str) -> None:
        """Raise INVALID_REQUEST unless the resource is this node; the words are the caller's."""
        if not re.fullmatch(r"[+-]?[0-9]+", resource):
            message = f"{what} id must be an integer, but it is: {resource}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if str(int(resource)) != self._node:
            message = f"Unexpected broker id, expected {expected} but received {resource}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _fixed(setting: Setting) -> Described:
    value = setting.render(setting.default)
    synonyms = [] if value is None else [Synonym(setting.name, value, Source.DEFAULT)]
    return Described(setting, value, Source.DEFAULT, read_only=True, synonyms=synonyms)


def _renamed(described: Described, setting: Setting) -> Described:
    return described._replace(setting=setting)


def _check_changes(changes: Sequence[Change]) -> None:
    if len({change.name for change in changes}) != len(changes):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [
        change.name
        for change in changes
        if change.value is None and change.operation is not Operation.DELETE
    ]
    if nulls:
        message = f"Null value not supported for : {','.join(nulls)}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _apply(
    current: Mapping[str, str],
    changes: Iterable[Change],
    settings: Mapping[str, Setting],
    default: Callable[[str], str | None],
    refuse: Callable[[Change], KafkaError],
) -> dict[str, str]:
    """Return the overrides after the changes; values are not judged here."""
    changed = dict(current)
    for change in changes:
        name, value = change.name, change.value or ""
        if change.operation is Operation.SET:
            changed[name] = value
        elif change.operation is Operation.DELETE:
            changed.pop(name, None)
        else:
            setting = settings.get(name)
            if setting is None or setting.kind is not Kind.LIST:
                raise refuse(change)
            before = changed[name] if name in changed else default(name) or ""
            after = _combine(change.operation, before, value)
            if after != before:
                changed[name] = after
    return changed


def _combine(operation: Operation, before: str, value: str) -> str:
    items = [item for item in before.split(",") if item]
    for item in (part.strip() for part in value.split(",")):
        if operation is Operation.APPEND:
            if item not in items:
                items.append(item)
        elif item in items:
            items.remove(item)
    return ",".join(items)


def _refuse_for_topic(change: Change) -> KafkaError:
    message = f"Can't {change.operation.name} to key {change.name} because its type is not LIST."
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def _refuse_for_broker(change: Change) -> KafkaError:
    verb = change.operation.name.lower()
    message = f"Config value {verb} is not allowed for config key: {change.name}"
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def _check_dynamic(names: Iterable[str]) -> None:
    fixed = []
    for name in names:
        setting = BROKER_SETTINGS.get(name)
        if setting is None and name not in _FIXED_NAMES:
            raise unknown_broker_config(name)
        if setting is None or not setting.dynamic:
            fixed.append(name)
    if fixed:
        message = f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _check_threads(current: int, wanted: int) -> None:
    """As Kafka, let a change at most double or halve the number of cleaners."""
    problem = ""
    if wanted > 2 * current:
        problem = "increased to more than double"
    elif wanted < current // 2:
        problem = "reduced to less than half"
    if problem:
        message = f"Log cleaner threads cannot be {problem} the current value {current}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _flatten(overrides: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {
        f"{resource}:{name}": value
        for resource, values in overrides.items()
        for name, value in values.items()
    }
