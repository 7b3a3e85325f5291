"""The two brokers under test, started the same way and asked the same things.

This file alone decides how the brokers are started for a benchmark, and who the rival is: Apache
Kafka, or Headwater of another tree. Each is one process on loopback with a data directory on the
same disk.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

from headwater.base.errors import KafkaError
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from tests.peers.kafka_server import ApacheKafka

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_READY_WITHIN_S = 60

BrokerT = TypeVar("BrokerT", bound="Contender")


class Contender(Protocol):
    """A broker process."""

    name: str
    log_directory: Path

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    @property
    def port(self) -> int:
        """The port it listens on."""
        ...

    def stop(self) -> None:
        """End it gracefully."""
        ...


class Headwater:
    """`headwater up`, as a person would start it."""

    def __init__(
        self, folder: Path, settings: Mapping[str, str] | None = None, *, tree: Path | None = None
    ) -> None:
        """Prepare to start it, on the code of another tree if one is given."""
        self.name = "headwater" if tree is None else f"headwater of {tree}"
        self._code = {} if tree is None else {"PYTHONPATH": str(tree / "src")}
        self.folder = folder
        self.log_directory = folder / "data" / "log"
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[str] | None = None
        self._port = 0
        self.started_in_s = 0.0

    def start(self) -> None:
        """Start and wait for the line that says it is ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "headwater.toml"
        lines = [f"{json.dumps(key)} = {json.dumps(v)}\n" for key, v in self._settings.items()]
        config.write_text("".join(["[broker]\n", *lines]))
        command = [
            str(Path(sys.executable).with_name("headwater")),
            "up",
            "--listen",
            "127.0.0.1:0",
        ]
        command += ["--data", str(self.folder / "data"), "--config", str(config)]
        start = time.perf_counter()
        self._process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=os.environ | self._code
        )
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        self.started_in_s = time.perf_counter() - start
        ready = re.search(r"127\.0\.0\.1:(\d+)", line)
        if ready is None:
            self._process.kill()
            raise RuntimeError(f"headwater up did not start: {line!r}")
        self._port = int(ready[1])

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    def kill(self) -> None:
        """End it without a warning, as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End it gracefully."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_READY_WITHIN_S)
            assert self._process.stderr is not None
            self._process.stderr.close()
            self._process = None


class Kafka:
    """One KRaft node of Apache Kafka."""

    name = "apache-kafka"

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._node = ApacheKafka(folder, settings)
        self.log_directory = self._node.log_dir
        self.started_in_s = 0.0

    def start(self) -> None:
        """Start and wait until it answers; formatting its directory does not count."""
        self._node.start(heap="1G")
        self._node.stop()
        start = time.perf_counter()
        self._node.start(heap="1G")
        self.started_in_s = time.perf_counter() - start

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._node.port

    @property
    def pid(self) -> int:
        """The process id."""
        return self._node.pid

    def stop(self) -> None:
        """End it gracefully."""
        self._node.stop()


@contextmanager
def closing_broker(broker: BrokerT) -> Iterator[BrokerT]:
    """End the broker whatever happens."""
    try:
        yield broker
    finally:
        broker.stop()


Rival = Kafka | Headwater


def make_rival(
    folder: Path, settings: Mapping[str, str] | None = None, *, tree: Path | None = None
) -> Rival:
    """Return Apache Kafka, or Headwater of another tree if one is given."""
    return Kafka(folder, settings) if tree is None else Headwater(folder, settings, tree=tree)


@contextmanager
def both(
    directory: Path | None,
    settings: Mapping[str, str] | None = None,
    *,
    beside_tree: Path | None = None,
) -> Iterator[tuple[Headwater, Rival]]:
    """Run the two brokers side by side, each in a new folder."""
    with (
        scratch(directory) as folder,
        closing_broker(Headwater(folder / "ours", settings)) as ours,
        closing_broker(make_rival(folder / "theirs", settings, tree=beside_tree)) as theirs,
    ):
        ours.start()
        theirs.start()
        yield ours, theirs


@contextmanager
def scratch(directory: Path | None) -> Iterator[Path]:
    """Give a folder on the disk to be measured, and remove it afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-bench-", dir=directory))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def create_topic(port: int, name: str, partitions: int, *, durable: bool) -> None:
    """Create a topic that syncs every batch before the answer, or one that leaves it to the OS.

    Page-cache mode is Kafka's default, spelled out because ours is the other one.
    """
    flush = "1" if durable else str(2**63 - 1)
    with Cluster(f"127.0.0.1:{port}") as cluster:
        admin.create_topic(
            cluster,
            name,
            partitions=partitions,
            replication_factor=1,
            configs={"flush.messages": flush},
        )
        deadline = time.monotonic() + _READY_WITHIN_S
        while time.monotonic() < deadline:
            # Apache Kafka answers before all of its parts know the topic.
            cluster.forget_topic(name)
            with suppress(KafkaError):
                found = cluster.topic(name).partitions
                if len(found) == partitions and all(each.leader >= 0 for each in found):
                    return
            time.sleep(0.05)
        raise TimeoutError(f"{name} has no leaders yet")


def end_offsets(port: int, topic: str, partitions: int) -> list[int]:
    """Ask where each partition ends."""
    with Cluster(f"127.0.0.1:{port}") as cluster:
        found = admin.list_offsets(
            cluster, {(topic, number): admin.LATEST for number in range(partitions)}
        )
    return [found[topic, number] for number in range(partitions)]


def delete_topic(port: int, name: str) -> None:
    """Make room again."""
    with Cluster(f"127.0.0.1:{port}") as cluster:
        admin.delete_topic(cluster, name)


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used so far, kernel's included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def resident_bytes(pid: int) -> int:
    """Return the memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
