"""How lengths of time are written: `10 seconds`, `1 hour 30 minutes`, or a `timedelta`.

This file alone decides which texts are understood, and how a length of time is told to people.
Months and years are not understood: they have no fixed length.
"""

import datetime as dt
import re
from typing import Final

from headwater.streams.time.errors import DurationError

Duration = str | dt.timedelta

DURATION_US_MAX: Final = 10_000 * 366 * 86_400_000_000
"""More than all years that a timestamp can have, and far from the end of 64 bits."""

_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]+)\s*,?", re.IGNORECASE)
_UNITS_US: Final = {
    name: length_us
    for names, length_us in (
        ("us µs microsecond microseconds", 1),
        ("ms millisecond milliseconds", 1_000),
        ("s sec secs second seconds", 1_000_000),
        ("m min mins minute minutes", 60_000_000),
        ("h hour hours", 3_600_000_000),
        ("d day days", 86_400_000_000),
        ("w week weeks", 7 * 86_400_000_000),
    )
    for name in names.split()
}
_WRITTEN_US: Final = tuple(
    (unit, _UNITS_US[unit]) for unit in ("day", "hour", "minute", "second", "ms", "us")
)
_WITHOUT_LENGTH: Final = frozenset({"mon", "month", "months", "y", "year", "years"})


def duration_us(given: Duration, what: str) -> int:
    """Return a length of time in microseconds; it may be 0.

    Args:
        given: A text or a `timedelta`.
        what: The name of the argument, for people.

    Raises:
        DurationError: It cannot be read, is negative, or longer than time itself.
    """
    if isinstance(given, dt.timedelta):
        length_us = given // dt.timedelta(microseconds=1)
    elif isinstance(given, str):
        length_us = _read(given, what)
    else:
        raise DurationError(
            f"{what} = {given!r} is no length of time", hint=f'as in {what}="10 seconds"'
        )
    if length_us < 0:
        raise _negative(given, what)
    if length_us > DURATION_US_MAX:
        raise DurationError(
            f"{what} = {str(given)!r} is out of bounds", hint="between 0 and 10,000 years"
        )
    return length_us


def duration_text(length_us: int) -> str:
    """Return a length of time as people write it, to the microsecond: "1 hour 30 minutes"."""
    if length_us < 0:
        return f"-{duration_text(-length_us)}"
    parts = []
    rest_us = length_us
    for unit, unit_us in _WRITTEN_US:
        number, rest_us = divmod(rest_us, unit_us)
        if number:
            has_plural = number > 1 and len(unit) > 2
            parts.append(f"{number} {unit}{'s' if has_plural else ''}")
    return " ".join(parts) or "0 seconds"


def _negative(given: Duration, what: str) -> DurationError:
    return DurationError(
        f"{what} = {str(given)!r} is negative", hint=f'0 or longer, as in {what}="10 seconds"'
    )


def _read(text: str, what: str) -> int:
    if text.lstrip().startswith("-"):
        raise _negative(text, what)
    place, length_us = 0, 0
    while place < len(text):
        part = _PART.match(text, place)
        unit = part[2].lower() if part else ""
        if unit in _WITHOUT_LENGTH:
            raise DurationError(
                f"{what} = {text!r}: a {unit.removesuffix('s')} has no fixed length",
                hint="say it in days",
            )
        if part is None or unit not in _UNITS_US:
            break
        number, _, fraction = part[1].partition(".")
        scale = 10 ** len(fraction)
        length_us += int(number + fraction) * _UNITS_US[unit] // scale
        place = part.end()
    if place == 0 or place < len(text):
        raise DurationError(
            f"{what} = {text!r} is no length of time",
            hint=f'as in {what}="10 seconds" or {what}="1 hour 30 minutes"',
        )
    return length_us
