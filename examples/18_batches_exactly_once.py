"""A batch is repeated: what went through the sink counts once, what went outside counts twice.

Spark notes each batch when it is done. A driver that dies between its last effect and that note
repeats the batch. The sink has a note of its own, in the transaction that wrote the rows, and
writes nothing again. A letter cannot be taken back: whoever sends it from inside a batch sends it
twice. The cure is to write it to the log, and to send what is committed there.

    pip install '.[spark,java]' confluent-kafka
    headwater up                      (in another terminal)
    python examples/18_batches_exactly_once.py
"""

import os
import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from pyspark.sql import DataFrame

import headwater as hw

BOOTSTRAP = os.environ.get("HEADWATER_BOOTSTRAP", "localhost:9092")
RUN = time.time_ns() // 1_000_000
ORDERS, BILLS = f"orders-{RUN}", f"bills-{RUN}"
FOLDER = Path(tempfile.mkdtemp())
LETTERS = FOLDER / "letters-sent.txt"


def send_letters(batch: DataFrame, batch_id: int) -> None:
    """Have an effect outside: a line for each order, as a call to a server would be."""
    with LETTERS.open("a") as file:
        file.writelines(f"batch {batch_id}: {row.value!r}\n" for row in batch.collect())


def run_up_to_now(orders: DataFrame) -> None:
    """Bill the orders that are there, through the sink and by letter."""
    bills = orders.select("value").writeStream.format("headwater").option("topic", BILLS)
    letters = orders.select("value").writeStream.foreachBatch(send_letters)
    for name, writer in (("bills", bills), ("letters", letters)):
        query = writer.option("checkpointLocation", str(FOLDER / name))
        query.trigger(availableNow=True).start().awaitTermination()


def forget_the_last_note() -> None:
    """Make the checkpoints what they are when a driver dies before it notes a batch as done."""
    for name in ("bills", "letters"):
        for note in (FOLDER / name / "commits").glob("*0*"):
            note.unlink()


def committed_bills() -> list[bytes]:
    """Read with a client that knows nothing of Spark."""
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": f"readers-{RUN}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(BILLS, 0, 0)])
    found: list[bytes] = []
    while True:
        message = consumer.poll(10.0)
        if message is None:
            raise SystemExit("the bills do not come")
        error = message.error()
        if error is None:
            found.append(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - that is its name
            consumer.close()
            return found


customer = Producer({"bootstrap.servers": BOOTSTRAP})
for number in range(3):
    customer.produce(ORDERS, f"order {number}")
customer.flush()
with hw.Cluster(BOOTSTRAP) as cluster:
    cluster.topic(BILLS, create=True)

spark = hw.session("bills", master="local[2]", bootstrap=BOOTSTRAP)
source = spark.readStream.format("headwater").option("subscribe", ORDERS)
stream = source.option("startingOffsets", "earliest").load()
run_up_to_now(stream)
forget_the_last_note()
run_up_to_now(stream)
spark.stop()

bills = committed_bills()
letters = LETTERS.read_text().splitlines()
print(f"3 orders, {len(bills)} bills in the log, {len(letters)} letters sent")
assert sorted(bills) == [b"order 0", b"order 1", b"order 2"], bills
assert len(letters) == 6, letters
