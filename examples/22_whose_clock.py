"""Whose clock: a device says when something was, the server when it came, and neither is enough.

Four devices note one press of a button each, all at noon, and send it when they can. One has a
clock that is right; one is an hour ahead, and was without a network for ten minutes; one had its
clock set back before it sent; one does not say when it sent. The device's own time and the time of
receipt put some into the wrong five minutes; the corrected time puts all where they were, and says
of which it could not know.

    pip install '.[spark,java]'
    python examples/22_whose_clock.py
"""

import datetime as dt

from pyspark.sql import functions as F

import headwater as hw
from headwater import functions as hf

NOON = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)
MINUTE, HOUR = dt.timedelta(minutes=1), dt.timedelta(hours=1)

PRESSES = [
    ("right", NOON, NOON, NOON),
    ("ahead", NOON + HOUR, NOON + HOUR + 10 * MINUTE, NOON + 10 * MINUTE),
    ("set back", NOON + HOUR, NOON + 3 * MINUTE, NOON + 3 * MINUTE),
    ("silent", NOON - HOUR, None, NOON + MINUTE),
]

spark = hw.session("clocks", master="local[2]")
presses = spark.createDataFrame(
    PRESSES, "device string, event timestamp, sent timestamp, received timestamp"
)
times = presses.withColumn("true", hf.true_time("event", "sent", "received"))


def minutes(column: str) -> dict[str, int]:
    """Tell how many minutes behind noon the window of each device begins."""
    start = F.window(column, "5 minutes").start
    since = (F.unix_seconds(start) - int(NOON.timestamp())) / 60
    return {row[0]: int(row[1]) for row in times.select("device", since).collect()}


for column in ("event", "received", "true.time"):
    print(f"window by {column:>9}, minutes from noon: {minutes(column)}")
quality = {row[0]: row[1] for row in times.select("device", "true.quality").collect()}
print(f"to be believed: {quality}")

assert minutes("event") == {"right": 0, "ahead": 60, "set back": 60, "silent": -60}
assert minutes("received") == {"right": 0, "ahead": 10, "set back": 0, "silent": 0}
assert set(minutes("true.time").values()) == {0}
assert quality == {
    "right": "corrected",
    "ahead": "corrected",
    "set back": "clock_changed",
    "silent": "no_device_time",
}
spark.stop()
