"""The broker that is going to be killed: a process of its own on a traced disk.

This file alone decides how that process differs from ``headwater up``: its disk reports what it
does, and what a broker does once a minute it does ten times a second, so that a life of one second
has seen it. Everything else is the real node. It prints one line of JSON when its port is open.

    python -m tests.crash.broker.node '{"root": ..., "trace": ..., "port": ...}'
"""

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from headwater.base.chance import SystemChance
from headwater.base.clock import SystemClock
from headwater.base.disk import RealDisk, Syncable
from headwater.base.settings import BrokerSettings
from headwater.delivery.broker import broker
from headwater.delivery.server import committer
from headwater.delivery.server.lifecycle import Node, start_node
from headwater.delivery.server.syncers import Done, KernelSyncer, Syncer, choose_syncer
from headwater.log import manifest
from headwater.log.directories import STRAY_SUFFIX
from headwater.testing.traced_disk import TracedDisk, TracedFile

_SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    # The broker's own topics are compacted as often as there is anything to compact.
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.05",
    "log.flush.offset.checkpoint.interval.ms": "150",
    # An entry for almost every batch and room for a dozen of them: segments roll all the time.
    "log.index.interval.bytes": "200",
    "log.index.size.max.bytes": "150",
    "log.retention.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "200",
    "offsets.topic.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "transaction.state.log.num.partitions": "2",
}
_UPKEEP_INTERVAL_MS = 50
_FOLD_AT_LEAST_BYTES = 3_000


@dataclass(frozen=True)
class Orders:
    """What the process is told.

    Attributes:
        root: The directory that stands for the whole disk; the data directory lies in it.
        trace: Where events go; outside of ``root``.
        port: Where to listen.
        kill_at: Die right before this event of the trace; 0: do not.
        kill_kind: Die right before an event of this kind...
        kill_count: ...the so many-th since the port was opened.
        lie: The syncs of paths that match are not reported.
        kernel: Whether files are synced by the kernel's queue, as they are without a trace.
    """

    root: str
    trace: str
    port: int = 0
    kill_at: int = 0
    kill_kind: str = ""
    kill_count: int = 0
    lie: str = ""
    kernel: bool = True


class UnwrappingSyncer:
    """Lets the kernel sync traced files, which would otherwise be synced by a thread."""

    def __init__(self, syncer: Syncer) -> None:
        self._syncer = syncer

    def start(self, items: Sequence[Syncable], done: Done) -> None:
        """Report the files' syncs around the whole list."""
        files = [(item, item.begin_sync()) for item in items if isinstance(item, TracedFile)]
        plain = [item.inner if isinstance(item, TracedFile) else item for item in items]

        def ended(failure: OSError | None) -> None:
            if failure is None:
                for file, number in files:
                    file.end_sync(number)
            done(failure)

        self._syncer.start(plain, ended)

    def close(self) -> None:
        """Give everything back."""
        self._syncer.close()


def _hurry(orders: Orders) -> None:
    """Shorten what cannot be set, and choose who syncs."""
    broker._UPKEEP_INTERVAL_MS = _UPKEEP_INTERVAL_MS
    manifest._FOLD_AT_LEAST_BYTES = _FOLD_AT_LEAST_BYTES  # type: ignore[misc]
    if orders.kernel:

        def choose(loop: asyncio.AbstractEventLoop) -> Syncer:
            syncer = choose_syncer(loop)
            return UnwrappingSyncer(syncer) if isinstance(syncer, KernelSyncer) else syncer

        committer.choose_syncer = choose  # type: ignore[attr-defined]


def _traced_disk(orders: Orders) -> TracedDisk:
    descriptor = os.open(orders.trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    disk = TracedDisk(RealDisk(), orders.root, partial(_write_all, descriptor))
    if orders.kill_at:
        disk.before = lambda number, _: _die() if number == orders.kill_at else None
    if orders.lie:
        pattern = re.compile(orders.lie)
        disk.lie = lambda _, path: pattern.search(path) is not None
    return disk


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_at_kind(kind: str, count: int) -> Callable[[int, str], None]:
    seen: Counter[str] = Counter()

    def before(_: int, happening: str) -> None:
        seen[happening] += 1
        if seen[kind] == count:
            _die()

    return before


def _describe(node: Node, disk: TracedDisk, clean: bool) -> dict[str, Any]:
    store = node.broker.store
    reports = [log.recovery for log in store.logs()]
    names = disk.list_directory(store.directory)
    return {
        "operations": disk.operations,
        "clean": clean,
        "epoch": store.node_epoch,
        "scanned_bytes": sum(report.scanned_bytes for report in reports),
        "truncated_bytes": sum(report.truncated_bytes for report in reports),
        "removed_segments": sum(report.removed_segments for report in reports),
        "strays": [name for name in names if name.endswith(STRAY_SUFFIX)],
    }


async def _live(orders: Orders) -> int:
    disk = _traced_disk(orders)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    clean = False

    def note(recovery: Any) -> None:  # noqa: ANN401 - a Recovery
        nonlocal clean
        clean = recovery.clean

    node = await start_node(
        disk=disk,
        data_directory=str(Path(orders.root) / "data"),
        settings=BrokerSettings.parse(_SETTINGS),
        clock=SystemClock(),
        chance=SystemChance(),
        listen=("127.0.0.1", orders.port),
        progress=note,
    )
    if orders.kill_kind:
        disk.before = _die_at_kind(orders.kill_kind, orders.kill_count)
    print(json.dumps(_describe(node, disk, clean)), flush=True)
    node.failed.add_done_callback(lambda _: stop.set())
    await stop.wait()
    await node.stop()
    return 1 if node.failed.done() else 0


def command(orders: Orders) -> list[str]:
    """Return what starts such a process."""
    return [sys.executable, "-m", "tests.crash.broker.node", json.dumps(asdict(orders))]


if __name__ == "__main__":
    given = Orders(**json.loads(sys.argv[1]))
    _hurry(given)
    sys.exit(asyncio.run(_live(given)))
