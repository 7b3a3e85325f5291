"""A machine that a broker runs on, and dies on: its disk, and the power.

This file alone decides how a broker is started, how it ends, and what a power cut leaves of what it
wrote: the trace says what was synced; files are cut to that plus a torn tail, un-synced names are
undone, by dice; or the power stays on, and a later cut shows what was synced.
"""

import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from headwater.testing.memory_disk import Keep, MemoryDisk
from headwater.testing.traced_disk import Event, lay_out, read_trace, replay
from tests.crash.broker.node import Orders
from tests.crash.broker.plan import Plan
from tests.crash.broker.process import BrokerProcess

# A death that was ordered at an operation which never comes.
_LOAD_S_MAX = 2.0
# Operations of the shortest start; a death "at" an operation counts from here.
_START_OPERATIONS = 30
_LOCK = "/data/log/.lock"


class BrokenPromisesError(AssertionError):
    """A promise was not kept, or something went wrong that should not have."""


class Book(Protocol):
    """Where broken promises are written down, and whatever else is counted."""

    broken: list[tuple[str, str]]
    counts: Counter[str]

    def breach(self, kind: str, description: str) -> None:
        """Note a promise that was not kept."""
        ...

    def expect(self, kept: bool, kind: str, description: str) -> None:
        """Note a breach unless something holds."""
        ...


@dataclass
class Tally:
    """What has happened so far."""

    rounds: int = 0
    kills: int = 0
    graceful: int = 0
    operations: int = 0
    recoveries: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, Any]:
        """Return what the last line of a campaign says."""
        others = {name: self.counts[name] for name in self.counts if name not in {"acked", "lost"}}
        return {
            "rounds": self.rounds,
            "kills": self.kills,
            "graceful": self.graceful,
            "acked": self.counts["acked"],
            "lost": self.counts["lost"],
            "doubled": self.broken["doubled"],
            "broken": dict(self.broken),
            **others,
            "operations": self.operations,
            **self.recoveries,
        }


class Machine:
    """A data directory, from its first start on.

    Attributes:
        directory: Holds the disk, the traces and whatever else a life leaves.
        killed_at: The operations at which rounds died; 0 where one ended by itself.
    """

    def __init__(
        self, directory: Path, seed: int, port: int, tally: Tally, lie: str, book: Book
    ) -> None:
        self.directory = directory
        self.address = ("127.0.0.1", port)
        self.bootstrap = f"127.0.0.1:{port}"
        self.killed_at: list[int] = []
        self._root = directory / "disk"
        self._root.mkdir(parents=True)
        self._seed = seed
        self._tally = tally
        self._lie = lie
        self._book = book
        self._disk = MemoryDisk()
        self._stopped_cleanly = False
        self._expects_clean = False
        self._process: BrokerProcess | None = None
        self._runs = 0

    # Starting.

    def start(self, planned: Plan, kill_at: int) -> BrokerProcess:
        """Start for a round, after the starts that are planned to fail; it dies as planned."""
        for number in planned.recovery_kills:
            process = self._start(planned, kill_at=number)
            if process.wait_ready() is not None:
                process.kill()
            process.wait()
            self.bury(process, planned, salt=f"recovery/{number}")
        if not kill_at and planned.end == "at":
            kill_at = _START_OPERATIONS + planned.kill_at
        return self._start(planned, kill_at=kill_at)

    def start_for_good(self) -> BrokerProcess:
        """Start without any plan to die."""
        return self._run(Orders(str(self._root), ""))

    def _start(self, planned: Plan, *, kill_at: int) -> BrokerProcess:
        by_kind = planned.end == "kind" and not kill_at
        orders = Orders(
            root=str(self._root),
            trace="",
            kill_at=kill_at,
            kill_kind=planned.kill_kind if by_kind else "",
            kill_count=planned.kill_at if by_kind else 0,
            kernel=planned.kernel,
        )
        return self._run(orders)

    def _run(self, orders: Orders) -> BrokerProcess:
        # Whatever becomes of this start, the one after it does not follow a clean stop.
        self._expects_clean, self._stopped_cleanly = self._stopped_cleanly, False
        self._runs += 1
        trace = self.directory / f"{self._runs:03}.trace"
        orders = replace(orders, trace=str(trace), port=self.address[1], lie=self._lie)
        self._process = BrokerProcess(orders, trace.with_suffix(".stderr"))
        return self._process

    def greet(self, ready: dict[str, Any]) -> None:
        """Note how a start went."""
        recoveries = self._tally.recoveries
        recoveries["scanned_bytes"] += ready["scanned_bytes"]
        recoveries["truncated_bytes"] += ready["truncated_bytes"]
        recoveries["removed_segments"] += ready["removed_segments"]
        self._book.expect(not ready["strays"], "stray", f"nobody's: {ready['strays']}")
        if self._expects_clean:
            recoveries["clean_starts"] += 1
            self._book.expect(
                ready["scanned_bytes"] == 0 and ready["clean"],
                "scanned",
                f"a start after a clean stop: {ready}",
            )

    # Ending.

    def end(self, planned: Plan, process: BrokerProcess) -> None:
        """Let the broker end as planned."""
        if process.orders.kill_at or process.orders.kill_kind:
            process.wait(_LOAD_S_MAX)
            process.kill()
        else:
            process.wait(planned.load_s)
            if planned.end == "term":
                process.terminate()
                code = process.wait(30)
                self._stopped_cleanly = code == 0
                self._book.expect(code == 0, "unexpected", f"a graceful end returned {code}")
            elif planned.end == "late":
                process.terminate()
                process.wait(planned.kill_at / 1000)
            process.kill()
        process.wait()

    def bury(self, process: BrokerProcess, planned: Plan, *, salt: str) -> None:
        """Find out what was synced, and let the power cut take its share of the rest."""
        errors = process.errors()
        self._book.expect(not errors, "unexpected", f"the broker said: {errors}")
        events = read_trace(Path(process.orders.trace).read_bytes())
        replay(events, self._disk)
        self._compare(events)
        self._tally.operations += len(events)
        killed = process.wait() == -9
        self._tally.kills += killed
        self._tally.graceful += not killed
        if salt == "end":
            self.killed_at.append(len(events) + 1 if killed else 0)
        seed = random.Random(f"{self._seed}/{planned.number}/{salt}").getrandbits(32)
        if planned.cut == "all":
            self._disk = self._disk.restart()
        else:
            keep: Keep = "nothing" if planned.cut == "nothing" else "some"
            self._disk = self._disk.crash(seed, keep=keep)
        shutil.rmtree(self._root)
        self._root.mkdir()
        lay_out(self._disk, str(self._root))
        self.check()

    def close(self) -> None:
        """Let go of what was left by a round that broke off."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def check(self) -> None:
        """Raise what was noted so far, if anything.

        Raises:
            BrokenPromisesError: Something did not hold.
        """
        if self._book.broken:
            raise BrokenPromisesError(
                "\n".join(f"{kind}: {what}" for kind, what in self._book.broken[:20])
            )

    def _compare(self, events: Sequence[Event]) -> None:
        """Make sure that the trace tells of all that was written.

        One change may be missing: that of the moment of death. It touches one name, a rename two,
        and that of a directory the names in it.
        """
        real = dict(_files(self._root))
        traced = dict(_contents(self._disk))
        different = {name for name in {*real, *traced} if real.get(name) != traced.get(name)}
        above = {name for name in different if name.rpartition("/")[0] not in different}
        self._book.expect(
            len(above - {_LOCK}) <= 2,
            "untraced",
            f"after {len(events)} events these are not as traced: {sorted(above)[:6]}",
        )


def _files(root: Path) -> Iterator[tuple[str, bytes | None]]:
    for path in root.rglob("*"):
        yield f"/{path.relative_to(root)}", None if path.is_dir() else path.read_bytes()


def _contents(disk: MemoryDisk, path: str = "") -> Iterator[tuple[str, bytes | None]]:
    for name in disk.list_directory(path):
        child = f"{path}/{name}"
        if disk.is_directory(child):
            yield child, None
            yield from _contents(disk, child)
        else:
            file = disk.open_for_reading(child)
            yield child, file.read(file.size(), 0)
