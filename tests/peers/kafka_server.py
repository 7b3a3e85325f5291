"""Apache Kafka, one KRaft node, started for the tests.

This file alone decides how the peer broker is configured and when it counts as ready. One listener
is plain; more, with TLS or passwords, can be asked for by name. It knows nothing of Headwater:
readiness is asked with a hand-made Metadata request, so that a fault in our own client cannot hide
here.
"""

import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from tests.peers import java, java_command

# Any base64url UUID will do: every node here is a cluster of its own in its own folder.
CLUSTER_ID = "aGVhZHdhdGVyLXBlZXItMQ"

SETTINGS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    # Tests write records of long ago; the first round of retention must not come between two steps.
    "log.initial.task.delay.ms": "86400000",
}

# Starting takes 2.5 s on an idle machine of two cores; a busy one may need many times that.
READY_WITHIN_S = 90
BIND_TRIES = 3


class KafkaDidNotStartError(RuntimeError):
    """The peer broker ended, or stayed silent, before it was ready."""


class ApacheKafka:
    """One running Apache Kafka node; `stop` ends exactly the process that was started."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        listeners: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
    ) -> None:
        """Choose a folder, and what differs from `SETTINGS`.

        Args:
            folder: Where everything of the node lies.
            settings: Values of server.properties.
            listeners: Further listeners, and the security protocol of each.
            format_options: What Kafka's storage tool is told beside the cluster's id.
        """
        self.folder = folder
        self.settings = {**SETTINGS, **(settings or {})}
        self.port = 0
        self._protocols = dict(listeners or {})
        self._ports: dict[str, int] = {}
        self._format_options = format_options
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address clients are given."""
        return f"127.0.0.1:{self.port}"

    def address(self, listener: str) -> str:
        """The address of one of the further listeners."""
        return f"127.0.0.1:{self._ports[listener]}"

    @property
    def log_dir(self) -> Path:
        """The folder that holds one folder per partition."""
        return self.folder / "data"

    @property
    def pid(self) -> int:
        """The id of the Java process."""
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self, *, heap: str = "768M") -> None:
        """Start the node and wait until it answers; a port lost to another process is retried."""
        for tries_left in reversed(range(BIND_TRIES)):
            self.port, controller_port, *more = free_ports(2 + len(self._protocols))
            self._ports = dict(zip(self._protocols, more, strict=True))
            properties = self._write_properties(controller_port)
            if not self.log_dir.exists():
                java(
                    "kafka.tools.StorageTool",
                    *("format", "-t", CLUSTER_ID, "-c", str(properties), *self._format_options),
                )
            self._launch(properties, heap)
            try:
                self._wait_ready()
            except KafkaDidNotStartError as error:
                self.stop()
                if tries_left == 0 or "BindException" not in str(error):
                    raise
            else:
                return

    def stop(self) -> None:
        """End the process, gently at first."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._output is not None:
            self._output.close()
            self._output = None

    def output(self) -> str:
        """What the node has printed so far."""
        return (self.folder / "output.txt").read_text(errors="replace")

    def _write_properties(self, controller_port: int) -> Path:
        host = "127.0.0.1"
        listeners = {"PLAINTEXT": self.port, "CONTROLLER": controller_port, **self._ports}
        protocols = [f"{name}:{protocol}" for name, protocol in self._protocols.items()]
        protocol_map = "listener.security.protocol.map"
        values = {
            **self.settings,
            "controller.quorum.voters": f"1@{host}:{controller_port}",
            "listeners": ",".join(f"{name}://{host}:{port}" for name, port in listeners.items()),
            protocol_map: ",".join([self.settings[protocol_map], *protocols]),
            "log.dirs": str(self.log_dir),
        }
        path = self.folder / "server.properties"
        # Java reads properties in this encoding.
        path.write_text(
            "".join(f"{name}={value}\n" for name, value in values.items()), encoding="iso-8859-1"
        )
        return path

    def _launch(self, properties: Path, heap: str) -> None:
        # No speed limits here, unlike in `java_command`: this is the yardstick of benchmarks.
        command = ["java", f"-Xmx{heap}", f"-Xms{heap}"]
        command += java_command("kafka.Kafka", str(properties))[-4:]
        self._output = (self.folder / "output.txt").open("wb")
        self._process = subprocess.Popen(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def _wait_ready(self) -> None:
        assert self._process is not None
        end_s = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < end_s:
            if self._process.poll() is not None:
                raise KafkaDidNotStartError(f"Apache Kafka ended at once\n{self.output()}")
            if broker_count("127.0.0.1", self.port) > 0:
                return
            time.sleep(0.1)
        raise KafkaDidNotStartError(f"no answer in {READY_WITHIN_S} s\n{self.output()}")


@contextmanager
def running_kafka(
    settings: Mapping[str, str] | None = None,
    *,
    heap: str = "768M",
    listeners: Mapping[str, str] | None = None,
    format_options: Sequence[str] = (),
) -> Iterator[ApacheKafka]:
    """Start a node in a folder of its own; both are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
    kafka = ApacheKafka(folder, settings, listeners=listeners, format_options=format_options)
    try:
        kafka.start(heap=heap)
        yield kafka
    finally:
        kafka.stop()
        shutil.rmtree(folder, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Ask the kernel for ports; all are held at once so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def broker_count(host: str, port: int) -> int:
    """Ask Metadata v1 for no topics; gives the number of brokers in the answer, 0 if none came."""
    with suppress(OSError), socket.create_connection((host, port), timeout=5) as link:
        link.settimeout(5)
        # api key 3, version 1, correlation id 7, null client id, an empty array of topics
        request = struct.pack(">hhihi", 3, 1, 7, -1, 0)
        link.sendall(struct.pack(">i", len(request)) + request)
        with link.makefile("rb") as answer:
            head = answer.read(12)
        if len(head) == 12:
            _size, _correlation_id, brokers = struct.unpack(">iii", head)
            return int(brokers)
    return 0
