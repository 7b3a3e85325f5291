"""Whom a quota is for, what it may limit, and who is meant by a filter.

This file alone decides which entities, keys and values AlterClientQuotas takes and which entities
a filter of DescribeClientQuotas finds, in Kafka's words. It keeps nothing.

An entity is a user, a client id, both, or an address; a name that is None stands for all that have
no quota of their own.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from headwater.base.errors import ErrorCode, KafkaError
from headwater.log.manifest import QuotaEntity

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

# The largest value of each key, and whether it has to be a whole number.
_CLIENT_KEYS: Final[Mapping[str, tuple[float, str]]] = {
    PRODUCER_BYTE_RATE: (2.0**63, "a LONG"),
    CONSUMER_BYTE_RATE: (2.0**63, "a LONG"),
    REQUEST_PERCENTAGE: (float("inf"), ""),
    CONTROLLER_MUTATION_RATE: (float("inf"), ""),
}
_IP_KEYS: Final[Mapping[str, tuple[float, str]]] = {
    CONNECTION_CREATION_RATE: (2.0**31 - 1, "an INT")
}
_FRACTION_MIN: Final = 1e-6


class Alteration(NamedTuple):
    """What is to change for one entity.

    Attributes:
        entity: Names by kind.
        values: Keys with their new values; None takes the quota away.
    """

    entity: Mapping[str, str | None]
    values: Sequence[tuple[str, float | None]]


class Match(IntEnum):
    """How a part of a filter finds names, by its number in DescribeClientQuotas."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class Component(NamedTuple):
    """One part of a filter."""

    kind: str
    match_type: int
    name: str | None


def entity_key(entity: Mapping[str, str | None]) -> QuotaEntity:
    """Return the entity as the store keeps it."""
    return tuple(sorted(entity.items(), key=lambda part: part[0]))


def changed_values(
    alteration: Alteration, current: Mapping[str, float]
) -> tuple[Mapping[str, float], KafkaError | None]:
    """Return what the entity's quotas are afterwards, or as they were and why not otherwise."""
    try:
        known = _keys_of(alteration.entity)
        changed = dict(current)
        for key, value in alteration.values:
            if value is None:
                changed.pop(key, None)
            else:
                _check_value(known, key, value)
                changed[key] = value
    except KafkaError as refusal:
        return current, refusal
    return changed, None


def matching(
    entities: Iterable[QuotaEntity], components: Sequence[Component], *, strict: bool
) -> list[QuotaEntity]:
    """Return the entities that have every part of the filter, and with `strict` no other part.

    Raises:
        KafkaError: The filter contradicts itself, or names what does not exist.
    """
    wanted = _checked_filter(components)
    found = []
    for entity in entities:
        names = dict(entity)
        if strict and len(names) != len(wanted):
            continue
        if all(
            part.kind in names and (part.match_type == Match.ANY or names[part.kind] == part.name)
            for part in wanted.values()
        ):
            found.append(entity)
    # Without a part, `strict` leaves nothing: no entity has no parts.
    return found


def address_key(address: str) -> str:
    """Return one spelling for all spellings of an address.

    Raises:
        ValueError: It is none.
    """
    return str(ipaddress.ip_address(address))


def _keys_of(entity: Mapping[str, str | None]) -> Mapping[str, tuple[float, str]]:
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in {USER, CLIENT_ID, IP}:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP not in entity:
        return _CLIENT_KEYS
    if len(entity) > 1:
        raise _invalid("An ip cannot be combined with a user or a client-id")
    if (ip := entity[IP]) is not None:
        try:
            address_key(ip)
        except ValueError:
            raise _invalid(f"{ip} is not a valid IP; host names are not resolved") from None
    return _IP_KEYS


def _check_value(known: Mapping[str, tuple[float, str]], key: str, value: float) -> None:
    if key not in known:
        raise _invalid(f"Invalid configuration key {key}")
    largest, kind = known[key]
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if value > largest:
        raise _invalid(f"Proposed value for {key} is too large for {kind}.")
    if kind and value % 1 > _FRACTION_MIN:
        raise _invalid(f"{key} cannot be a fractional value.")


def _checked_filter(components: Sequence[Component]) -> dict[str, Component]:
    wanted: dict[str, Component] = {}
    for part in components:
        if not part.kind:
            raise _invalid("Invalid empty entity type.")
        if part.kind in wanted:
            raise _invalid(f"Entity type {part.kind} cannot appear more than once in the filter.")
        if part.kind not in {USER, CLIENT_ID, IP}:
            message = f"Unsupported entity type {part.kind}"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
        if part.match_type not in list(Match):
            raise _invalid(f"Unknown match type {part.match_type}")
        if (part.match_type == Match.EXACT) != (part.name is not None):
            raise _invalid("An exact match needs a name, and only an exact match has one.")
        wanted[part.kind] = part
    if IP in wanted and len(wanted) > 1:
        raise _invalid("A filter for ip cannot be combined with user or client-id.")
    return wanted


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
