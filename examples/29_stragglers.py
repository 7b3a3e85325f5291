"""Stragglers: events whose window has closed. Drop them, divert them, or correct the result.

Takings of a shop are added up by the minute. Three of them come when their minute was given
already. The first window drops them; the second writes them to a topic of their own; the third
takes its result back and gives the right one. Whoever applies these changes has what a query over
all events gives. How many were late, each batch says.

    pip install '.[spark,java]'
    headwater up                      (in another terminal)
    python examples/29_stragglers.py
"""

import json
import os
import tempfile
import time
from collections import Counter

from pyspark.sql import DataFrame

import headwater as hw
from headwater import functions as hf

BOOTSTRAP = os.environ.setdefault("HEADWATER_BOOTSTRAP", "localhost:9092")
os.environ["HEADWATER_DATA"] = tempfile.mkdtemp()
RUN = time.time_ns() // 1_000_000
NAME, TAKINGS, TOTALS, LATE = (
    f"{what}-{RUN}" for what in ("stragglers", "takings", "totals", "late")
)
# Three to a batch. A row is late by the time of the batch before: 12:01:15 and then 12:03:25.
EVENTS = [
    *[("12:00:10", 1), ("12:00:40", 2), ("12:01:20", 4)],
    *[("12:01:50", 8), ("12:02:10", 16), ("12:03:30", 32)],
    *[("12:00:50", 100), ("12:03:40", 64), ("12:05:00", 128)],
    *[("12:00:20", 200), ("12:01:10", 400), ("12:59:00", 0)],
]
STRAGGLERS = {100, 200, 400}

with hw.Cluster(BOOTSTRAP) as cluster:
    for topic in (TAKINGS, TOTALS, LATE):
        cluster.topic(topic, create=True)
    with hw.Producer(cluster) as producer:
        for clock, amount in EVENTS:
            event = {"at": f"2026-11-01T{clock}Z", "amount": amount}
            producer.send(TAKINGS, json.dumps(event).encode())

spark = hw.session("stragglers", master="local[2]")
source = spark.readStream.format("headwater").option("subscribe", TAKINGS)
rows = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 3).load()
takings = rows.transform(hf.json("at timestamp, amount long")).transform(
    hf.watermark("at", "5 seconds")
)


def totals(rule: str, late: hf.Late) -> DataFrame:
    """Add up takings by the minute."""
    made = hf.window("at", "1 minute", late=late, buckets=1, total=hf.sum("amount"))
    minute = "date_format(window.start, 'HH:mm') as minute"
    return takings.transform(made).selectExpr(f"'{rule}' as rule", minute, "total", "op", "version")


changes = totals("drop", hf.drop())
changes = changes.union(totals("divert", hf.divert(LATE)))
changes = changes.union(totals("correct", hf.correct(until="1 hour")))
hw.pipeline(NAME, changes).to(hw.topic(TOTALS, key="rule")).run(once=True)

results: dict[str, dict[str, int]] = {"drop": {}, "divert": {}, "correct": {}}
written = spark.read.format("headwater").option("subscribe", TOTALS).load()
schema = "rule string, minute string, total long, op string, version int"
for row in written.transform(hf.json(schema)).orderBy("offset").collect():
    print(f"{row.rule:>7}: {row.minute} {row.op:>7} {row.total:>3} version {row.version}")
    if row.op == "insert":
        results[row.rule][row.minute] = row.total
    else:
        assert results[row.rule].pop(row.minute) == row.total
letters = spark.read.format("headwater").option("subscribe", LATE).load()
late = letters.transform(hf.json("at timestamp, amount long")).collect()
batches = spark.read.format("headwater").option("subscribe", "__hw_progress").load()
told = batches.transform(hf.json("pipeline string, late_rows long")).where(f"pipeline = '{NAME}'")
counted = sum(row.late_rows for row in told.collect())
spark.stop()

# The batch answer: every event in its minute, but for the last, whose minute is not over.
everything, on_time = Counter[str](), Counter[str]()
for clock, amount in EVENTS[:-1]:
    everything[clock[:5]] += amount
    on_time[clock[:5]] += 0 if amount in STRAGGLERS else amount
assert results["correct"] == everything, results
assert results["drop"] == results["divert"] == on_time, results
assert {row.amount for row in late} == STRAGGLERS, late
assert counted == 6, "three were dropped, and three were diverted"
print(f"{counted} late; batch answer:", dict(everything))
