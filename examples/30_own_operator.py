"""An operator of one's own: doors that stay open for too long.

What windows and joins cannot say, a function can: it is given its state, the rows of a batch and
the watermark, and returns the next state and what comes out. It is tried without Spark first, also
for what it must not do (use a clock, mix doors), and then runs in a pipeline, where its state is
kept and comes back with the checkpoint.

    pip install '.[spark,java]'
    headwater up                      (in another terminal)
    python examples/30_own_operator.py
"""

import json
import os
import tempfile
import time

import pyarrow as pa

import headwater as hw
from headwater import functions as hf
from headwater.testing.operators import check_operator

BOOTSTRAP = os.environ.setdefault("HEADWATER_BOOTSTRAP", "localhost:9092")
os.environ["HEADWATER_DATA"] = tempfile.mkdtemp()
RUN = time.time_ns() // 1_000_000
DOORS, ALARMS = f"doors-{RUN}", f"alarms-{RUN}"
MINUTE_US = 60_000_000
NOON_US = 1_793_534_400_000_000


class LeftOpen:
    """Tells of doors that are open for five minutes; by the watermark, so none is blamed early."""

    state = pa.schema([("door", pa.string()), ("since_us", pa.int64())])
    output = state

    def step(
        self, state: pa.Table, rows: pa.Table, watermark_us: int | None
    ) -> tuple[pa.Table, pa.Table]:
        """Take note of doors; give those whose time is up."""
        since = {row["door"]: row for row in state.to_pylist()}
        for row in rows.to_pylist():
            if row["is_open"]:
                since.setdefault(row["door"], {"door": row["door"], "since_us": row["at_us"]})
            else:
                since.pop(row["door"], None)
        limit_us = -1 if watermark_us is None else watermark_us - 5 * MINUTE_US
        told = [row for row in since.values() if row["since_us"] <= limit_us]
        kept = [row for row in since.values() if row["since_us"] > limit_us]
        return (
            pa.Table.from_pylist(kept, schema=self.state),
            pa.Table.from_pylist(told, schema=self.output),
        )


def seen(door: str, minute: int, *, is_open: bool) -> dict[str, object]:
    """Return what a door says."""
    return {"door": door, "at_us": NOON_US + minute * MINUTE_US, "is_open": is_open}


EVENTS = [
    seen("north", 0, is_open=True),
    seen("south", 1, is_open=True),
    seen("south", 3, is_open=False),
    seen("east", 20, is_open=True),
]
WANTED = [{"door": "north", "since_us": NOON_US}]

batches = [pa.Table.from_pylist(EVENTS[:2]), pa.Table.from_pylist(EVENTS[2:])]
tried = check_operator(
    LeftOpen(), batches, by=["door"], watermarks=[None, NOON_US + 20 * MINUTE_US]
)
print("tried:", [each.to_pylist() for each in tried])
assert [each.to_pylist() for each in tried] == [[], WANTED]

with hw.Cluster(BOOTSTRAP) as cluster:
    for topic in (DOORS, ALARMS):
        cluster.topic(topic, create=True)
    with hw.Producer(cluster) as producer:
        for event in EVENTS:
            producer.send(DOORS, json.dumps(event).encode(), key=str(event["door"]).encode())

spark = hw.session("doors", master="local[2]")
source = spark.readStream.format("headwater").option("subscribe", DOORS)
rows = source.option("startingOffsets", "earliest").load()
doors = rows.transform(hf.json("door string, at_us long, is_open boolean"))
alarms = (
    doors.selectExpr("*", "timestamp_micros(at_us) as at")
    .transform(hf.watermark("at", "5 seconds"))
    .transform(hf.stateful(LeftOpen(), by=["door"], columns=["door", "at_us", "is_open"]))
)
hw.pipeline("alarms", alarms).to(hw.topic(ALARMS, key="door")).run(once=True)
written = spark.read.format("headwater").option("subscribe", ALARMS).load()
found = written.transform(hf.json("door string, since_us long")).select("door", "since_us")
given = [row.asDict() for row in found.collect()]
print("run:  ", given)
assert given == WANTED
spark.stop()
