"""Load balancing, fan-out, and both at once.

Two members of the group "email" share the work: each record goes to one of them. The group "audit"
reads the same topic beside them and gets every record too. Nobody configured the topic for it.

    pip install . confluent-kafka
    headwater up                      (in another terminal)
    python examples/08_load_balancing_and_fan_out.py
"""

import os
import threading
import time

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

BOOTSTRAP = os.environ.get("HEADWATER_BOOTSTRAP", "localhost:9092")
TOPIC = f"signups-{time.time_ns() // 1_000_000}"
PARTITIONS = 4
RECORDS = 400


class Member(threading.Thread):
    """One consumer of a group, on a thread of its own, that notes what it got."""

    def __init__(self, group: str, name: str) -> None:
        super().__init__(name=name)
        self.got: list[bytes] = []
        self.partitions: set[int] = set()
        self.ended = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "group.id": f"{group}-{TOPIC}",
                "client.id": name,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.subscribe([TOPIC])

    def run(self) -> None:
        """Read until told to stop; leaving commits what was read."""
        while not self.ended.is_set():
            message = self._consumer.poll(0.1)
            self.partitions = {each.partition for each in self._consumer.assignment()}
            value = message.value() if message is not None and not message.error() else None
            if value is not None:
                self.got.append(bytes(value))
        self._consumer.close()


def wait_for(*members: Member) -> None:
    """Return when the members of a group hold all partitions between them, each at least one."""
    while True:
        held = [member.partitions for member in members]
        if all(held) and sum(map(len, held)) == PARTITIONS:
            return
        time.sleep(0.05)


admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(10)
ann, ben, audit = Member("email", "ann"), Member("email", "ben"), Member("audit", "audit")
everyone = (ann, ben, audit)
for each in everyone:
    each.start()
wait_for(ann, ben)
wait_for(audit)

producer = Producer({"bootstrap.servers": BOOTSTRAP})
sent = [f"user-{number}".encode() for number in range(RECORDS)]
for value in sent:
    producer.produce(TOPIC, value, key=value)
producer.flush()
while len(audit.got) < RECORDS or len(ann.got) + len(ben.got) < RECORDS:
    time.sleep(0.05)
for each in everyone:
    each.ended.set()
    each.join()

for each in everyone:
    print(f"{each.name:5}  {len(each.got):3} records from partitions {sorted(each.partitions)}")
assert ann.got
assert ben.got
assert sorted(ann.got + ben.got) == sorted(sent), "the group has each record once"
assert sorted(audit.got) == sorted(sent), "and so has the other group"
print("email shared the work; audit got all of it as well")
