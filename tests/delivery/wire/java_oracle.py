"""Kafka's own message classes, asked through a pipe.

This file alone knows how Kafka's classes are called, and how the Java program beside it is spoken
to: it reads a message with Kafka's class, writes it again, and tells how many bytes were left.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.base.schema import Message
from tests import peers

CLIENTS = "org.apache.kafka.common.message"
COORDINATORS = {
    "ShareSnapshot": "org.apache.kafka.coordinator.share.generated",
    "ShareUpdate": "org.apache.kafka.coordinator.share.generated",
    "TransactionLog": "org.apache.kafka.coordinator.transaction.generated",
    "": "org.apache.kafka.coordinator.group.generated",
}


def java_class(message: type[Message]) -> str:
    """Return the name of Kafka's class for a message."""
    name, kind = message.__name__, message.__schema__.kind
    if kind in {"request", "response", "header"}:
        return f"{CLIENTS}.{name}Data"
    if kind == "data":
        return f"{CLIENTS}.{name}"
    package = next(package for start, package in COORDINATORS.items() if name.startswith(start))
    return f"{package}.{name}"


class JavaOracle:
    """A running Java program that echoes messages."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def echo(self, message: type[Message], version: int, data: bytes) -> bytes:
        """Return what Kafka writes after it has read these bytes, all of them."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{java_class(message)} {version} {data.hex()}\n")
        self._process.stdin.flush()
        left, written = self._process.stdout.readline().rstrip("\n").split(" ", 1)
        assert left == "0", f"{left} {written}"
        return bytes.fromhex(written)


@contextmanager
def running_java_oracle(folder: Path) -> Iterator[JavaOracle]:
    """Compile and start the program; it ends with the context.

    Args:
        folder: Where the compiled class goes.
    """
    peers.require("kafka")
    peers.require("javac")
    classes = peers.compile_java(Path(__file__).with_name("MessageEcho.java"), folder)
    command = peers.java_command("MessageEcho", more=[classes])
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield JavaOracle(process)
        finally:
            process.kill()
