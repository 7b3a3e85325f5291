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
_Name = TypeVar("_Name")


class Limit(NamedTuple):
    """A limit, and who shares it."""

    value: float
    user: str
    client_id: str


class Limits:
    """All that is set, by key."""

    def __init__(self) -> None:
        self._clients: dict[str, dict[tuple[str | None, str | None], float]] = {}
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
                _put(self._clients.setdefault(key, {}), pair, new.get(key))

    def of_client(self, key: str, user: str, client_id: str | None) -> Limit | None:
        """Return the limit of a client, if it has one."""
        table = self._clients.get(key)
        if not table:
            return None
        name = client_id or _ABSENT
        for pair, sharer in (
            ((user, name), (user, name)),
            ((user, None), (user, name)),
            ((user, _ABSENT), (user, _ABSENT)),
            ((None, name), (user, name)),
            ((None, None), (user, name)),
            ((None, _ABSENT), (user, _ABSENT)),
            ((_ABSENT, name), (_ABSENT, name)),
            ((_ABSENT, None), (_ABSENT, name)),
        ):
            if name or pair[1] == _ABSENT:
                value = table.get(pair)
                if value is not None:
                    return Limit(value, *sharer)
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
        table[name] = value
