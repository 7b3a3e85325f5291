"""Windows: four ways to cut a stream by time, and what can be measured in each.

Views of pages by two visitors. By the minute (tumbling): how many there were, of how many visitors,
how long the slowest twentieth took, and which pages are seen most. By visit (session): what each
visitor saw until he paused. By view (sliding): how much this visitor saw in the two minutes before.
And of all stretches of two minutes (hopping), the busiest of the hour: a window of windows.

    pip install '.[spark,java]'
    headwater up                      (in another terminal)
    python examples/24_windows.py
"""

import json
import os
import tempfile
import time

import headwater as hw
from headwater import functions as hf

BOOTSTRAP = os.environ.setdefault("HEADWATER_BOOTSTRAP", "localhost:9092")
os.environ["HEADWATER_DATA"] = tempfile.mkdtemp()
RUN = time.time_ns() // 1_000_000
VIEWS, RESULTS = f"views-{RUN}", f"results-{RUN}"

EVENTS = [
    ("12:00:05", "anna", "/", 20),
    ("12:00:30", "bert", "/", 40),
    ("12:00:50", "anna", "/shoes", 30),
    ("12:01:10", "anna", "/shoes/7", 25),
    ("12:04:00", "anna", "/", 35),
    ("14:00:00", "carla", "/", 10),  # time goes on, and what was before can be closed
]

with hw.Cluster(BOOTSTRAP) as cluster:
    for topic in (VIEWS, RESULTS):
        cluster.topic(topic, create=True)
    with hw.Producer(cluster) as producer:
        for clock, who, page, took_ms in EVENTS:
            view = {"at": f"2026-11-01T{clock}Z", "who": who, "page": page, "took_ms": took_ms}
            producer.send(VIEWS, json.dumps(view).encode())

spark = hw.session("windows", master="local[2]")
source = spark.readStream.format("headwater").option("subscribe", VIEWS)
rows = source.option("startingOffsets", "earliest").load()
views = rows.transform(hf.json("at timestamp, who string, page string, took_ms int"))
views = views.transform(hf.watermark("at", "10 seconds"))

tumbling = views.transform(
    hf.window(
        "at",
        "1 minute",
        views=hf.count(),
        visitors=hf.approx_distinct("who"),
        slow=hf.percentile("took_ms", 0.95),
        top=hf.heavy_hitters("page", 1),
    )
)
sessions = views.transform(
    hf.window("at", session="1 minute", by=["who"], pages=hf.collect("page"))
)
sliding = views.transform(hf.window("at", sliding="2 minutes", by=["who"], before=hf.count()))
busiest = views.transform(
    hf.window("at", "2 minutes", every="1 minute", views=hf.count())
).transform(hf.window("window", "1 hour", most=hf.max("views")))

minute = "date_format(window.start, 'HH:mm')"
texts = [
    tumbling.selectExpr(
        f"concat_ws(' ', 'minute', {minute}, views, visitors, round(slow), top[0].value) as value"
    ),
    sessions.selectExpr("concat_ws(' ', 'visit', who, concat_ws(',', pages)) as value"),
    sliding.selectExpr("concat_ws(' ', 'view', who, page, before) as value"),
    busiest.selectExpr("concat_ws(' ', 'busiest', most) as value"),
]
everything = texts[0].union(texts[1]).union(texts[2]).union(texts[3])
hw.pipeline("windows", everything).to(hw.topic(RESULTS)).run(once=True)

written = spark.read.format("headwater").option("subscribe", RESULTS).load()
found = sorted(row[0] for row in written.selectExpr("string(value)").collect())
spark.stop()
print(*found, sep="\n")
assert found == [
    "busiest 4",
    "minute 12:00 3 2 40.0 /",
    "minute 12:01 1 1 25.0 /shoes/7",
    "minute 12:04 1 1 35.0 /",
    "view anna / 1",
    "view anna / 1",
    "view anna /shoes 2",
    "view anna /shoes/7 3",
    "view bert / 1",
    "visit anna /",
    "visit anna /,/shoes,/shoes/7",
    "visit bert /",
]
