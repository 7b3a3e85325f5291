"""The foreign clients, each in a program of its own that the tests speak with.

This file alone decides how a client's program is started, spoken to and ended. What the programs
answer to stands in `tests.interop.programs.lines`.
"""

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

from tests import peers
from tests.interop.kcat import Kcat

HERE = Path(__file__).resolve().parent
PATIENCE_S = 60.0


class ClientError(Exception):
    """What a client raised, by the name of its exception and, if it has one, Kafka's number."""

    def __init__(self, name: str, code: int | None, message: str) -> None:
        super().__init__(f"{name} ({code}): {message}")
        self.name = name
        self.code = code


class Speaker(Protocol):
    """Something that does with its client what it is told."""

    def call(self, operation: str, /, **arguments: object) -> Any:  # noqa: ANN401 - JSON
        """Have one operation done; a client's exception is a ClientError."""


class Program:
    """A running program that holds one client library."""

    def __init__(self, command: list[str], errors: Path, environment: Mapping[str, str]) -> None:
        self._errors = errors
        with errors.open("wb") as stderr:
            self._process = subprocess.Popen(
                command,
                cwd=peers.ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                encoding="utf-8",
            )
        assert self._process.stdout is not None
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,))
        self._reader.start()

    def call(self, operation: str, /, **arguments: object) -> Any:  # noqa: ANN401 - JSON
        """Have one operation done; a client's exception is a ClientError."""
        self.tell(operation, **arguments)
        answer = self.next_line(PATIENCE_S)
        if "error" in answer:
            raise ClientError(answer["error"], answer["code"], answer["message"])
        return answer["result"]

    def tell(self, operation: str, /, **arguments: object) -> None:
        """Send an operation without waiting for anything."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": operation, **arguments}) + "\n")
        self._process.stdin.flush()

    def next_line(self, patience_s: float) -> dict[str, Any]:
        """Wait for the program to say something; raises TimeoutError when it does not."""
        try:
            line = self._lines.get(timeout=max(0.0, patience_s))
        except queue.Empty:
            raise TimeoutError(f"nothing in {patience_s} s\n{self.errors()}") from None
        if line is None:
            raise EOFError(f"ended with {self._process.wait()}\n{self.errors()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def errors(self) -> str:
        """Give the end of what the program wrote to its standard error."""
        return self._errors.read_text(errors="replace")[-4_000:]

    def kill(self) -> None:
        """End it as a crash does: without a word to the broker."""
        self._process.kill()
        self._end()

    def close(self) -> None:
        """End it by ending its input."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(timeout=10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None and not stream.closed:
                _close(stream)

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line)
        self._lines.put(None)


def _close(stream: IO[str]) -> None:
    with contextlib.suppress(BrokenPipeError):
        stream.close()


class Clients:
    """Every client by name; programs start at first use and are shared by all tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shared: dict[str, Program] = {}
        self._classes: dict[str, Path] = {}
        self._count = 0

    def __getitem__(self, name: str) -> Speaker:
        """Give the shared program of a client."""
        if name == "kcat":
            peers.require(NEEDS[name])
            return Kcat()
        if name not in self._shared:
            self._shared[name] = self.start(name)
        return _Careful(self._shared[name], lambda: self._drop(name))

    def start(self, name: str) -> Program:
        """Start a program of its own, such as a member that will be killed."""
        command, environment = self._command(name)
        self._count += 1
        return Program(command, self._folder / f"{name}-{self._count}.stderr", environment)

    def close(self) -> None:
        """End the shared programs."""
        for program in self._shared.values():
            program.close()

    def _drop(self, name: str) -> None:
        self._shared.pop(name).kill()

    def _command(self, name: str) -> tuple[list[str], Mapping[str, str]]:
        environment = peers.node_environment()
        if name in NEEDS:
            peers.require(NEEDS[name])
        if name == "kafkajs":
            return ["node", str(HERE / "js" / "driver.js")], environment
        if name in JAVA:
            jars = JAVA[name]
            peers.require("javac")
            # What administrators can call has grown since 2.8: the driver does not compile there,
            # but what it uses of producers and consumers runs.
            headers: peers.Jars = "clients-3.9" if jars == "clients-2.8" else jars
            compiled = self._compiled(headers)
            return peers.java_command("Driver", jars=jars, more=[compiled]), environment
        module = f"tests.interop.programs.{PYTHON[name]}"
        return [sys.executable, "-m", module], environment

    def _compiled(self, jars: peers.Jars) -> Path:
        if jars not in self._classes:
            source = HERE / "java" / "Driver.java"
            self._classes[jars] = peers.compile_java(source, self._folder / jars, jars=jars)
        return self._classes[jars]


class _Careful:
    """Never uses a program again that has not answered: its late answer would be the next one."""

    def __init__(self, program: Program, drop: Callable[[], None]) -> None:
        self._program = program
        self._drop = drop

    def call(self, operation: str, /, **arguments: object) -> Any:  # noqa: ANN401 - JSON
        try:
            return self._program.call(operation, **arguments)
        except ClientError:
            raise
        except BaseException:
            self._drop()
            raise


# The peer that each client needs, beyond what `make setup` brings.
NEEDS = {
    "kcat": "kcat",
    "kafkajs": "kafkajs",
    "java-4.3": "kafka",
    "java-3.9": "clients-3.9",
    "java-2.8": "clients-2.8",
}
PYTHON = {"confluent": "confluent", "kafka-python": "kafka_python", "aiokafka": "aio_kafka"}
JAVA: Mapping[str, peers.Jars] = {
    "java-4.3": "kafka-4.3",
    "java-3.9": "clients-3.9",
    "java-2.8": "clients-2.8",
}
# Of all clients this one is used by most others in the world, through its bindings.
WITNESS = "confluent"
ALL = ("confluent", "kafka-python", "aiokafka", "kcat", "kafkajs", "java-4.3", "java-3.9")


def eventually(seconds: float, *, every_s: float = 0.02) -> Iterator[float]:
    """Give the seconds gone by, again and again, until they are used up."""
    begun_s = time.monotonic()
    while (gone_s := time.monotonic() - begun_s) < seconds:
        yield gone_s
        time.sleep(every_s)
