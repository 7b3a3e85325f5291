"""Who gets in.

This file alone decides how many connections there may be, in all and from one address, and how fast
they may come. It opens and closes none. As in Kafka:

* while `max.connections` are there, and for a while after `max.connection.creation.rate` was
  exceeded, nobody is accepted: newcomers wait in the kernel;
* above `max.connections.per.ip` a newcomer is closed at once;
* above the quota `connection_creation_rate` of its address it is closed after the time that it
  should have waited, or it would come back at once.
"""

from typing import Final

from headwater.base.clock import Clock
from headwater.base.settings import BrokerSettings, split_overrides
from headwater.base.settings.setting import INT_MAX
from headwater.delivery.broker.quotas import Quotas
from headwater.delivery.broker.quotas.rate import Rate, Windows

WELCOME: Final = -1
"""The connection may stay."""


class Gate:
    """Counts connections."""

    def __init__(self, settings: BrokerSettings, quotas: Quotas, clock: Clock) -> None:
        self._quotas = quotas
        self._now_ms = clock.monotonic_ms
        self._count = 0
        self._per_address: dict[str, int] = {}
        self.configure(settings)
        self._windows = Windows(
            settings.quota_window_num, settings.quota_window_size_seconds * 1000
        )
        self._rate = Rate(self._windows, self._now_ms())

    def configure(self, settings: BrokerSettings) -> None:
        """Take other bounds; whoever is inside stays."""
        self._count_max = settings.max_connections
        self._per_address_max = settings.max_connections_per_ip
        self._overrides = split_overrides(settings.max_connections_per_ip_overrides)
        self._rate_max = settings.max_connection_creation_rate

    @property
    def is_full(self) -> bool:
        """Whether nobody may be accepted until somebody leaves."""
        return self._count >= self._count_max

    def pause_ms(self) -> int:
        """Count somebody who was accepted; return for how long nobody else may be."""
        if self._rate_max == INT_MAX:
            return 0
        now_ms = self._now_ms()
        self._rate.add(1, now_ms)
        return min(self._rate.excess_ms(self._rate_max, now_ms), self._windows.window_ms)

    def enter(self, address: str) -> int:
        """Let somebody in; return `WELCOME`, or after how many milliseconds to close instead."""
        close_after_ms = self._quotas.connected(address)
        if close_after_ms:
            return close_after_ms
        count = self._per_address.get(address, 0)
        if count >= self._overrides.get(address, self._per_address_max):
            return 0
        self._per_address[address] = count + 1
        self._count += 1
        return WELCOME

    def leave(self, address: str) -> None:
        """Count out somebody who was let in."""
        self._count -= 1
        count = self._per_address[address] - 1
        if count:
            self._per_address[address] = count
        else:
            del self._per_address[address]
