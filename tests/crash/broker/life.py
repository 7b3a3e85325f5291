"""A data directory from its first start on, with all who use it.

This file alone decides in which order a round goes:

    start    the broker recovers what the round before left; in some rounds it dies while it does
    judge    everything promised so far must hold
    load     clients write, read, commit and administrate
    end      SIGKILL at a moment, at an operation, or at an operation of some kind; or SIGTERM,
             which may be let finish or not
    cut      the trace says what was synced: files are cut to that plus a torn tail, un-synced
             names are undone, by dice; or the power stays on, and a later cut shows what was synced
"""

import contextlib
import random
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.testing.memory_disk import Keep, MemoryDisk
from headwater.testing.traced_disk import Event, lay_out, read_trace, replay
from tests.crash.broker.administrator import Administrator
from tests.crash.broker.clients import (
    Client,
    Committer,
    ForeignWriter,
    IdempotentWriter,
    Member,
    Reader,
    Scene,
    Writer,
)
from tests.crash.broker.judge import judge
from tests.crash.broker.node import Orders
from tests.crash.broker.plan import Plan
from tests.crash.broker.process import BrokerProcess
from tests.crash.broker.promises import LOOSE, SHRINKING, TRIMMED, Ledger, Place, TopicState
from tests.crash.broker.wire import TIMEOUT_S

# A death that was ordered at an operation which never comes.
_LOAD_S_MAX = 2.0
# Operations of the shortest start; a death "at" an operation counts from here.
_START_OPERATIONS = 30
_LOCK = "/data/log/.lock"

TOPICS: dict[str, TopicState] = {
    "orders": TopicState(4, frozenset()),
    "stamped": TopicState(1, frozenset({("message.timestamp.type", "LogAppendTime")})),
    "trimmed": TopicState(2, frozenset({("file.delete.delay.ms", "0")}), habit=TRIMMED),
    "short": TopicState(
        1, frozenset({("retention.bytes", "20000"), ("segment.ms", "100")}), habit=SHRINKING
    ),
    "brief": TopicState(
        1, frozenset({("retention.ms", "400"), ("segment.ms", "100")}), habit=SHRINKING
    ),
    "dropping": TopicState(
        1,
        frozenset({("headwater.overflow", "drop"), ("headwater.overflow.bytes", "20000")}),
        habit=SHRINKING,
    ),
    "loose": TopicState(1, frozenset({("flush.messages", "100")}), habit=LOOSE),
    "foreign": TopicState(2, frozenset()),
}


class BrokenPromisesError(AssertionError):
    """A promise was not kept, or something went wrong that should not have."""


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
        return {
            "rounds": self.rounds,
            "kills": self.kills,
            "graceful": self.graceful,
            "acked": self.counts["acked"],
            "lost": self.counts["lost"],
            "doubled": self.broken["doubled"],
            "broken": dict(self.broken),
            "commits": self.counts["commits"],
            "trims": self.counts["trims"],
            "operations": self.operations,
            **self.recoveries,
        }


class Life:
    """A data directory with its clients, from a fresh start on."""

    def __init__(self, directory: Path, seed: int, port: int, tally: Tally, lie: str) -> None:
        self.directory = directory
        self.root = directory / "disk"
        self.root.mkdir(parents=True)
        self.seed = seed
        self.address = ("127.0.0.1", port)
        self.bootstrap = f"127.0.0.1:{port}"
        self.ledger = Ledger()
        self.disk = MemoryDisk()
        self.tally = tally
        self.killed_at: list[int] = []
        self._lie = lie
        self._stopped_cleanly = False
        self._expects_clean = False
        self._clients: list[Client] = []
        self._foreign: ForeignWriter | None = None
        self._process: BrokerProcess | None = None
        self._runs = 0

    def round(self, planned: Plan, kill_at: int) -> None:
        """Live through one round; it dies as planned unless an operation is given.

        Raises:
            BrokenPromisesError: Something did not hold.
        """
        for number in planned.recovery_kills:
            process = self._start(planned, kill_at=number)
            if process.wait_ready() is not None:
                process.kill()
            process.wait()
            self._after_death(process, planned, salt=f"recovery/{number}")
        if not kill_at and planned.end == "at":
            kill_at = _START_OPERATIONS + planned.kill_at
        process = self._start(planned, kill_at=kill_at)
        ready = process.wait_ready()
        if ready is not None:
            self._greet(ready)
            with self._clients_at_work(planned, process) as judged:
                if judged:
                    self._end(planned, process)
        elif process.wait() != -signal.SIGKILL or not kill_at:
            self.ledger.breach("unexpected", f"the start failed: {process.errors()}")
        self._check()
        self._after_death(process, planned, salt="end")
        self.tally.rounds += 1

    def finish(self) -> None:
        """Start once more and let every client have what it is owed."""
        process = self._run(Orders(str(self.root), ""))
        ready = process.wait_ready()
        if ready is None:
            self.ledger.breach("unexpected", f"the start failed: {process.errors()}")
        else:
            self._greet(ready)
            judge(self.address, self.ledger)
            if self._foreign is not None:
                self._foreign.finish()
            judge(self.address, self.ledger)
            process.terminate()
            if process.wait(30) != 0:
                self.ledger.breach("unexpected", f"no graceful end: {process.errors()}")
        self._check()

    def close(self) -> None:
        """Let go of what lives longer than a round, or was left by one that broke off."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._foreign is not None:
            self._foreign.drop()
            self._foreign = None

    # Starting.

    def _start(self, planned: Plan, *, kill_at: int) -> BrokerProcess:
        by_kind = planned.end == "kind" and not kill_at
        orders = Orders(
            root=str(self.root),
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
        port = self.address[1]
        orders = replace(orders, trace=str(trace), port=port, lie=self._lie)
        self._process = BrokerProcess(orders, trace.with_suffix(".stderr"))
        return self._process

    def _greet(self, ready: dict[str, Any]) -> None:
        """Note how a start went."""
        recoveries = self.tally.recoveries
        recoveries["scanned_bytes"] += ready["scanned_bytes"]
        recoveries["truncated_bytes"] += ready["truncated_bytes"]
        recoveries["removed_segments"] += ready["removed_segments"]
        self.ledger.expect(not ready["strays"], "stray", f"nobody's: {ready['strays']}")
        if self._expects_clean:
            recoveries["clean_starts"] += 1
            self.ledger.expect(
                ready["scanned_bytes"] == 0 and ready["clean"],
                "scanned",
                f"a start after a clean stop: {ready}",
            )

    # Working.

    @contextlib.contextmanager
    def _clients_at_work(self, planned: Plan, process: BrokerProcess) -> Iterator[bool]:
        """Judge, then let the clients run; yields whether it came so far."""
        scene = Scene(self.address, f"{self.seed}/{planned.number}")
        watcher = threading.Thread(target=process.watch, args=(scene.gone,))
        watcher.start()
        threads: list[threading.Thread] = []
        try:
            judged = self._prepare(process)
            self._check()
            if judged:
                threads = [
                    threading.Thread(target=client.run, args=(scene,), name=client.name)
                    for client in self._clients
                ]
            for thread in threads:
                thread.start()
            yield judged
        finally:
            scene.stop.set()
            process.kill()
            for thread in [watcher, *threads]:
                thread.join()

    def _prepare(self, process: BrokerProcess) -> bool:
        """Judge, and make the topics of a fresh directory; false where the broker died of it."""
        try:
            if not self._clients:
                self._begin_clients()
            judge(self.address, self.ledger)
            self._create_topics()
        except Exception as error:
            # A death that was ordered at an operation may come while we still look.
            if process.wait(2) != -signal.SIGKILL:
                raise
            if not (process.orders.kill_at or process.orders.kill_kind):
                raise BrokenPromisesError("the broker died by itself") from error
            return False
        return True

    def _create_topics(self) -> None:
        missing = {name: TOPICS[name] for name in TOPICS if name not in self.ledger.topics}
        if missing:
            with Cluster(self.bootstrap, timeout_s=TIMEOUT_S) as cluster:
                for name, state in missing.items():
                    with self.ledger.changing(name, state):
                        admin.create_topic(
                            cluster, name, partitions=state.partitions, configs=dict(state.configs)
                        )

    def _begin_clients(self) -> None:
        ledger = self.ledger
        durable = _places("orders", "stamped", "trimmed", "short", "brief", "dropping")
        self._foreign = ForeignWriter("foreign", ledger, _places("foreign"), self.bootstrap)
        self._clients = [
            IdempotentWriter("idempotent-1", ledger, durable),
            IdempotentWriter("idempotent-2", ledger, durable),
            Writer("plain", ledger, [*durable, *_places("loose")]),
            self._foreign,
            Reader("reader", ledger, _places(*TOPICS)),
            Committer("committer", ledger, _places("orders", "stamped")),
            Member("member-1", ledger, "members", ["orders"]),
            Member("member-2", ledger, "members", ["orders"]),
            Administrator("administrator", ledger, _places("trimmed")),
        ]

    # Ending.

    def _end(self, planned: Plan, process: BrokerProcess) -> None:
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
                self.ledger.expect(code == 0, "unexpected", f"a graceful end returned {code}")
            elif planned.end == "late":
                process.terminate()
                process.wait(planned.kill_at / 1000)
            process.kill()
        process.wait()

    def _after_death(self, process: BrokerProcess, planned: Plan, *, salt: str) -> None:
        """Find out what was synced, and let the power cut take its share of the rest."""
        errors = process.errors()
        self.ledger.expect(not errors, "unexpected", f"the broker said: {errors}")
        events = read_trace(Path(process.orders.trace).read_bytes())
        replay(events, self.disk)
        self._compare(events)
        self.tally.operations += len(events)
        killed = process.wait() == -signal.SIGKILL
        self.tally.kills += killed
        self.tally.graceful += not killed
        if salt == "end":
            self.killed_at.append(len(events) + 1 if killed else 0)
        self.ledger.crash()
        seed = random.Random(f"{self.seed}/{planned.number}/{salt}").getrandbits(32)
        if planned.cut == "all":
            self.disk = self.disk.restart()
        else:
            keep: Keep = "nothing" if planned.cut == "nothing" else "some"
            self.disk = self.disk.crash(seed, keep=keep)
        shutil.rmtree(self.root)
        self.root.mkdir()
        lay_out(self.disk, str(self.root))
        self._check()

    def _compare(self, events: Sequence[Event]) -> None:
        """Make sure that the trace tells of all that was written.

        One change may be missing: that of the moment of death. It touches one name, a rename two,
        and that of a directory the names in it.
        """
        real = dict(_files(self.root))
        traced = dict(_contents(self.disk))
        different = {name for name in {*real, *traced} if real.get(name) != traced.get(name)}
        above = {name for name in different if name.rpartition("/")[0] not in different}
        self.ledger.expect(
            len(above - {_LOCK}) <= 2,
            "untraced",
            f"after {len(events)} events these are not as traced: {sorted(above)[:6]}",
        )

    def _check(self) -> None:
        if self.ledger.broken:
            raise BrokenPromisesError(
                "\n".join(f"{kind}: {what}" for kind, what in self.ledger.broken[:20])
            )


def _places(*topics: str) -> list[Place]:
    return [(topic, partition) for topic in topics for partition in range(TOPICS[topic].partitions)]


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
