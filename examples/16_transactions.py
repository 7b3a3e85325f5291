"""Transactions: what was read, what was written, and how far, in one step.

A worker moves money from one topic to another and dies in the middle. The one that takes over
does it again, and whoever reads committed data sees every payment exactly once.

    pip install . confluent-kafka
    headwater up                      (in another terminal)
    python examples/16_transactions.py
"""

import os
import time

from confluent_kafka import Consumer, KafkaException, Producer

BOOTSTRAP = os.environ.get("HEADWATER_BOOTSTRAP", "localhost:9092")
RUN = time.time_ns() // 1_000_000
ORDERS, BOOKED = f"orders-{RUN}", f"booked-{RUN}"
COUNT = 30


def reader(group: str) -> Consumer:
    """Return a consumer that sees committed records only."""
    return Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": f"{group}-{RUN}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )


def worker() -> Producer:
    """Return a producer that takes the place of whoever had its id before."""
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": f"booking-{RUN}"})
    producer.init_transactions(10)
    return producer


def book(producer: Producer, orders: Consumer, count: int) -> None:
    """Write a booking for each of the next orders, and how far they were read."""
    producer.begin_transaction()
    for _ in range(count):
        while (order := orders.poll(1.0)) is None or order.error():
            pass
        producer.produce(BOOKED, order.value())
    producer.send_offsets_to_transaction(
        orders.position(orders.assignment()), orders.consumer_group_metadata()
    )
    producer.flush()


customer = Producer({"bootstrap.servers": BOOTSTRAP})
for number in range(COUNT):
    customer.produce(ORDERS, str(number))
customer.flush()

first, its_orders = worker(), reader("booking")
its_orders.subscribe([ORDERS])
book(first, its_orders, 10)
first.commit_transaction(10)
book(first, its_orders, 10)
print("the first worker committed 10 bookings, wrote 10 more and hangs before the commit")
its_orders.close()

second, orders = worker(), reader("booking")
orders.subscribe([ORDERS])
try:
    first.commit_transaction(10)
    raise AssertionError("it should have been fenced")
except KafkaException as error:
    print(f"the first one wakes up, and is told: {error.args[0].str()}")

for _ in range(2):
    book(second, orders, 10)
    second.commit_transaction(10)
orders.close()
print("the second one did the rest, those ten included")

booked: list[int] = []
audit = reader("audit")
audit.subscribe([BOOKED])
while len(booked) < COUNT:
    message = audit.poll(1.0)
    value = message.value() if message is not None and not message.error() else None
    if value is not None:
        booked.append(int(value))
assert audit.poll(1.0) is None
audit.close()
assert sorted(booked) == list(range(COUNT)), booked
print(f"the audit reads {len(booked)} bookings, each exactly once")
