"""Which limit holds for whom.

This file alone decides the order of precedence among quotas, which is Kafka's, and who shares one:

    user and client id  >  user and any client id  >  user
    > any user and client id  >  any user and any client id  >  any user
    > client id  >  any client id

The first that is set holds. One for a user is shared by all client ids of that user; every other
one is had by each client id on its own. A client without a name can be limited by its user alone.
It counts nothing.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

from headwater.delivery.broker.quotas.entities import CLIENT_ID, IP, USER, address_key
from headwater.log.manifest import QuotaEntity

# No entity has an empty name, so it can stand for "not a part of the entity"; None is "any".
_ABSENT: Final = ""
_Pair = tuple[str | None, str | None]
_Name = TypeVar("_Name")

# Beyond these a limit is as good as none, or nothing: so that reckoning with it stays finite.
_LIMIT_MIN: Final = 1e-9
_LIMIT_MAX: Final = 1e18

# Per level of precedence: whether its entities have a user and a client id of their own (0), any
# (1), or none (2); and so for those who share the quota.
_LEVELS: Final = (
    ((0, 0), (0, 0)),
    ((0, 1), (0, 0)),
    ((0, 2), (0, 2)),
    ((1, 0), (0, 0)),
    ((1, 1), (0, 0)),
    ((1, 2), (0, 2)),
    ((2, 0), (2, 0)),
    ((2, 1), (2, 0)),
)
_OF_USERS_ALONE: Final = (2, 5)


class Limit(NamedTuple):
    """A limit, and who shares it."""

    value: float
    user: str
    client_id: str


class Limits:
    """All that is set, by key."""

    def __init__(self) -> None:
        self._clients: dict[str, dict[_Pair, float]] = {}
        # How many there are of each level, by key: most have none and are not looked for.
        self._counts: dict[str, list[int]] = {}
        self._levels: dict[str, list[int]] = {}
        self._addresses: dict[str, dict[str | None, float]] = {}

    def limits(self, *keys: str) -> bool:
        """Tell whether anything is set for any of the keys."""
        return any(self._clients.get(key) or self._addresses.get(key) for key in keys)

    def replace(
        self, entity: QuotaEntity, old: Mapping[str, float], new: Mapping[str, float]
    ) -> None:
        """Let an entity have these limits instead of those."""
        names = dict(entity)
        for key in old.keys() | new.keys():
            if IP in names:
                ip = names[IP]
                address = None if ip is None else address_key(ip)
                _put(self._addresses.setdefault(key, {}), address, new.get(key))
            else:
                pair = (names.get(USER, _ABSENT), names.get(CLIENT_ID, _ABSENT))
                table = self._clients.setdefault(key, {})
                counts = self._counts.setdefault(key, [0] * len(_LEVELS))
                counts[_level(pair)] += (key in new) - (pair in table)
                _put(table, pair, new.get(key))
                self._levels[key] = [level for level, count in enumerate(counts) if count]

    def of_client(self, key: str, user: str, client_id: str | None) -> Limit | None:
        """Return the limit of a client, if it has one."""
        levels = self._levels.get(key)
        if not levels:
            return None
        table = self._clients[key]
        users = (user, None, _ABSENT)
        client_ids = (client_id, None, _ABSENT)
        for level in levels:
            if client_id or level in _OF_USERS_ALONE:
                (of_user, of_client), (user_shares, client_shares) = _LEVELS[level]
                value = table.get((users[of_user], client_ids[of_client]))
                if value is not None:
                    sharer = client_id if client_shares == 0 else _ABSENT
                    return Limit(value, user if user_shares == 0 else _ABSENT, sharer or _ABSENT)
        return None

    def of_address(self, key: str, address: str) -> float | None:
        """Return the limit of an address, if it has one."""
        table = self._addresses.get(key)
        if not table:
            return None
        value = table.get(address_key(address))
        return table.get(None) if value is None else value


def _put(table: dict[_Name, float], name: _Name, value: float | None) -> None:
    if value is None:
        table.pop(name, None)
    else:
        table[name] = min(max(value, _LIMIT_MIN), _LIMIT_MAX)


def _level(pair: _Pair) -> int:
    kinds = tuple(1 if name is None else 2 if name == _ABSENT else 0 for name in pair)
    return next(level for level, (entity, _) in enumerate(_LEVELS) if entity == kinds)
