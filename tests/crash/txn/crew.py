"""The client processes of a life.

This file alone decides who works when, and whom it strikes: clients are killed and come back,
replaced by another with their transactional id while they still work, and stopped in the middle of
something to go on when the world has changed.
"""

import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.crash.broker.process import ROOT
from tests.crash.txn.client import REPLACED, Orders, command

ROLES = {
    "writer-1": "writer",
    "writer-2": "writer",
    "feeder": "feeder",
    "pump-1": "pump",
    "pump-2": "pump",
    "reader": "reader",
}
_BUSY_WITHIN_S = 6.0
_BUSY_BYTES = 3_000
# Longer than a transaction may stay open: whoever is not done then waits for nothing.
_END_WITHIN_S = 5.0


@dataclass
class _Worker:
    post: str
    orders: Orders
    process: subprocess.Popen[bytes]
    errors: Path
    paused: bool = False


class Crew:
    """All client processes, each by its post."""

    def __init__(self, directory: Path, bootstrap: str, seed: int, counts: Counter[str]) -> None:
        self._directory = directory
        self._bootstrap = bootstrap
        self._dice = random.Random(f"{seed}/crew")
        self._counts = counts
        self._spawned = 0
        self._posts: dict[str, _Worker] = {}
        # Those who have a successor, or are gone.
        self._former: list[_Worker] = []

    def fill(self) -> None:
        """Let somebody work at every post."""
        for post in ROLES:
            worker = self._posts.get(post)
            if worker is None:
                self._spawn(post)
            elif worker.process.poll() is not None:
                self._counts["fenced"] += worker.process.returncode == REPLACED
                self._spawn(post)

    def wait_busy(self, gone: Callable[[], bool]) -> None:
        """Return when clients have found the broker and work, or it is gone, or it takes too long.

        Their journals tell: a transaction is some hundred bytes.
        """
        end_s = time.monotonic() + _BUSY_WITHIN_S
        enough = self._noted_bytes() + _BUSY_BYTES
        while self._noted_bytes() < enough and time.monotonic() < end_s and not gone():
            time.sleep(0.02)

    def _noted_bytes(self) -> int:
        writers = [path for path in self._directory.glob("*.journal") if "reader" not in path.name]
        return sum(path.stat().st_size for path in writers if path.name != "observer.journal")

    def strike(self) -> None:
        """Do something to somebody, or not."""
        post = self._dice.choice(list(ROLES))
        worker = self._posts[post]
        fate = self._dice.random()
        if worker.paused:
            self._go_on(worker)
        elif fate < 0.25:
            worker.process.kill()
            worker.process.wait()
            self._counts["client_kills"] += 1
            self._spawn(post)
        elif fate < 0.4:
            self._spawn(post)
            self._counts["replacements"] += 1
        elif fate < 0.5:
            worker.process.send_signal(signal.SIGSTOP)
            worker.paused = True
            self._counts["pauses"] += 1

    def end(self) -> None:
        """Let all finish what they have begun, and kill those who do not."""
        workers = [*self._posts.values(), *self._former]
        for worker in workers:
            if worker.process.poll() is None:
                self._go_on(worker)
                worker.process.terminate()
        for worker in workers:
            try:
                worker.process.wait(_END_WITHIN_S)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
                self._counts["client_kills"] += 1

    def close(self) -> None:
        """Kill all that are left."""
        for worker in [*self._posts.values(), *self._former]:
            if worker.process.poll() is None:
                worker.process.kill()
            worker.process.wait()

    def errors(self) -> list[str]:
        """Return what clients said about things that they did not expect."""
        workers = [*self._posts.values(), *self._former]
        texts = [(worker.orders.name, worker.errors.read_text()) for worker in workers]
        return [f"{name}: {text}" for name, text in texts if "Traceback" in text]

    def _spawn(self, post: str) -> None:
        before = self._posts.get(post)
        if before is not None:
            self._former.append(before)
        self._spawned += 1
        name = f"{post}#{self._spawned}"
        orders = Orders(
            role=ROLES[post],
            name=name,
            transactional_id=post,
            bootstrap=self._bootstrap,
            journal=str(self._directory / f"{name}.journal"),
            seed=f"{self._dice.getrandbits(32)}",
        )
        errors = self._directory / f"{name}.stderr"
        with errors.open("ab") as output:
            process = subprocess.Popen(
                command(orders), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=output
            )
        self._posts[post] = _Worker(post, orders, process, errors)

    def _go_on(self, worker: _Worker) -> None:
        if worker.paused:
            worker.paused = False
            worker.process.send_signal(signal.SIGCONT)
