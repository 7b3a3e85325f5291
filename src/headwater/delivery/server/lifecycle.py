"""The life of a broker: recovery, open port, graceful end.

This file alone decides in which order a broker comes up and goes down. The port opens after
everything is recovered; at the end the last requests are answered, then the log is closed and
marked clean.
"""

import asyncio
import contextlib
import errno
import logging
from collections.abc import Callable

from headwater.base.chance import Chance
from headwater.base.clock import Clock, Timer
from headwater.base.disk import Disk
from headwater.base.settings import BrokerSettings
from headwater.delivery.broker.broker import Broker
from headwater.delivery.server.buffers import RequestMemory
from headwater.delivery.server.cleaning import Cleaning, start_cleaning
from headwater.delivery.server.committer import Committer
from headwater.delivery.server.descriptors import share_descriptors
from headwater.delivery.server.dispatch import Dispatcher
from headwater.delivery.server.gate import Gate
from headwater.delivery.server.listener import Listener
from headwater.log.store import LogStore, Recovery

_log = logging.getLogger(__name__)

# How long a graceful end waits for answers that are still owed (syncs, not long polls).
_LAST_ANSWERS_S = 2.0


class LoopTimers:
    """Timers of the event loop, which outlives a broker: nothing runs once they are closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._closed = False

    def after(self, delay_ms: float, action: Callable[[], None]) -> Timer:
        """Run the action later on the loop."""
        return self._loop.call_later(delay_ms / 1000, self._run, action)

    def _run(self, action: Callable[[], None]) -> None:
        if not self._closed:
            action()

    def close(self) -> None:
        """Let no action run from now on."""
        self._closed = True


class Node:
    """A running broker."""

    def __init__(
        self,
        broker: Broker,
        listener: Listener,
        committer: Committer,
        timers: LoopTimers,
        failed: asyncio.Future[OSError],
    ) -> None:
        self.broker = broker
        self.host = ""
        self.port = 0
        # Done when the disk failed: the process must end, and must not call the log clean.
        self.failed = failed
        self._listener = listener
        self._committer = committer
        self._timers = timers
        self.cleaning: Cleaning | None = None

    @property
    def connection_count(self) -> int:
        """How many clients are connected."""
        return self._listener.connection_count

    @property
    def request_memory(self) -> RequestMemory:
        """The memory that requests hold at present."""
        return self._listener.memory

    async def stop(self) -> None:
        """End gracefully: answer what is owed, close the log, mark it clean."""
        self._listener.stop_accepting()
        if self.cleaning is not None:
            self.cleaning.close()
        self.broker.groups.close()
        try:
            await asyncio.wait_for(self._committer.drain(), _LAST_ANSWERS_S)
        except TimeoutError:
            _log.warning("the disk did not sync within %s s", _LAST_ANSWERS_S)
        except OSError:
            pass  # ``failed`` tells it
        # Whoever waited for what failed is told in the next turn of the loop.
        await asyncio.sleep(0)
        self._listener.close()
        # Whatever writes behind the marker of a clean stop would be believed without a look.
        self._timers.close()
        if not self.failed.done():
            with contextlib.suppress(OSError):
                await self._committer.settle()
        self._committer.close()
        if self.failed.done():
            self.broker.store.abandon()
        else:
            self.broker.store.close()


async def start_node(
    *,
    disk: Disk,
    data_directory: str,
    settings: BrokerSettings,
    clock: Clock,
    chance: Chance,
    listen: tuple[str, int],
    advertise: tuple[str, int] | None = None,
    progress: Callable[[Recovery], None] | None = None,
) -> Node:
    """Recover the log, then open the port; ``progress`` hears how far recovery has come."""
    loop = asyncio.get_running_loop()
    shares = share_descriptors(settings.headwater_max_open_files)
    disk.handles.most = shares.log
    store = LogStore.open(
        disk,
        data_directory,
        settings=settings,
        topic_defaults=settings.topic_defaults(),
        clock=clock,
        chance=chance,
        progress=progress,
    )
    failed: asyncio.Future[OSError] = loop.create_future()

    def disk_failed(error: OSError) -> None:
        if not failed.done():
            _log.error("the disk failed: %s; the broker stops and promises nothing more", error)
            failed.set_result(error)

    committer = Committer(loop, on_failure=disk_failed)
    timers = LoopTimers(loop)
    is_started = False
    try:
        broker = Broker(
            store,
            settings=settings,
            clock=clock,
            timers=timers,
            chance=chance,
            commits=committer,
            on_failure=lambda error: disk_failed(OSError(errno.EIO, error.message)),
        )
        gate = Gate(broker.settings, broker.quotas, clock)
        listener = Listener(
            Dispatcher(broker), gate, shares.clients, settings=settings, clock=clock, loop=loop
        )
        node = Node(broker, listener, committer, timers, failed)
        failed.add_done_callback(
            lambda done: broker.topics.fail(f"the disk failed: {done.result()}")
        )
        broker.start()
        is_started = True
        node.host, node.port = listener.open(*listen)
        broker.configs.when_changed(listener.configure)
        if settings.log_cleaner_enable:
            _start_compaction(node, disk, clock, disk_failed)
    except BaseException:
        timers.close()
        committer.close()
        # Only ``broker.start`` notes which transactions a crash has torn: before it there is no
        # clean stop.
        if store.stopped_cleanly or is_started:
            store.close()
        else:
            store.abandon()
        raise
    _announce(node, advertise, data_directory)
    return node


def _start_compaction(
    node: Node, disk: Disk, clock: Clock, disk_failed: Callable[[OSError], None]
) -> None:
    """Compact topics from now on, in a process of its own."""
    broker = node.broker
    node.cleaning = start_cleaning(
        asyncio.get_running_loop(),
        broker.store,
        disk,
        settings=broker.settings,
        clock=clock,
        on_failure=lambda error: disk_failed(OSError(errno.EIO, error.message)),
    )
    broker.configs.when_changed(node.cleaning.configure)


def _announce(node: Node, advertise: tuple[str, int] | None, data_directory: str) -> None:
    """Tell clients where they reach the broker, and tools where it listens and keeps its data."""
    broker = node.broker
    broker.advertised_host, broker.advertised_port = advertise or (node.host, node.port)
    broker.configs.tell_in_force(
        {
            "listeners": _listener(node.host, node.port),
            "advertised.listeners": _listener(broker.advertised_host, broker.advertised_port),
            "log.dirs": data_directory,
        }
    )


def _listener(host: str, port: int) -> str:
    return f"PLAINTEXT://[{host}]:{port}" if ":" in host else f"PLAINTEXT://{host}:{port}"
