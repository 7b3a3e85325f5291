"""Timelines: who follows whom, joined with who has posted what, kept up to date.

Two tables are in two topics, which are read as one source. Their join says whose timeline each
message is on. It does not say it once: when somebody unfollows, messages are taken back from one
timeline; when a message is deleted, from all that it is on; when somebody follows, old messages
come. What comes out are these changes, and whoever applies them has the timelines as they are.

    pip install '.[spark,java]'
    headwater up                      (in another terminal)
    python examples/27_timeline.py
"""

import json
import os
import tempfile
import time
from collections import defaultdict

import headwater as hw
from headwater import functions as hf

BOOTSTRAP = os.environ.setdefault("HEADWATER_BOOTSTRAP", "localhost:9092")
os.environ["HEADWATER_DATA"] = tempfile.mkdtemp()
RUN = time.time_ns() // 1_000_000
POSTS, FOLLOWS, TIMELINES = f"posts-{RUN}", f"follows-{RUN}", f"timelines-{RUN}"

with hw.Cluster(BOOTSTRAP) as cluster:
    for topic in (POSTS, FOLLOWS, TIMELINES):
        cluster.topic(topic, create=True)

spark = hw.session("timelines", master="local[2]")
tables = hw.tables(
    spark,
    {
        "posts": {"topic": POSTS, "schema": "id long, author string, text string", "key": "id"},
        "follows": {
            "topic": FOLLOWS,
            "schema": "follower string, followee string",
            "key": ["follower", "followee"],
        },
    },
)
timelines = tables["posts"].transform(
    hf.join_tables(tables["follows"], on={"author": "followee"}, buckets=8)
)
pipeline = hw.pipeline("timelines", timelines).to(hw.topic(TIMELINES, key="follower"))

Row = dict[str, object]


def happen(*changes: tuple[str, Row, Row | None]) -> None:
    """Write the rows of tables under their keys, or that they are gone."""
    with hw.Cluster(BOOTSTRAP) as cluster, hw.Producer(cluster) as producer:
        for topic, key, row in changes:
            value = None if row is None else json.dumps({**key, **row}).encode()
            producer.send(topic, value, key=json.dumps(key).encode())
    pipeline.run(once=True)


def seen() -> dict[str, list[str]]:
    """Apply all changes, in their order; return what is on each timeline."""
    found: dict[str, list[str]] = defaultdict(list)
    rows = spark.read.format("headwater").option("subscribe", TIMELINES).load()
    rows = rows.transform(hf.json("follower string, text string, op string")).orderBy("offset")
    for row in rows.collect():
        timeline = found[row["follower"]]
        (timeline.append if row["op"] == "insert" else timeline.remove)(row["text"])
    return {name: sorted(texts) for name, texts in sorted(found.items())}


def post(number: int, author: str, text: str) -> tuple[str, Row, Row]:
    """Return the row of a message."""
    return POSTS, {"id": number}, {"author": author, "text": text}


def follow(follower: str, followee: str) -> tuple[str, Row, Row]:
    """Return the row that says who follows whom."""
    return FOLLOWS, {"follower": follower, "followee": followee}, {}


happen(
    post(1, "anna", "hello"),
    post(2, "anna", "good night"),
    post(3, "bert", "rain again"),
    follow("carla", "anna"),
    follow("dora", "anna"),
    follow("dora", "bert"),
)
print("first:", seen())
assert seen() == {"carla": ["good night", "hello"], "dora": ["good night", "hello", "rain again"]}

# Carla unfollows Anna and follows Bert; a message is deleted, and another one edited.
happen(
    (FOLLOWS, {"follower": "carla", "followee": "anna"}, None),
    follow("carla", "bert"),
    (POSTS, {"id": 2}, None),
    post(3, "bert", "sun at last"),
)
print("then: ", seen())
assert seen() == {"carla": ["sun at last"], "dora": ["hello", "sun at last"]}
spark.stop()
