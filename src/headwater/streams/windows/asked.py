"""Which windows are asked for.

This file alone decides what can be asked for together. It knows no Spark.
"""

from dataclasses import dataclass

from headwater.streams.time.durations import Duration, duration_us
from headwater.streams.windows.errors import WindowSettingError
from headwater.streams.windows.panes import Windows


@dataclass(frozen=True)
class Session:
    """Stretches of events with silences longer than `gap_us` between them."""

    gap_us: int


@dataclass(frozen=True)
class Sliding:
    """What each event sees when it looks `length_us` back."""

    length_us: int


Asked = Windows | Session | Sliding


def asked_windows(
    *,
    length: Duration | None,
    every: Duration | None,
    start: Duration,
    session: Duration | None,
    sliding: Duration | None,
) -> Asked:
    """Return the windows that are asked for.

    Raises:
        WindowSettingError: None is, or several are, or what is asked for cannot be.
        DurationError: A length of time cannot be read.
    """
    given = {"length": length, "session": session, "sliding": sliding}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        raise WindowSettingError(
            f"a window has a length, a session or a sliding, and here are "
            f"{' and '.join(named) or 'none'}",
            hint='one of hf.window("at", "1 minute"), hf.window("at", "1 hour", every="1 minute"), '
            'hf.window("at", session="30 minutes") or hf.window("at", sliding="1 hour")',
        )
    start_us = duration_us(start, "start")
    if length is None and (every is not None or start_us):
        raise WindowSettingError(
            f"every and start are for windows of a fixed length, not for {named[0]}",
            hint="leave them out",
        )
    if session is not None:
        gap_us = duration_us(session, "session")
        if not gap_us:
            raise WindowSettingError(
                "sessions need a silence between them, longer than nothing",
                hint='as in session="30 minutes"',
            )
        return Session(gap_us)
    if sliding is not None:
        return Sliding(duration_us(sliding, "sliding"))
    assert length is not None
    length_us = duration_us(length, "length")
    every_us = length_us if every is None else duration_us(every, "every")
    return Windows(length_us, every_us, start_us)
