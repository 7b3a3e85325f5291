"""Recommendations, each scored by the model of its time; and again, if that comes late.

A recommendation was made at some moment, with the model that was in force then. To find out how
good models are, each recommendation has to meet that model, whatever is in force by now, and
whatever the order in which the two topics are read. A join as of event time does this. The message
about a model may be late: then the recommendations that were scored by the one before are taken
back and scored again.

    pip install '.[spark,java]'
    headwater up                      (in another terminal)
    python examples/28_model_of_its_time.py
"""

import json
import os
import tempfile
import time

from pyspark.sql import functions as F

import headwater as hw
from headwater import functions as hf

BOOTSTRAP = os.environ.setdefault("HEADWATER_BOOTSTRAP", "localhost:9092")
os.environ["HEADWATER_DATA"] = tempfile.mkdtemp()
RUN = time.time_ns() // 1_000_000
SHOWN, MODELS, SCORED = f"shown-{RUN}", f"models-{RUN}", f"scored-{RUN}"

with hw.Cluster(BOOTSTRAP) as cluster:
    for topic in (SHOWN, MODELS, SCORED):
        cluster.topic(topic, create=True)

spark = hw.session("model-of-its-time", master="local[2]")
source = spark.readStream.format("headwater").option("subscribe", SHOWN)
shown = (
    source.option("startingOffsets", "earliest")
    .load()
    .transform(hf.json("id long, shop string, at timestamp, clicks double"))
    .transform(hf.watermark("at", "5 seconds"))
)
models = hw.table(
    spark,
    MODELS,
    schema="shop string, model string, weight double, since timestamp",
    key="shop",
    valid_from="since",
)
scored = shown.transform(
    hf.join_asof(models, on="shop", time="at", late=hf.correct(until="1 hour"), buckets=8)
).withColumn("score", F.col("clicks") * F.col("weight"))
pipeline = hw.pipeline("scored", scored).to(hw.topic(SCORED))


def happen(rows: dict[str, list[dict[str, object]]]) -> None:
    """Write events, and let the pipeline take them in."""
    with hw.Cluster(BOOTSTRAP) as cluster, hw.Producer(cluster) as producer:
        for topic, events in rows.items():
            for event in events:
                key = str(event["shop"]).encode()
                producer.send(topic, json.dumps(event).encode(), key=key)
    pipeline.run(once=True)


def scores() -> dict[int, tuple[str, float]]:
    """Apply all changes; return the model and the score of each recommendation."""
    found: dict[int, tuple[str, float]] = {}
    rows = spark.read.format("headwater").option("subscribe", SCORED).load()
    schema = "id long, model string, score double, op string"
    for row in rows.transform(hf.json(schema)).orderBy("offset").collect():
        if row["op"] == "retract":
            assert found.pop(row["id"]) == (row["model"], row["score"])
        else:
            found[row["id"]] = row["model"], row["score"]
    return dict(sorted(found.items()))


def view(number: int, clock: str, clicks: int) -> dict[str, object]:
    """Return a recommendation that was shown."""
    return {"id": number, "shop": "ulm", "at": f"2026-11-02T{clock}Z", "clicks": clicks}


def model(name: str, clock: str, weight: float) -> dict[str, object]:
    """Return a model that is in force from some time on."""
    return {"shop": "ulm", "model": name, "since": f"2026-11-02T{clock}Z", "weight": weight}


happen(
    {
        # The models are there already when the recommendations of the morning are read.
        MODELS: [model("a", "08:00:00", 1.0), model("c", "12:00:00", 3.0)],
        SHOWN: [view(1, "09:00:00", 2), view(2, "11:30:00", 2), view(3, "12:30:00", 2)],
    }
)
print("first:", scores())
assert scores() == {1: ("a", 2.0), 2: ("a", 2.0)}, "nobody knows yet what holds at 12:30"

# Model b was in force since 11:00, but its message was on its way for long.
happen(
    {
        MODELS: [model("b", "11:00:00", 2.0), model("d", "13:00:00", 4.0)],
        SHOWN: [view(4, "13:30:00", 2)],
    }
)
print("then: ", scores())
assert scores() == {1: ("a", 2.0), 2: ("b", 4.0), 3: ("c", 6.0)}
spark.stop()
