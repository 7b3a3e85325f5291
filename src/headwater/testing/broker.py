"""A whole broker inside the test's own process.

This file alone decides how a test gets a broker: a thread with an event loop, a temporary
directory, a port chosen by the kernel. It is the same broker that ``headwater up`` runs, on the
same files; only what would make a test wait, or fail by chance, is set otherwise.
"""

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, Self

from headwater.base.chance import Chance, SystemChance
from headwater.base.clock import Clock, SystemClock
from headwater.base.disk import Disk, RealDisk
from headwater.base.settings import BrokerSettings
from headwater.delivery.server.lifecycle import Node, start_node

# Kafka waits 3 s for more members before the first rebalance, refuses sessions below 6 s and looks
# for late transactions every 10 s: right for a cluster, wrong for a test that waits for it. Kafka
# removes old records every 5 minutes; a test whose records have a fixed date would lose them if it
# happened to run at that moment.
_FOR_TESTS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "log.retention.check.interval.ms": "86400000",
    "offsets.topic.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
_START_TIMEOUT_S = 30.0


class EmbeddedBroker:
    """A Kafka broker for tests: ``with EmbeddedBroker() as broker: ...``.

    Attributes:
        bootstrap_servers: What to give to any Kafka client, once started.
    """

    def __init__(
        self,
        *,
        data_directory: str | None = None,
        settings: Mapping[str, str] | None = None,
        port: int = 0,
        disk: Disk | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
    ) -> None:
        """Prepare a broker; ``start`` or ``with`` runs it.

        Args:
            data_directory: Where the log lives; a temporary directory where none is given.
            settings: Broker settings by Kafka's names, over defaults made for tests.
            port: The port; 0 lets the kernel choose.
            disk: Another disk than the machine's, such as one that fails.
            clock: Another clock than the machine's.
            chance: Another source of randomness than the machine's.
        """
        self._settings = BrokerSettings.parse({**_FOR_TESTS, **(settings or {})})
        self._given_directory = data_directory
        self._disk = disk or RealDisk()
        self._clock = clock or SystemClock()
        self._chance = chance or SystemChance()
        self._port = port
        self._cleanup = contextlib.ExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._node: Node | None = None

    def start(self) -> Self:
        """Run the broker; return when its port is open."""
        assert self._thread is None, "already started"
        directory = self._given_directory or self._cleanup.enter_context(
            tempfile.TemporaryDirectory(prefix="headwater-")
        )
        loop = asyncio.new_event_loop()
        self._loop = loop
        self._thread = threading.Thread(
            target=loop.run_forever, name="headwater-broker", daemon=True
        )
        self._thread.start()
        try:
            self._node = self._run(
                start_node(
                    disk=self._disk,
                    data_directory=directory,
                    settings=self._settings,
                    clock=self._clock,
                    chance=self._chance,
                    listen=("127.0.0.1", self._port),
                )
            )
        except BaseException:
            self._end_loop()
            raise
        # A broker that is started again listens where its clients look for it.
        self._port = self._node.port
        return self

    def stop(self) -> None:
        """Stop gracefully; harmless when it does not run."""
        node, self._node = self._node, None
        try:
            if node is not None:
                self._run(node.stop())
        finally:
            self._end_loop()

    def close(self) -> None:
        """Stop and remove the temporary directory."""
        self.stop()
        self._cleanup.close()

    @property
    def bootstrap_servers(self) -> str:
        """The address to give to any Kafka client."""
        assert self._node is not None, "not started"
        return f"{self._node.host}:{self._node.port}"

    @property
    def node(self) -> Node:
        """The running broker itself, to look into; only its own thread may touch it."""
        assert self._node is not None, "not started"
        return self._node

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop and clean up."""
        self.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - passes results on
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_TIMEOUT_S)

    def _end_loop(self) -> None:
        loop, self._loop = self._loop, None
        thread, self._thread = self._thread, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_START_TIMEOUT_S)
            loop.close()
