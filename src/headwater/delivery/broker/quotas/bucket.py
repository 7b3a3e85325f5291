"""Tokens that come back with time.

This file alone decides how bursts of changes are paid for (KIP-599): a bucket holds what the limit
allows in all windows together, is full at first, and may be overdrawn once; then nothing more is
given until it is back at zero.
"""

import math

from headwater.delivery.broker.quotas.rate import Windows


class TokenBucket:
    """What one client may still do at once."""

    __slots__ = ("_full_ms", "_last_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows, now_ms: int) -> None:
        self._windows = windows
        self._tokens = math.inf
        self._last_ms = now_ms
        self._full_ms = now_ms

    def spend(self, amount: float, limit: float, now_ms: int) -> None:
        """Take tokens, whether or not they are there; a limit gives so many each second."""
        self._refill(limit, now_ms)
        self._tokens -= amount
        missing = limit * self._windows.span_ms / 1000 - self._tokens
        self._full_ms = now_ms + math.ceil(missing / limit * 1000)

    def overdrawn_ms(self, limit: float, now_ms: int) -> int:
        """Return how long to wait until the bucket is back at zero."""
        self._refill(limit, now_ms)
        return math.floor(-self._tokens / limit * 1000 + 0.5) if self._tokens < 0 else 0

    def is_idle(self, now_ms: int) -> bool:
        """Tell whether it is full, as a new one would be."""
        return now_ms >= self._full_ms

    def _refill(self, limit: float, now_ms: int) -> None:
        burst = limit * self._windows.span_ms / 1000
        self._tokens = min(burst, self._tokens + limit * (now_ms - self._last_ms) / 1000)
        self._last_ms = now_ms
