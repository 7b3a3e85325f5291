"""Event time against processing time: a worker that was away makes a spike that never happened.

Requests come at a steady rate. A worker notes each as it reads it, is away for a while, and then
catches up. Counted by when the worker read them, there is a hole and then a rush: an artefact of
the worker, which people would be called out of bed for. Counted by when the requests were, there
is neither. Both are the same function over the same rows, with another column for the time.

    pip install '.[spark,java]'
    headwater up                      (in another terminal)
    python examples/23_event_time.py
"""

import json
import os
import tempfile
import time

from pyspark.sql import DataFrame

import headwater as hw
from headwater import functions as hf

BOOTSTRAP = os.environ.setdefault("HEADWATER_BOOTSTRAP", "localhost:9092")
os.environ["HEADWATER_DATA"] = tempfile.mkdtemp()
RUN = time.time_ns() // 1_000_000
REQUESTS, NOTED, RATES = f"requests-{RUN}", f"noted-{RUN}", f"rates-{RUN}"
TICK_US, TICKS, EACH = 100_000, 45, 2  # twenty requests a second
AWAY = range(15, 30)
START_US = -(-time.time_ns() // 1_000_000_000) * 1_000_000


def note(cluster: hw.Cluster, at_us: int, read_us: int) -> None:
    """Write down when a request was, and when it was read."""
    with hw.Producer(cluster) as producer:
        producer.send(NOTED, json.dumps({"at_us": at_us, "read_us": read_us}).encode())


with hw.Cluster(BOOTSTRAP) as cluster:
    for topic in (REQUESTS, NOTED, RATES):
        cluster.topic(topic, create=True)
    worker = hw.Consumer(cluster)
    worker.assign({(REQUESTS, 0): 0})
    for tick in range(TICKS):
        now_us = START_US + tick * TICK_US
        time.sleep(max(0.0, now_us / 1e6 - time.time()))
        with hw.Producer(cluster) as producer:
            for number in range(EACH):
                at_us = now_us + number * TICK_US // EACH
                producer.send(REQUESTS, str(at_us).encode())
        if tick in AWAY:
            continue
        while messages := worker.poll(0.0):
            for message in messages:
                note(cluster, int(message.value or b""), time.time_ns() // 1000)
    # Something much later lets the last windows close.
    note(cluster, START_US + 600_000_000, START_US + 600_000_000)

spark = hw.session("event-time", master="local[2]")
source = spark.readStream.format("headwater").option("subscribe", NOTED)
rows = source.option("startingOffsets", "earliest").load()
noted = rows.transform(hf.json("at_us long, read_us long")).selectExpr(
    "*", "timestamp_micros(at_us) as happened", "timestamp_micros(read_us) as processed"
)


def rate(column: str) -> DataFrame:
    """Count by half seconds of a column."""
    counted = noted.transform(hf.watermark(column, "1 second")).transform(
        hf.window(column, "500 milliseconds", buckets=1, n=hf.count())
    )
    return counted.selectExpr(f"'{column}' as by", "unix_micros(window.start) as start_us", "n")


both = rate("processed").union(rate("happened"))
hw.pipeline("rates", both).to(hw.topic(RATES)).run(once=True)

counts: dict[tuple[str, int], int] = {}
written = spark.read.format("headwater").option("subscribe", RATES).load()
for row in written.transform(hf.json("by string, start_us long, n long")).collect():
    counts[row["by"], (row["start_us"] - START_US) // 500_000] = row["n"]
spark.stop()

halves = range(max(half for _, half in counts) + 1)
for by in ("processed", "happened"):
    print(f"by when they {'were read' if by == 'processed' else 'happened'}:")
    for half in halves:
        print(f"  {half / 2:4.1f} s {'#' * counts.get((by, half), 0)}")
assert [counts.get(("happened", half), 0) for half in range(9)] == [10] * 9
assert 0 in [counts.get(("processed", half), 0) for half in range(9)], "the hole"
assert max(counts[key] for key in counts if key[0] == "processed") > 20, "the rush"
