"""How fast something happens, over a few windows of time.

This file alone decides how a rate is measured and when its excess is paid off. It counts as Kafka
does, so that a client meets the same throttle times here and there:

* Amounts are summed in samples. A sample begins with the first amount that falls behind the last
  one's `window_ms`, not at a fixed beat.
* A sample counts until `window_count` windows after its last amount; of one that began before,
  all counts. So one sample more than `window_count` is kept.
* The rate is the sum over the time since the oldest sample began, but at least over
  `window_count - 1` windows: whoever begins may send so much at once.
* Above the limit one has to wait until the same sum, spread over that much more time, is within
  the limit again.
"""

import math
from array import array
from typing import Final, NamedTuple

_START, _LAST, _VALUE = range(3)
_FIELDS: Final = 3


class Windows(NamedTuple):
    """How long and how finely rates are measured."""

    window_count: int
    window_ms: int

    @property
    def span_ms(self) -> int:
        """After this time an amount is forgotten."""
        return self.window_count * self.window_ms

    @property
    def burst_ms(self) -> int:
        """What the limit allows in this time may come at once."""
        return (self.window_count - 1) * self.window_ms


class Rate:
    """The recent past of one client."""

    __slots__ = ("_current", "_samples", "_windows", "last_ms")

    def __init__(self, windows: Windows, now_ms: int) -> None:
        self._windows = windows
        # Begin, time of the last amount, and sum of each sample, one behind the other: a list of
        # lists would take six times the memory.
        self._samples = array("d", (now_ms, now_ms, 0.0))
        self._current = 0
        self.last_ms = now_ms

    def add(self, amount: float, now_ms: int) -> None:
        """Count an amount; a negative one takes back what was counted at the same time."""
        samples = self._samples
        if now_ms - samples[self._current + _START] >= self._windows.window_ms:
            self._begin_sample(now_ms)
        samples[self._current + _VALUE] += amount
        samples[self._current + _LAST] = now_ms
        self.last_ms = now_ms

    @property
    def total(self) -> float:
        """The sum of all amounts that counted when the excess was last asked for."""
        return sum(self._samples[_VALUE::_FIELDS])

    def excess_ms(self, limit: float, now_ms: int) -> int:
        """Return how long to wait until the rate, per second, is within the limit."""
        samples = self._samples
        self._forget_old(now_ms)
        window_ms = self._windows.window_ms
        elapsed_ms = int(now_ms - min(samples[_START::_FIELDS]))
        # Windows that are missing at the beginning, or after a silence, count as empty ones.
        missing = self._windows.window_count - 1 - elapsed_ms // window_ms
        if missing > 0:
            elapsed_ms += missing * window_ms
        elapsed_ms = max(elapsed_ms, 1)
        rate = self.total / (elapsed_ms / 1000)
        if rate <= limit:
            return 0
        return math.floor((rate - limit) / limit * elapsed_ms + 0.5)

    def is_idle(self, now_ms: int) -> bool:
        """Tell whether nothing is left that a new one would not know."""
        return now_ms - self.last_ms >= self._windows.span_ms

    def _begin_sample(self, now_ms: int) -> None:
        samples = self._samples
        self._current += _FIELDS
        if self._current == (self._windows.window_count + 1) * _FIELDS:
            self._current = 0
        if self._current == len(samples):
            samples.extend((now_ms, now_ms, 0.0))
        else:
            self._empty(self._current, now_ms)

    def _forget_old(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._windows.span_ms
        for position in range(0, len(self._samples), _FIELDS):
            if self._samples[position + _LAST] <= oldest_ms:
                self._empty(position, now_ms)

    def _empty(self, position: int, now_ms: int) -> None:
        samples = self._samples
        samples[position + _START] = samples[position + _LAST] = now_ms
        samples[position + _VALUE] = 0.0
