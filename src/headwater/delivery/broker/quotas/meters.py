"""What each client has used of late.

This file alone decides which measurements are kept, and for how long. A measurement that has run
out says no more than a new one, so it is forgotten; and since whoever likes can call himself
otherwise with every request, there is a bound: above it, those that were used longest ago go first.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

METERS_MAX: Final = 50_000
"""One takes 460 to 620 bytes: at most 31 MB, for as many clients as are active within seconds."""

# A name can have 32 kB. Longer ones than this are kept as a digest.
_NAME_LENGTH_MAX: Final = 128
# Looked at for each new one: two, so that old ones go faster than new ones come.
_LOOKED_AT: Final = 2


class Meter(Protocol):
    """Something that is measured."""

    def is_idle(self, now_ms: int) -> bool:
        """Tell whether a new one would say the same."""
        ...


AnyMeter = TypeVar("AnyMeter", bound=Meter)
Name = tuple[str, ...]


class Meters(Generic[AnyMeter]):
    """Measurements by what is measured, and of whom."""

    def __init__(self, make: Callable[[int], AnyMeter]) -> None:
        """Take what makes a new measurement that begins at a time."""
        self._make = make
        # In the order of their last use. A plain dict takes the longer to find its first entry,
        # the more before it have gone.
        self._meters: OrderedDict[Name, AnyMeter] = OrderedDict()

    def __len__(self) -> int:
        """Count them."""
        return len(self._meters)

    def get(self, name: Name, now_ms: int) -> AnyMeter:
        """Return the measurement of that name, a new one if need be."""
        if any(len(part) > _NAME_LENGTH_MAX for part in name):
            name = tuple(map(_shortened, name))
        found = self._meters.get(name)
        if found is None:
            self._forget_some(now_ms)
            found = self._meters[name] = self._make(now_ms)
        else:
            self._meters.move_to_end(name)
        return found

    def forget_idle(self, now_ms: int) -> None:
        """Forget all that have run out."""
        for name in [name for name, meter in self._meters.items() if meter.is_idle(now_ms)]:
            del self._meters[name]

    def _forget_some(self, now_ms: int) -> None:
        meters = self._meters
        for _ in range(_LOOKED_AT):
            oldest = next(iter(meters.values()), None)
            if oldest is None or (len(meters) < METERS_MAX and not oldest.is_idle(now_ms)):
                return
            meters.popitem(last=False)


def _shortened(part: str) -> str:
    if len(part) <= _NAME_LENGTH_MAX:
        return part
    return hashlib.sha256(part.encode()).hexdigest()
