"""Consumer offsets: one number per partition says what was dealt with.

A group commits how far it has come. A member that dies is replaced by one that goes on there, and
a group can be moved to another place: to an offset, or to a point in time.

    pip install . confluent-kafka
    headwater up                      (in another terminal)
    python examples/12_offsets.py
"""

import os
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

BOOTSTRAP = os.environ.get("HEADWATER_BOOTSTRAP", "localhost:9092")
TOPIC = f"payments-{time.time_ns() // 1_000_000}"
GROUP = f"ledger-{TOPIC}"
START_MS = time.time_ns() // 1_000_000 - 100_000  # the first payment was made 100 s ago


def member() -> Consumer:
    """Return a new consumer of the group; only what it commits itself is committed."""
    return Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def read(consumer: Consumer, count: int) -> list[int]:
    """Return the next payments."""
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(1.0)
        value = message.value() if message is not None and not message.error() else None
        if value is not None:
            found.append(int(value))
    return found


admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(10)
producer = Producer({"bootstrap.servers": BOOTSTRAP})
for number in range(100):
    producer.produce(TOPIC, str(number), partition=0, timestamp=START_MS + number * 1_000)
producer.flush()

first = member()
first.subscribe([TOPIC])
assert read(first, 40) == list(range(40))
first.commit(offsets=[TopicPartition(TOPIC, 0, 40)], asynchronous=False)
assert read(first, 5) == [40, 41, 42, 43, 44]
first.close()  # gone, with five payments that were read but not committed
print("the first member read 45 payments, committed 40 and died")

second = member()
second.subscribe([TOPIC])
again = read(second, 10)
print(f"the second one went on at {again[0]}: nothing is skipped, and five came twice")
assert again == list(range(40, 50))
second.commit(offsets=[TopicPartition(TOPIC, 0, 50)], asynchronous=False)
second.close()

# Nobody is in the group now, so it can be moved: to whatever was paid in the last 30 seconds.
tool = member()
(found,) = tool.offsets_for_times([TopicPartition(TOPIC, 0, START_MS + 70_000)], timeout=10)
tool.commit(offsets=[found], asynchronous=False)
tool.close()
third = member()
third.subscribe([TOPIC])
late = read(third, 30)
print(f"moved back by time, the third one begins at {late[0]} and gets {len(late)} payments")
assert late == list(range(70, 100))
third.commit(offsets=[TopicPartition(TOPIC, 0, 100)], asynchronous=False)

(committed,) = third.committed([TopicPartition(TOPIC, 0)], timeout=10)
_, end = third.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10)
third.close()
print(f"committed {committed.offset} of {end}: the lag is {end - committed.offset}")
assert committed.offset == end == 100
