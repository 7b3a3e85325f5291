"""A pipeline that was stopped knows what it knew: its state is rebuilt from the checkpoint.

`_first_orders.py` passes on the first order of each customer. It runs, ends, and is started again
by a new query, to which the customers of before are known. The same file runs on a cluster, through
the death of executors and brokers: see docs/guides/run-on-a-cluster.md.

    pip install '.[spark,java]' confluent-kafka
    headwater up                      (in another terminal)
    python examples/21_state_survives.py
"""

import os
import runpy
import tempfile
from pathlib import Path

from confluent_kafka import Producer

import headwater as hw

BOOTSTRAP = os.environ.setdefault("HEADWATER_BOOTSTRAP", "localhost:9092")
os.environ["HEADWATER_DATA"] = tempfile.mkdtemp()


def order(*customers: str) -> None:
    """Have each of them order something."""
    shop = Producer({"bootstrap.servers": BOOTSTRAP})
    for customer in customers:
        shop.produce("orders", f"{customer} orders", key=customer)
    shop.flush()


def first_orders() -> list[str]:
    """Read what the pipeline has written so far."""
    topic = spark.read.format("headwater").option("subscribe", "firsts").load()
    return sorted(row.value.decode() for row in topic.collect())


with hw.Cluster(BOOTSTRAP) as cluster:
    cluster.topic("orders", create=True)
    cluster.topic("firsts", create=True)

defined = runpy.run_path(str(Path(__file__).with_name("_first_orders.py")))
firsts, spark = defined["firsts"], defined["spark"]

order("anna", "bert", "anna")
firsts.run(once=True)
print("first run: ", first_orders())

order("bert", "carla", "anna", "carla")
firsts.run(once=True)
print("second run:", first_orders())
assert first_orders() == ["ANNA ORDERS", "BERT ORDERS", "CARLA ORDERS"]
spark.stop()
