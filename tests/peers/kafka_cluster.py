"""Apache Kafka on three nodes, each broker and controller, started for the tests.

This file alone decides how the nodes find each other and when they count as ready. Every topic has
three replicas, and two of them must have a record before it is acknowledged; so one node may die.
A single node is in `tests.peers.kafka_server`.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.peers import java_command
from tests.peers.kafka_server import (
    CLUSTER_ID,
    READY_WITHIN_S,
    SETTINGS,
    KafkaDidNotStartError,
    broker_count,
    free_ports,
)

NODES = (1, 2, 3)
_INTERNAL = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
_SETTINGS = {
    **SETTINGS,
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    **{f"{topic}.replication.factor": "3" for topic in _INTERNAL},
    **{f"{topic}.min.isr": "2" for topic in _INTERNAL[1:]},
    # A node that is killed is missed after this time; 9 s by default. Less would take a machine
    # that is busy for one that is dead.
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
}
# Three nodes of one machine share what a single one has for itself.
_READY_WITHIN_S = 2 * READY_WITHIN_S


class KafkaCluster:
    """Three nodes; each is ended by the id of its own process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ports = free_ports(2 * len(NODES))
        self._ports = dict(zip(NODES, ports, strict=False))
        self._controller_ports = dict(zip(NODES, ports[len(NODES) :], strict=True))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._outputs: list[IO[bytes]] = []

    @property
    def bootstrap(self) -> str:
        """The addresses of the nodes that run."""
        return ",".join(f"127.0.0.1:{self._ports[node]}" for node in self._processes)

    def start(self, *, heap: str = "256M") -> None:
        """Format the folders and start all nodes; wait until each knows the others."""
        files = {node: self._write_properties(node) for node in NODES}
        formats = [
            subprocess.Popen(
                java_command(
                    "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(path)
                ),
                stdout=subprocess.DEVNULL,
            )
            for path in files.values()
        ]
        assert [each.wait(_READY_WITHIN_S) for each in formats] == [0] * len(NODES)
        for node, path in files.items():
            output = (path.parent / "output.txt").open("wb")
            self._outputs.append(output)
            self._processes[node] = subprocess.Popen(
                java_command("kafka.Kafka", str(path), heap=heap),
                cwd=path.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._wait_ready()

    def node_at(self, address: str) -> int:
        """Which node clients reach at HOST:PORT."""
        port = int(address.rpartition(":")[2])
        return next(node for node, its_port in self._ports.items() if its_port == port)

    def kill(self, node: int) -> None:
        """End a node as a power cut would."""
        process = self._processes.pop(node)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """End all nodes at once: what they hold is not wanted any more."""
        for node in list(self._processes):
            self.kill(node)
        for output in self._outputs:
            output.close()

    def output(self, node: int) -> str:
        """What a node has printed so far."""
        return (self.folder / str(node) / "output.txt").read_text(errors="replace")

    def _write_properties(self, node: int) -> Path:
        folder = self.folder / str(node)
        folder.mkdir()
        host = "127.0.0.1"
        listeners = {"PLAINTEXT": self._ports[node], "CONTROLLER": self._controller_ports[node]}
        values = {
            **_SETTINGS,
            "node.id": str(node),
            "controller.quorum.voters": ",".join(
                f"{each}@{host}:{port}" for each, port in self._controller_ports.items()
            ),
            "listeners": ",".join(f"{name}://{host}:{port}" for name, port in listeners.items()),
            "log.dirs": str(folder / "data"),
        }
        path = folder / "server.properties"
        # Java reads properties in this encoding.
        path.write_text(
            "".join(f"{name}={value}\n" for name, value in values.items()), encoding="iso-8859-1"
        )
        return path

    def _wait_ready(self) -> None:
        end_s = time.monotonic() + _READY_WITHIN_S
        waiting = set(NODES)
        while waiting:
            for node in list(waiting):
                if self._processes[node].poll() is not None:
                    raise KafkaDidNotStartError(f"node {node} ended at once\n{self.output(node)}")
                if broker_count("127.0.0.1", self._ports[node]) == len(NODES):
                    waiting.discard(node)
            if time.monotonic() > end_s:
                raise KafkaDidNotStartError(f"nodes {waiting} are not ready in {_READY_WITHIN_S} s")
            time.sleep(0.1)


@contextmanager
def running_kafka_cluster() -> Iterator[KafkaCluster]:
    """Start three nodes in a folder of their own; all are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="apache-kafka-three-"))
    cluster = KafkaCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
