"""The time of an event whose device has a wrong clock: `hf.true_time`.

This file alone decides what is believed when a device and a server do not agree. The device says
when the event was and when it was sent, both by its own clock; the server says when it came. How
long the event waited on the device needs no right clock, only one that nobody has set in the
meantime: so the event was that long before it came. The way through the network is taken for
nothing, so the time that is found is late by that way.
"""

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql._typing import ColumnOrName

CORRECTED = "corrected"
CLOCK_CHANGED = "clock_changed"
NO_DEVICE_TIME = "no_device_time"
NO_RECEIVED_TIME = "no_received_time"

_YEAR_1_US = -62_135_596_800_000_000


def true_time(event: "ColumnOrName", sent: "ColumnOrName", received: "ColumnOrName") -> Column:
    """Return when events happened, by the server's clock.

    The column is a struct:

    - `time`: the corrected time; where it cannot be known, the nearest thing to it.
    - `skew_ms`: by how much the device's clock is ahead, less the way through the network; null
      where one of the two did not say when.
    - `quality`: why `time` is to be believed. `corrected`: all three are known, and `time` is
      `received - (sent - event)`. `clock_changed`: the event is said to be later than its sending,
      or to have waited since before the year 1; so the clock was set in between, and `time` is
      `received`, before which the event was. `no_device_time`: the device did not say one of its
      two times, and `time` is `received` as well. `no_received_time`: nothing can be corrected, and
      `time` is `event`, as the device says, which may be null.

    Args:
        event: When it was, by the device's clock.
        sent: When the device sent it, by the same clock.
        received: When the server got it, by its own: the source's column `timestamp`, for one,
            where the topic has `message.timestamp.type=LogAppendTime`.
    """
    event_us, sent_us, received_us = (F.unix_micros(each) for each in (event, sent, received))
    corrected_us = received_us - (sent_us - event_us)
    is_plausible = (event_us <= sent_us) & (corrected_us >= _YEAR_1_US)
    quality = (
        F.when(received_us.isNull(), NO_RECEIVED_TIME)
        .when(event_us.isNull() | sent_us.isNull(), NO_DEVICE_TIME)
        .when(is_plausible, CORRECTED)
        .otherwise(CLOCK_CHANGED)
    )
    time_us = (
        F.when(quality == CORRECTED, corrected_us)
        .when(quality == NO_RECEIVED_TIME, event_us)
        .otherwise(received_us)
    )
    skew_ms = F.unix_millis(sent) - F.unix_millis(received)
    return F.struct(
        F.timestamp_micros(time_us).alias("time"),
        skew_ms.alias("skew_ms"),
        quality.alias("quality"),
    )
