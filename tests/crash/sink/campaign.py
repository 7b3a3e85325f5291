"""Rounds in which somebody dies while Spark writes, and what is in the log afterwards.

This file alone decides how a round goes:

    input    a few batches of rows
    orders   who dies, where, in which of these batches
    run      the query, in any number of tasks, rows shuffled; a broker that died comes back, on
             what the power cut has left of its disk
    again    until the query comes to its end: by a driver of its own where the old one is dead
    judge    kafka-python reads exactly what should be there, each row once

A seed and a number decide a round, but for the timing.
"""

import contextlib
import json
import queue
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from tests.crash.broker.machine import BrokenPromisesError, Machine, Tally
from tests.crash.broker.plan import plan
from tests.crash.broker.process import ROOT, BrokerProcess, reserved_port
from tests.crash.sink.driver import Job, command
from tests.crash.sink.failing import EXECUTOR, PHASES, VICTIMS, Orders, give
from tests.crash.sink.work import TOPIC, Copying, Work

_PARTITIONS = 3
_READY_WITHIN_S = 120.0
_RUN_WITHIN_S = 150.0
_RUNS_MAX = 6


@dataclass
class Book:
    """What was broken, and what is counted."""

    broken: list[tuple[str, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def breach(self, kind: str, description: str) -> None:
        self.broken.append((kind, description))

    def expect(self, kept: bool, kind: str, description: str) -> None:
        if not kept:
            self.breach(kind, description)


@dataclass(frozen=True)
class Round:
    """What happens in one round."""

    number: int
    phase: str
    victim: str
    batches: int
    in_batch: int
    tasks: tuple[int, ...]
    delay_ms: float


def planned(
    seed: int,
    number: int,
    victims: tuple[str, ...] = VICTIMS,
    phases: tuple[str, ...] = PHASES,
) -> Round:
    """Throw the dice of one round; phases and victims take turns."""
    dice = random.Random(f"{seed}/{number}")
    at = number - 1
    batches = dice.randint(1, 3)
    tasks = [dice.randint(1, 5)]
    while len(tasks) < _RUNS_MAX:
        # What is repeated is repeated in other tasks.
        tasks.append(dice.choice([count for count in range(1, 6) if count != tasks[-1]]))
    return Round(
        number=number,
        phase=phases[at % len(phases)],
        victim=victims[sum(divmod(at, len(phases))) % len(victims)],
        batches=batches,
        in_batch=dice.randrange(batches),
        tasks=tuple(tasks),
        delay_ms=dice.uniform(0, 8),
    )


class _Driver:
    """A driver's process, from outside."""

    def __init__(self, job: Job, errors: Path) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        self._errors = errors.open("ab")
        self._process = subprocess.Popen(
            command(job),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.pid = 0

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def wait_ready(self) -> Self:
        if not self.pid:
            line = self._lines.get(timeout=_READY_WITHIN_S)
            assert line, "the driver did not come up"
            self.pid = json.loads(line)["driver"]
        return self

    def start_run(self, tasks: int) -> None:
        """Start a run; a driver that died after its last run is found dead by the result."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"tasks": tasks}) + "\n")
            self._process.stdin.flush()

    def maybe_result(self, wait_s: float) -> dict[str, Any] | None:
        """Return what became of the run; {"dead": True} where the driver did not survive it."""
        try:
            line = self._lines.get(timeout=wait_s)
        except queue.Empty:
            return None
        if not line:
            self._process.wait()
            return {"dead": True}
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End it, and its JVM with it."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()


class Campaign:
    """Many rounds from one seed."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        forgetful: bool = False,
        master: str = "",
        work: Work | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Prepare a campaign.

        Args:
            directory: Where everything is kept.
            seed: Decides the rounds.
            forgetful: Whether the sink reads no markers, which has to be noticed.
            master: Where Spark runs, if not as the driver does by itself. With local-cluster
                executors are killed as well.
            work: What the query does; if nothing else is said, it copies rows.
            progress: Told after every round.
        """
        self._forgetful = forgetful
        self._master = master or Job.master
        self._victims: tuple[str, ...] = VICTIMS
        if self._master.startswith("local-cluster"):
            self._victims = (*VICTIMS, EXECUTOR)
        self.tally = Tally()
        self._seed = seed
        self._directory = directory
        self._progress = progress
        self._book = Book()
        self._work: Work = work or Copying(directory, PHASES)
        self._orders = directory / "orders.json"
        self._process: BrokerProcess | None = None
        self._drivers: list[_Driver] = []

    def run(self, rounds: int, first: int = 1) -> None:
        """Run all rounds.

        Raises:
            BrokenPromisesError: With what was broken.
        """
        self._directory.mkdir(parents=True)
        with reserved_port() as port:
            machine = Machine(
                self._directory / "machine", self._seed, port, self.tally, "", self._book
            )
            job = Job(
                str(self._directory),
                machine.bootstrap,
                TOPIC,
                self._forgetful,
                self._master,
                self._work.name,
            )
            try:
                self._start_broker(machine)
                with Cluster(machine.bootstrap) as cluster:
                    admin.create_topic(cluster, TOPIC, partitions=_PARTITIONS)
                self._work.prepare(machine.bootstrap)
                self._new_driver(job)
                if rounds > 1:
                    # A second one is started before it is needed, which a JVM takes its time for.
                    self._new_driver(job)
                for number in range(first, first + rounds):
                    round_ = planned(self._seed, number, self._victims, self._work.phases)
                    self._round(round_, machine, job)
                    self.tally.rounds += 1
            finally:
                self._close(machine)
                self.tally.counts = self._book.counts
                self.tally.broken = Counter(kind for kind, _ in self._book.broken)

    def _round(self, round_: Round, machine: Machine, job: Job) -> None:
        begun_s = time.monotonic()
        first_batch = self._work.next_batch_id()
        for _ in range(round_.batches):
            self._work.add_batch(round_.number, machine.bootstrap)
        assert self._process is not None
        driver = self._drivers[0].wait_ready()
        orders = Orders(
            phase=round_.phase,
            victim=round_.victim,
            batch_id=first_batch + round_.in_batch,
            broker=self._process.pid,
            driver=driver.pid,
            delay_ms=round_.delay_ms,
        )
        give(orders, self._orders)
        runs = 0
        for tasks in round_.tasks:
            runs += 1
            if self._run_once(tasks, round_, machine, job):
                break
        else:
            self._book.breach("stuck", f"round {round_.number} does not come to its end")
        taken = self._orders.with_suffix(".taken")
        self._book.counts["fired" if taken.exists() else "not fired"] += 1
        if round_.victim == "broker" and taken.exists() and self._process.pid == orders.broker:
            # Whoever took the order is slower than the query's end, or has ended with it.
            self._process.kill()
            self._process.wait()
            self._revive_broker(round_, machine)
        taken.unlink(missing_ok=True)
        self._orders.unlink(missing_ok=True)
        self._work.judge(machine.bootstrap, self._book)
        self._progress(
            f"round {round_.number:3}  {round_.phase:13}  {round_.victim:25}  {runs} runs  "
            f"{self._work.size():6} rows  {time.monotonic() - begun_s:5.1f} s"
        )
        machine.check()

    def _run_once(self, tasks: int, round_: Round, machine: Machine, job: Job) -> bool:
        """Run the query; return whether it came to its end."""
        driver = self._drivers[0].wait_ready()
        driver.start_run(tasks)
        deadline_s = time.monotonic() + _RUN_WITHIN_S
        while (result := driver.maybe_result(0.05)) is None:
            assert time.monotonic() < deadline_s, "the driver does not answer"
            assert self._process is not None
            if self._process.wait(0) is not None:
                self._revive_broker(round_, machine)
        if "dead" in result or "gateway" in str(result["error"]):
            self._book.counts["drivers killed"] += 1
            self._drivers.pop(0).close()
            self._new_driver(job)
            return False
        self._book.counts["failed runs"] += result["error"] is not None
        return result["error"] is None

    def _revive_broker(self, round_: Round, machine: Machine) -> None:
        """Start it again, on what the power cut has left."""
        assert self._process is not None
        machine.bury(self._process, plan(self._seed, round_.number), salt=f"sink/{round_.number}")
        self._start_broker(machine)

    def _start_broker(self, machine: Machine) -> None:
        self._process = machine.start_for_good()
        ready = self._process.wait_ready()
        if ready is None:
            raise BrokenPromisesError(f"the broker did not start: {self._process.errors()}")
        machine.greet(ready)

    def _new_driver(self, job: Job) -> None:
        self._drivers.append(_Driver(job, self._directory / "driver.stderr"))

    def _close(self, machine: Machine) -> None:
        for driver in self._drivers:
            driver.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        machine.close()
