"""One slow message: who waits for it, and who does not.

In a log, a consumer takes the records of a partition one after the other. A record that takes long
holds up what lies behind it in its partition (head-of-line blocking) and nothing else: the other
partitions are read by other members meanwhile. If messages are slow one by one and their order does
not matter, a queue is the better tool: docs/concepts/logs-and-queues.

    pip install .
    headwater up                      (in another terminal)
    python examples/11_one_slow_message.py
"""

import os
import threading
import time

import headwater
from headwater.delivery.client import admin

BOOTSTRAP = os.environ.get("HEADWATER_BOOTSTRAP", "localhost:9092")
TOPIC = f"jobs-{time.time_ns() // 1_000_000}"
JOBS = 10
SLOW_S = 1.5
done_s: dict[tuple[int, bytes], float] = {}
began_s = time.monotonic()


def work(joined: threading.Event, start: threading.Event) -> None:
    """Be one member of the group: do the jobs of our partitions, one after the other."""
    with (
        headwater.Cluster(BOOTSTRAP) as cluster,
        headwater.GroupConsumer(cluster, f"workers-{TOPIC}", [TOPIC]) as member,
    ):
        while len(member.assignment) != 1:
            member.poll(0.1)
        joined.set()
        start.wait()
        while len(done_s) < 2 * JOBS:
            for message in member.poll(0.2):
                assert message.value is not None
                if message.value == b"slow":
                    time.sleep(SLOW_S)
                done_s[message.partition, message.value] = time.monotonic() - began_s
            member.commit()


with headwater.Cluster(BOOTSTRAP) as brokers:
    admin.create_topic(brokers, TOPIC, partitions=2)
    go = threading.Event()
    ready = [threading.Event(), threading.Event()]
    workers = [threading.Thread(target=work, args=(each, go)) for each in ready]
    for worker in workers:
        worker.start()
    for each in ready:
        each.wait()
    with headwater.Producer(brokers) as producer:
        producer.send(TOPIC, b"slow", partition=0)
        for number in range(1, JOBS):
            producer.send(TOPIC, b"job %d" % number, partition=0)
        for number in range(JOBS):
            producer.send(TOPIC, b"job %d" % number, partition=1)
    began_s = time.monotonic()
    go.set()
    for worker in workers:
        worker.join()

slow_s = done_s[0, b"slow"]
behind_s = [at for (partition, value), at in done_s.items() if partition == 0 and value != b"slow"]
beside_s = [at for (partition, _), at in done_s.items() if partition == 1]
print(f"the slow job of partition 0 was done after      {slow_s:.2f} s")
print(
    f"the {len(behind_s)} jobs behind it, in its partition, after  {min(behind_s):.2f} s and later"
)
print(f"the {len(beside_s)} jobs of partition 1 were done by then:   {max(beside_s):.2f} s")
assert min(behind_s) >= slow_s, "order within a partition is kept, whatever it costs"
assert max(beside_s) < slow_s, "the other partition did not wait"
