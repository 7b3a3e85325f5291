"""A data directory with transactional clients that outlive its broker.

This file alone decides in which order a round goes:

    start    the broker recovers what the round before left; in some rounds it dies while it does
    look     everything is read, with either isolation
    load     clients transact, consume and transform; some are struck: see ``crew``
    end      the broker dies or stops as planned, and the power goes or not: see ``machine``

When a life is over, nobody writes and nothing is open any more, the checker is given its history.
"""

import contextlib
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from tests.crash.broker.machine import BrokenPromisesError, Machine, Tally
from tests.crash.broker.plan import Plan
from tests.crash.broker.process import BrokerProcess
from tests.crash.broker.wire import TIMEOUT_S, connect
from tests.crash.txn.checker import check
from tests.crash.txn.client import TOPICS
from tests.crash.txn.crew import Crew
from tests.crash.txn.history import Journal, Sent, read_journals
from tests.crash.txn.observer import Observer
from tests.crash.txn.outcomes import Outcomes

_STRIKES_MAX = 2


class Book:
    """What was counted, and what was broken."""

    def __init__(self) -> None:
        self.broken: list[tuple[str, str]] = []
        self.counts: Counter[str] = Counter()

    def breach(self, kind: str, description: str) -> None:
        """Note a promise that was not kept."""
        self.broken.append((kind, description))

    def expect(self, kept: bool, kind: str, description: str) -> None:
        """Note a breach unless something holds."""
        if not kept:
            self.breach(kind, description)


class Life:
    """A data directory with its clients, from a fresh start on."""

    def __init__(self, directory: Path, seed: int, port: int, tally: Tally, lie: str) -> None:
        self.ledger = Book()
        self.machine = Machine(directory, seed, port, tally, lie, self.ledger)
        self._seed = seed
        self._tally = tally
        self._journal = Journal(str(directory / "observer.journal"))
        self._refusals: list[str] = []
        self._observer = Observer(self._journal, self._refusals)
        self._crew = Crew(directory, self.machine.bootstrap, seed, self.ledger.counts)
        self._has_topics = False

    def round(self, planned: Plan, kill_at: int) -> None:
        """Live through one round; it dies as planned unless an operation is given.

        Raises:
            BrokenPromisesError: Something did not hold.
        """
        process = self.machine.start(planned, kill_at)
        ready = process.wait_ready()
        if ready is not None:
            self.machine.greet(ready)
            if self._prepare(process):
                with self._clients_at_work(planned, process):
                    self.machine.end(planned, process)
        elif process.wait() != -signal.SIGKILL or not process.orders.kill_at:
            self.ledger.breach("unexpected", f"the start failed: {process.errors()}")
        self._check()
        process.kill()
        process.wait()
        self.machine.bury(process, planned, salt="end")
        self._tally.rounds += 1

    def finish(self) -> None:
        """Let everything come to rest and judge the whole history."""
        process = self.machine.start_for_good()
        ready = process.wait_ready()
        if ready is None:
            raise BrokenPromisesError(f"the start failed: {process.errors()}")
        self.machine.greet(ready)
        self._create_topics()
        self._crew.end()
        self._observer.conclude(self.machine.address)
        process.terminate()
        self.ledger.expect(process.wait(30) == 0, "unexpected", "no graceful end")
        history = read_journals(
            path.read_bytes() for path in sorted(self.machine.directory.glob("*.journal"))
        )
        for kind, description in check(history):
            self.ledger.breach(kind, description)
        counts = self.ledger.counts
        counts["lost"] = sum(kind == "lost" for kind, _ in self.ledger.broken)
        counts["acked"] = sum(isinstance(event, Sent) for event in history)
        for transaction in Outcomes(history).transactions.values():
            counts["transactions"] += 1
            counts[transaction.outcome] += 1
            counts["told_nothing"] += transaction.ended_at is None
        self._check()

    def close(self) -> None:
        """Let go of everything."""
        self._crew.close()
        self.machine.close()
        self._journal.close()

    @contextlib.contextmanager
    def _clients_at_work(self, planned: Plan, process: BrokerProcess) -> Iterator[None]:
        stop = threading.Event()
        self._crew.fill()
        threads = [
            threading.Thread(target=self._observer.follow, args=(self.machine.address, stop)),
            threading.Thread(target=self._strike, args=(planned, stop)),
        ]
        for thread in threads:
            thread.start()
        try:
            self._crew.wait_busy(lambda: process.wait(0) is not None)
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _strike(self, planned: Plan, stop: threading.Event) -> None:
        dice = random.Random(f"{self._seed}/{planned.number}/strikes")
        for _ in range(_STRIKES_MAX):
            if stop.wait(planned.load_s * dice.uniform(0.2, 0.8)):
                return
            self._crew.strike()

    def _prepare(self, process: BrokerProcess) -> bool:
        """Make the topics and look at everything; false where the broker died of it."""
        try:
            self._create_topics()
            with connect(self.machine.address, "observer") as connection:
                self._observer.look(connection)
        except Exception as error:
            # A death that was ordered at an operation may come while we still look.
            if process.wait(2) != -signal.SIGKILL:
                raise
            if not (process.orders.kill_at or process.orders.kill_kind):
                raise BrokenPromisesError("the broker died by itself") from error
            return False
        return True

    def _create_topics(self) -> None:
        if not self._has_topics:
            with Cluster(self.machine.bootstrap, timeout_s=TIMEOUT_S) as cluster:
                known = cluster.topics()
                for name, partitions in TOPICS.items():
                    if name not in known:
                        admin.create_topic(cluster, name, partitions=partitions)
            self._has_topics = True

    def _check(self) -> None:
        for refusal in self._refusals:
            self.ledger.breach("refused", refusal)
        self._refusals.clear()
        for error in self._crew.errors():
            self.ledger.breach("unexpected", error)
        self.machine.check()
