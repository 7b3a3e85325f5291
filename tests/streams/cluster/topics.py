"""The topics of a job on a cluster: what goes in, and what has to come out.

This file alone decides both. A partition's rows stay in the partition of its number, in order.
"""

from pathlib import Path

from tests.streams.brokers import Broker
from tests.streams.cluster.driver import Job
from tests.streams.sink.reading import committed

_PARTITIONS = 3
_ROWS = 300


def prepared(broker: Broker, fault: str, folder: Path) -> tuple[Job, dict[int, list[bytes]]]:
    """Fill a topic; gives the job, and what the partitions of its sink have to hold, in order."""
    job = Job(
        broker.bootstrap,
        broker.topic("cluster-in", partitions=_PARTITIONS),
        broker.topic("cluster-out", partitions=_PARTITIONS),
        fault,
        str(folder),
    )
    expected = {
        partition: [b"%d/%d" % (partition, number) for number in range(_ROWS)]
        for partition in range(_PARTITIONS)
    }
    for partition, rows in expected.items():
        broker.send(job.source, [(b"k", row) for row in rows], partition=partition)
    return job, expected


def written(job: Job) -> dict[int, list[bytes]]:
    """Return what is committed in each partition of the sink, in order."""
    found: dict[int, list[bytes]] = {}
    for record in committed(job.bootstrap, job.sink):
        found.setdefault(record.partition, []).append(record.value)
    return found
