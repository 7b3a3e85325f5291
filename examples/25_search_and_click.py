"""Searches and clicks: joined as they come, and the click that never came is told, too.

A search counts as a success if its user clicks within ten minutes. That there was a click is known
at once. That there was none is known when no click of those ten minutes can come any more, which
the watermark tells: it stands where all searches and clicks before it have come. So the searches
without a click come out once time has gone on, and not earlier.

    pip install '.[spark,java]'
    headwater up                      (in another terminal)
    python examples/25_search_and_click.py
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
SEARCHES, CLICKS, JOINED = f"searches-{RUN}", f"clicks-{RUN}", f"searches-with-clicks-{RUN}"

EVENTS = {
    SEARCHES: [
        {"user": "anna", "searched": "2026-11-02T12:00:00Z", "words": "red shoes"},
        {"user": "bert", "searched": "2026-11-02T12:01:00Z", "words": "lamps"},
        {"user": "carla", "searched": "2026-11-02T12:02:00Z", "words": "chairs"},
        {"user": "dora", "searched": "2026-11-02T13:00:00Z", "words": "tables"},
    ],
    CLICKS: [
        {"user": "anna", "clicked": "2026-11-02T12:00:20Z", "page": "/shoes/7"},
        # Eighteen minutes after the search: that was for something else.
        {"user": "carla", "clicked": "2026-11-02T12:20:00Z", "page": "/news"},
        {"user": "dora", "clicked": "2026-11-02T13:00:10Z", "page": "/tables/1"},
    ],
}

with hw.Cluster(BOOTSTRAP) as cluster:
    for topic in (SEARCHES, CLICKS, JOINED):
        cluster.topic(topic, create=True)
    with hw.Producer(cluster) as producer:
        for topic, events in EVENTS.items():
            for event in events:
                producer.send(topic, json.dumps(event).encode(), key=event["user"].encode())

spark = hw.session("search-and-click", master="local[2]")


def read(topic: str, schema: str, time: str) -> DataFrame:
    """Read events, with the time that they have themselves."""
    source = spark.readStream.format("headwater").option("subscribe", topic)
    rows = source.option("startingOffsets", "earliest").load()
    return rows.transform(hf.json(schema)).transform(hf.watermark(time, "5 seconds"))


searches = read(SEARCHES, "user string, searched timestamp, words string", "searched")
clicks = read(CLICKS, "user string, clicked timestamp, page string", "clicked")
joined = searches.transform(
    hf.join_interval(
        clicks, on="user", lower="0 seconds", upper="10 minutes", how="left", buckets=8
    )
)
hw.pipeline("clicks", joined).to(hw.topic(JOINED, key="user")).run(once=True)

written = spark.read.format("headwater").option("subscribe", JOINED).load()
pages = {}
for row in written.transform(hf.json("user string, words string, page string")).collect():
    pages[row["user"]] = row["page"]
    print(f"{row['user']} searched for {row['words']}: {row['page'] or 'no click'}")
assert pages == {"anna": "/shoes/7", "bert": None, "carla": None, "dora": "/tables/1"}
spark.stop()
