"""Enrichment: each visit with the profile of its user, from a copy of the table that is kept local.

The profiles are a table in a database of somebody else's. Asking that database for each visit would
be slow, and would load it; here its changes are a topic, and the join keeps what they come to. A
visit gets the profile as it is when the visit is processed. A profile that is deleted, by a record
without a value, is not found any more.

    pip install '.[spark,java]'
    headwater up                      (in another terminal)
    python examples/26_profile_enrichment.py
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
VISITS, PROFILES, ENRICHED = f"visits-{RUN}", f"profiles-{RUN}", f"visits-enriched-{RUN}"

with hw.Cluster(BOOTSTRAP) as cluster:
    for topic in (VISITS, PROFILES, ENRICHED):
        cluster.topic(topic, create=True)

spark = hw.session("enrichment", master="local[2]")
source = spark.readStream.format("headwater").option("subscribe", VISITS)
visits = (
    source.option("startingOffsets", "earliest").load().transform(hf.json("user long, page string"))
)
profiles = hw.table(spark, PROFILES, schema="id long, name string, city string", key="id")
enriched = visits.transform(hf.join_latest(profiles, on={"user": "id"}, how="left", buckets=8))
pipeline = hw.pipeline("enriched", enriched).to(hw.topic(ENRICHED))


def happen(profiles: dict[int, dict[str, object] | None], visitors: list[int]) -> None:
    """Change profiles, then have people visit the page, and let the pipeline take that in."""
    with hw.Cluster(BOOTSTRAP) as cluster, hw.Producer(cluster) as producer:
        for user, profile in profiles.items():
            value = None if profile is None else json.dumps(profile).encode()
            producer.send(PROFILES, value, key=b"%d" % user)
        for user in visitors:
            producer.send(VISITS, json.dumps({"user": user, "page": "/"}).encode())
    pipeline.run(once=True)


happen({1: {"id": 1, "name": "anna", "city": "Ulm"}, 2: {"id": 2, "name": "bert"}}, [1, 2, 3])
happen({1: {"id": 1, "name": "anna", "city": "Kiel"}, 2: None}, [1, 2])

written = spark.read.format("headwater").option("subscribe", ENRICHED).load()
rows = written.transform(hf.json("user long, name string, city string")).orderBy("offset")
found = sorted((row["user"], row["name"] or "", row["city"] or "") for row in rows.collect())
print(*found, sep="\n")
assert found == [
    (1, "anna", "Kiel"),
    (1, "anna", "Ulm"),
    (2, "", ""),
    (2, "bert", ""),
    (3, "", ""),
]
spark.stop()
