"""What holds where settings were changed on the running broker, over what it was started with.

This file alone decides how stored overrides are laid over the settings of a start, and what becomes
of those that do not agree with them: a start may come with other settings than the one on which the
override was accepted. As in Apache Kafka such an override is left out, and the broker starts. It is
not forgotten: once it agrees again, it holds.

Overrides are stored under ``"RESOURCE:NAME"``. The resource is the id of a node, or ``""`` for all
nodes, whose overrides lie under those for this node.
"""

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from headwater.base.errors import KafkaError
from headwater.base.settings.broker import BROKER_SETTINGS, BrokerSettings

EVERY_NODE: Final = ""
"""The name of the broker resource whose overrides hold for all nodes."""

Overrides = dict[str, dict[str, str]]
"""Values by resource and name."""

logger = logging.getLogger(__name__)


class LeftOut(NamedTuple):
    """An override that does not hold."""

    resource: str
    name: str
    value: str
    reason: str


class InForce(NamedTuple):
    """What holds, and what was left out of it."""

    settings: BrokerSettings
    left_out: list[LeftOut]


def by_resource(stored: Mapping[str, str], node_id: int) -> Overrides:
    """Return the stored overrides that this version can use."""
    found: Overrides = {EVERY_NODE: {}, str(node_id): {}}
    for key, value in stored.items():
        resource, _, name = key.partition(":")
        if _is_dynamic(name):
            found.setdefault(resource, {})[name] = value
    return found


def lay_over_what_agrees(static: BrokerSettings, overrides: Overrides) -> InForce:
    """Lay as many overrides over the settings of the start as agree with them."""
    settings = static
    node = str(static.node_id)
    try:
        merged = {**overrides[EVERY_NODE], **overrides[node]}
        return InForce(static.with_overrides(merged), [])
    except KafkaError:
        pass
    waiting = [
        (resource, name, value)
        for resource in (EVERY_NODE, node)
        for name, value in overrides[resource].items()
    ]
    laid: set[str] = set()
    # One may need another, as headwater.overflow needs its bound: all are tried again while any
    # helps.
    while True:
        left_out: list[LeftOut] = []
        for resource, name, value in waiting:
            if resource == EVERY_NODE and name in laid:
                continue
            try:
                settings = settings.with_overrides({name: value})
            except KafkaError as error:
                left_out.append(LeftOut(resource, name, value, error.message))
            else:
                laid.add(name)
        if len(left_out) == len(waiting) or not left_out:
            return InForce(settings, left_out)
        waiting = [each[:3] for each in left_out]


def held_at_start(static: BrokerSettings, stored: Mapping[str, str]) -> BrokerSettings:
    """Return what holds from this start on, and say which overrides do not."""
    for name in sorted({key.partition(":")[2] for key in stored}):
        if not _is_dynamic(name):
            logger.warning("ignoring %s, which this version cannot set at run time", name)
    settings, left_out = lay_over_what_agrees(static, by_resource(stored, static.node_id))
    for each in left_out:
        logger.warning(
            "ignoring %s=%s, which was set on the running broker for %s and does not agree with "
            "the settings of this start: %s; change those, or delete it (kafka-configs --alter "
            "--delete-config)",
            each.name,
            each.value,
            f"node {each.resource}" if each.resource else "every node",
            each.reason,
        )
    return settings


def _is_dynamic(name: str) -> bool:
    setting = BROKER_SETTINGS.get(name)
    return setting is not None and setting.dynamic
