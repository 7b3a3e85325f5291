"""Three things to do with a stream: write it to a store, tell people, make another stream.

Orders come into a topic. One query keeps them in a table of Parquet files. Another passes large
ones on to a topic of their own, which is a stream like any other. A person who waits at that topic
is told at once. The queries run twice and nothing is there twice: files and topics are committed by
batch.

    pip install '.[spark,java]' confluent-kafka
    headwater up                      (in another terminal)
    python examples/20_store_people_stream.py
"""

import os
import tempfile
import time
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import headwater as hw
from headwater import functions as hf

BOOTSTRAP = os.environ.get("HEADWATER_BOOTSTRAP", "localhost:9092")
RUN = time.time_ns() // 1_000_000
ORDERS, LARGE = f"orders-{RUN}", f"orders-large-{RUN}"
FOLDER = Path(tempfile.mkdtemp())
TABLE = str(FOLDER / "table")
QUANTITIES = (10, 700, 30, 900)


def run_up_to_now(name: str, writer: DataStreamWriter) -> None:
    """Bring one end of the stream up to what is there."""
    writer = writer.option("checkpointLocation", str(FOLDER / name))
    writer.trigger(availableNow=True).start().awaitTermination()


def run_both(orders: DataFrame) -> None:
    """Write the store, and the further stream."""
    large = orders.where("qty >= 500").selectExpr("string(id) as key", "string(qty) as value")
    run_up_to_now("store", orders.writeStream.format("parquet").option("path", TABLE))
    run_up_to_now("stream", large.writeStream.format("headwater").option("topic", LARGE))


def tell(person: Consumer) -> list[str]:
    """Wait as somebody does who wants to be told, until nothing more comes."""
    told: list[str] = []
    while (message := person.poll(10.0 if not told else 1.0)) is not None:
        if message.error() is None:
            key, value = message.key() or b"", message.value() or b""
            told.append(f"order {key.decode()} is large: {value.decode()}")
    return told


customer = Producer({"bootstrap.servers": BOOTSTRAP})
for number, quantity in enumerate(QUANTITIES):
    customer.produce(ORDERS, f'{{"id": {number}, "qty": {quantity}}}')
customer.flush()
with hw.Cluster(BOOTSTRAP) as cluster:
    cluster.topic(LARGE, create=True)

spark = hw.session("three-ends", master="local[2]", bootstrap=BOOTSTRAP)
source = spark.readStream.format("headwater").option("subscribe", ORDERS)
rows = source.option("startingOffsets", "earliest").load()
stream = rows.transform(hf.json("id bigint, qty int")).select("id", "qty")
run_both(stream)
run_both(stream)

kept = [row.qty for row in spark.read.parquet(TABLE).orderBy("id").collect()]
spark.stop()
reader = Consumer(
    {
        "bootstrap.servers": BOOTSTRAP,
        "group.id": f"people-{RUN}",
        "isolation.level": "read_committed",
    }
)
reader.assign([TopicPartition(LARGE, 0, OFFSET_BEGINNING)])
news = tell(reader)
reader.close()
print(f"in the table: {kept}", *news, sep="\n")
assert kept == list(QUANTITIES), kept
assert news == ["order 1 is large: 700", "order 3 is large: 900"], news
