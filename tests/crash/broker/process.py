"""The broker's process, from outside.

This file alone starts, watches and ends it, always by its own id, and keeps the port on which it
listens again after every death.
"""

import contextlib
import json
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.crash.broker.node import Orders, command

ROOT = Path(__file__).parents[3]

_READY_WITHIN_S = 60.0


class BrokerProcess:
    """One run of the broker."""

    def __init__(self, orders: Orders, errors: Path) -> None:
        """Start it; ``wait_ready`` tells whether it came up."""
        self.orders = orders
        self._errors = errors
        self._output = errors.open("ab")
        self._process = subprocess.Popen(
            command(orders), cwd=ROOT, stdout=subprocess.PIPE, stderr=self._output
        )

    def wait_ready(self) -> dict[str, Any] | None:
        """Return what it says when its port is open; None where it died before."""
        assert self._process.stdout is not None
        timer = threading.Timer(_READY_WITHIN_S, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if line:
            ready: dict[str, Any] = json.loads(line)
            return ready
        self.wait()
        return None

    @property
    def pid(self) -> int:
        """Its id, for those who kill it from elsewhere."""
        return self._process.pid

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Return its exit code, None when the time is up."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._output.close()
        return code

    def watch(self, gone: threading.Event) -> None:
        """Set the event when it has ended."""
        self.wait()
        gone.set()

    def errors(self) -> str:
        """Return what it wrote about things that should not happen."""
        text = self._errors.read_text(errors="replace")
        return text if "Traceback" in text else ""


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Keep a port for ourselves while no broker listens on it.

    A bound socket that does not listen lets our broker bind it too, and nobody else.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
