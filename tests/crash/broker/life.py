"""A data directory from its first start on, with all who use it.

This file alone decides in which order a round goes:

    start    the broker recovers what the round before left; in some rounds it dies while it does
    judge    everything promised so far must hold
    load     clients write, read, commit and administrate
    end      SIGKILL at a moment, at an operation, or at an operation of some kind; or SIGTERM,
             which may be let finish or not
    cut      the power goes, or not: see ``machine``
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
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
from tests.crash.broker.machine import BrokenPromisesError, Machine, Tally
from tests.crash.broker.plan import Plan
from tests.crash.broker.process import BrokerProcess
from tests.crash.broker.promises import LOOSE, SHRINKING, TRIMMED, Ledger, Place, TopicState
from tests.crash.broker.wire import TIMEOUT_S

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


class Life:
    """A data directory with its clients, from a fresh start on."""

    def __init__(self, directory: Path, seed: int, port: int, tally: Tally, lie: str) -> None:
        self.ledger = Ledger()
        self.machine = Machine(directory, seed, port, tally, lie, self.ledger)
        self._seed = seed
        self._tally = tally
        self._clients: list[Client] = []
        self._foreign: ForeignWriter | None = None

    def round(self, planned: Plan, kill_at: int) -> None:
        """Live through one round; it dies as planned unless an operation is given.

        Raises:
            BrokenPromisesError: Something did not hold.
        """
        process = self.machine.start(planned, kill_at)
        ready = process.wait_ready()
        if ready is not None:
            self.machine.greet(ready)
            with self._clients_at_work(planned, process) as judged:
                if judged:
                    self.machine.end(planned, process)
        elif process.wait() != -signal.SIGKILL or not process.orders.kill_at:
            self.ledger.breach("unexpected", f"the start failed: {process.errors()}")
        self.machine.check()
        self.ledger.crash()
        self.machine.bury(process, planned, salt="end")
        self._tally.rounds += 1

    def finish(self) -> None:
        """Start once more and let every client have what it is owed."""
        process = self.machine.start_for_good()
        ready = process.wait_ready()
        if ready is None:
            self.ledger.breach("unexpected", f"the start failed: {process.errors()}")
        else:
            self.machine.greet(ready)
            judge(self.machine.address, self.ledger)
            # A client whose records are gone cannot finish: that they are gone is to be told.
            self.machine.check()
            if self._foreign is not None:
                self._foreign.finish()
            judge(self.machine.address, self.ledger)
            process.terminate()
            if process.wait(30) != 0:
                self.ledger.breach("unexpected", f"no graceful end: {process.errors()}")
        self.machine.check()

    def close(self) -> None:
        """Let go of what lives longer than a round, or was left by one that broke off."""
        self.machine.close()
        if self._foreign is not None:
            self._foreign.drop()
            self._foreign = None

    @contextlib.contextmanager
    def _clients_at_work(self, planned: Plan, process: BrokerProcess) -> Iterator[bool]:
        """Judge, then let the clients run; yields whether it came so far."""
        scene = Scene(self.machine.address, f"{self._seed}/{planned.number}")
        watcher = threading.Thread(target=process.watch, args=(scene.gone,))
        watcher.start()
        threads: list[threading.Thread] = []
        try:
            judged = self._prepare(process)
            self.machine.check()
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
            judge(self.machine.address, self.ledger)
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
            with Cluster(self.machine.bootstrap, timeout_s=TIMEOUT_S) as cluster:
                for name, state in missing.items():
                    with self.ledger.changing(name, state):
                        admin.create_topic(
                            cluster, name, partitions=state.partitions, configs=dict(state.configs)
                        )

    def _begin_clients(self) -> None:
        ledger = self.ledger
        durable = _places("orders", "stamped", "trimmed", "short", "brief", "dropping")
        bootstrap = self.machine.bootstrap
        self._foreign = ForeignWriter("foreign", ledger, _places("foreign"), bootstrap)
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


def _places(*topics: str) -> list[Place]:
    return [(topic, partition) for topic in topics for partition in range(TOPICS[topic].partitions)]
