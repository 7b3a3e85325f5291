"""The commit strategies that are compared.

This file alone decides how appended bytes become durable. It must not know sockets or frames: a
request is an opaque object that is handed back, in rounds, when its bytes are on the disk.
"""

import asyncio
import ctypes
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue

from benchmarks.group_commit.helper import Helper
from headwater.base.disk import RealFile
from headwater.delivery.server.committer import Committer
from headwater.delivery.server.kernel_aio import Ended, KernelAio

Round = dict[int, list[object]]
Complete = Callable[[list[object]], None]

_AIO_CAPACITY = 1024
_libc = ctypes.CDLL(None, use_errno=True)


def syncfs(descriptor: int) -> None:
    """Make everything on the file system of `descriptor` durable."""
    if _libc.syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _descriptors(ended: Sequence[Ended]) -> list[int]:
    for _, number in ended:
        if number:
            raise OSError(number, os.strerror(number))
    return [descriptor for descriptor, _ in ended]


class Strategy(ABC):
    """Appends join the next round; a round is one sync of each file it wrote to."""

    rounds_max = 1

    def __init__(
        self, directory: Path, partitions: int, complete: Complete, delay_s: float
    ) -> None:
        """Open `partitions` files; a sync call takes `delay_s` longer than the disk needs."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        self.directory = directory
        self.descriptors = [
            os.open(directory / f"{number:04}.log", flags) for number in range(partitions)
        ]
        self.complete = complete
        self.delay_s = delay_s
        self.loop = asyncio.get_running_loop()
        self.helper_pids: list[int] = []
        self._dirty: Round = {}
        self._scheduled = False
        self._rounds = 0
        syncfs(self.descriptors[0])
        self.open()

    def open(self) -> None:  # noqa: B027 - most strategies need nothing
        """Start what the strategy needs."""

    def close(self) -> None:  # noqa: B027
        """End what the strategy started."""

    def append(self, partition: int, frame: bytes, request: object) -> None:
        """Write `frame` and let `request` wait for the next round."""
        os.write(self.descriptors[partition], frame)
        waiting = self._dirty.get(partition)
        if waiting is None:
            self._dirty[partition] = [request]
        else:
            waiting.append(request)
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._end_of_iteration)

    def _end_of_iteration(self) -> None:
        self._scheduled = False
        if self._dirty and self._rounds < self.rounds_max:
            self._rounds += 1
            round_, self._dirty = self._dirty, {}
            self.start(round_)

    @abstractmethod
    def start(self, round_: Round) -> None:
        """Sync the files of `round_`, then see that `finished` is called in the loop."""

    def finished(self, round_: Round) -> None:
        """Answer the requests of a durable round and start the next."""
        self._rounds -= 1
        self.complete([request for requests in round_.values() for request in requests])
        self._end_of_iteration()

    def sync(self, partition: int) -> None:
        """Block until the file of `partition` is durable."""
        if self.delay_s:
            time.sleep(self.delay_s)
        os.fdatasync(self.descriptors[partition])


class NoSync(Strategy):
    """Nothing is durable: the ceiling that server and load generator set."""

    def start(self, round_: Round) -> None:
        """Do nothing."""
        self.finished(round_)


class Inline(Strategy):
    """The loop thread syncs file after file."""

    def start(self, round_: Round) -> None:
        """Block the loop."""
        for partition in round_:
            self.sync(partition)
        self.finished(round_)


class Dsync(Strategy):
    """One pwritev with RWF_DSYNC for each dirty file, in the loop thread."""

    def open(self) -> None:
        """Keep the bytes until the end of the iteration."""
        self._frames: dict[int, list[bytes]] = {}
        self._sizes = [0] * len(self.descriptors)

    def append(self, partition: int, frame: bytes, request: object) -> None:
        """Keep `frame` for the write that ends the iteration."""
        self._frames.setdefault(partition, []).append(frame)
        self._dirty.setdefault(partition, []).append(request)
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._end_of_iteration)

    def start(self, round_: Round) -> None:
        """Write and sync in one call for each file."""
        frames, self._frames = self._frames, {}
        for partition, parts in frames.items():
            if self.delay_s:
                time.sleep(self.delay_s)
            descriptor = self.descriptors[partition]
            size = self._sizes[partition]
            self._sizes[partition] = size + os.pwritev(descriptor, parts, size, os.RWF_DSYNC)
        self.finished(round_)


class Threads(Strategy):
    """Python threads share the files of a round; the last one wakes the loop."""

    threads = 1
    switch_interval_s = 0.005

    def open(self) -> None:
        """Start the threads."""
        sys.setswitchinterval(self.switch_interval_s)
        self._work: SimpleQueue[tuple[Sequence[int], list[int], Round] | None] = SimpleQueue()
        self._lock = threading.Lock()
        for _ in range(self.threads):
            threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        """End the threads."""
        for _ in range(self.threads):
            self._work.put(None)

    def start(self, round_: Round) -> None:
        """Deal the files out."""
        partitions = list(round_)
        parts = [part for n in range(self.threads) if (part := partitions[n :: self.threads])]
        remaining = [len(parts)]
        for part in parts:
            self._work.put((part, remaining, round_))

    def _run(self) -> None:
        while work := self._work.get():
            partitions, remaining, round_ = work
            self.sync_all(partitions)
            with self._lock:
                remaining[0] -= 1
                last = remaining[0] == 0
            if last:
                self.loop.call_soon_threadsafe(self.finished, round_)

    def sync_all(self, partitions: Sequence[int]) -> None:
        """Sync this thread's share."""
        for partition in partitions:
            self.sync(partition)


class SyncFs(Threads):
    """One thread; one syncfs for a round of more than four files."""

    files_few = 4

    def sync_all(self, partitions: Sequence[int]) -> None:
        """Sync the whole file system when that is fewer calls."""
        if len(partitions) <= self.files_few:
            super().sync_all(partitions)
            return
        if self.delay_s:
            time.sleep(self.delay_s)
        syncfs(self.descriptors[0])


class HelperProcess(Strategy):
    """Another process syncs; its answer is a reader event of the loop."""

    threads = 1

    def open(self) -> None:
        """Start the helper and listen to it."""
        self._helper = Helper(self.descriptors, self.threads, self.delay_s)
        self.helper_pids.append(self._helper.pid)
        self._round: Round = {}
        self.loop.add_reader(self._helper.socket, self._on_answer)

    def close(self) -> None:
        """End the helper."""
        self.loop.remove_reader(self._helper.socket)
        self._helper.close()

    def start(self, round_: Round) -> None:
        """Tell the helper which files."""
        self._round = round_
        self._helper.ask(list(round_))

    def _on_answer(self) -> None:
        if self._helper.socket.recv(1) != b"x":
            message = "the helper is gone"
            raise RuntimeError(message)
        self.finished(self._round)


class Aio(Strategy):
    """The kernel's own workers sync all files of a round at once (AIO, eventfd)."""

    def open(self) -> None:
        """Set the AIO context up."""
        self._aio = KernelAio(_AIO_CAPACITY)
        self._partition_of = {fd: number for number, fd in enumerate(self.descriptors)}
        self._in_flight: list[tuple[set[int], Round]] = []
        self.loop.add_reader(self._aio.eventfd, self._on_ended)

    def close(self) -> None:
        """Stop listening."""
        self.loop.remove_reader(self._aio.eventfd)

    def start(self, round_: Round) -> None:
        """Queue all syncs with one system call."""
        self._in_flight.append((set(round_), round_))
        self._aio.submit([self.descriptors[partition] for partition in round_])

    def _on_ended(self) -> None:
        ended = _descriptors(self._aio.reap())
        if self.delay_s:
            self.loop.call_later(self.delay_s, self._on_durable, ended)
        else:
            self._on_durable(ended)

    def _on_durable(self, ended: list[int]) -> None:
        for descriptor in ended:
            partition = self._partition_of[descriptor]
            for waiting, _ in self._in_flight:
                if partition in waiting:
                    waiting.discard(partition)
                    break
        done = [entry for entry in self._in_flight if not entry[0]]
        if done:
            self._in_flight = [entry for entry in self._in_flight if entry[0]]
            for _, round_ in done:
                self.finished(round_)


class AioPerFile(Aio):
    """No rounds: each file is synced again as soon as its last sync ended."""

    def open(self) -> None:
        """Keep what waits for each file that is being synced."""
        super().open()
        self._syncing: Round = {}

    def _end_of_iteration(self) -> None:
        self._scheduled = False
        syncing = self._syncing
        ready = [partition for partition in self._dirty if partition not in syncing]
        if ready:
            for partition in ready:
                syncing[partition] = self._dirty.pop(partition)
            self._aio.submit([self.descriptors[partition] for partition in ready])

    def _on_durable(self, ended: list[int]) -> None:
        durable: list[object] = []
        for descriptor in ended:
            durable += self._syncing.pop(self._partition_of[descriptor])
        self.complete(durable)
        self._end_of_iteration()


class Adaptive(Aio):
    """Inline for one or two files on a disk that has been fast; AIO otherwise."""

    files_few = 2
    sync_fast_s = 0.0005

    def open(self) -> None:
        """Assume nothing about the disk yet."""
        super().open()
        self._sync_s = 1.0
        self._started_at = 0.0

    def start(self, round_: Round) -> None:
        """Choose by the number of files and the recent time of a sync."""
        self._started_at = time.perf_counter()
        if len(round_) > self.files_few or self._sync_s > self.sync_fast_s:
            super().start(round_)
            return
        for partition in round_:
            self.sync(partition)
        self.finished(round_)

    def finished(self, round_: Round) -> None:
        """Learn the time of one sync from every small round."""
        if len(round_) <= self.files_few:
            last_s = (time.perf_counter() - self._started_at) / len(round_)
            self._sync_s += (last_s - self._sync_s) / 8
        super().finished(round_)


class WriteAhead(Strategy):
    """One shared file is written and synced inline; partition files are synced every second."""

    checkpoint_s = 1.0

    def open(self) -> None:
        """Open the shared file and start the thread that syncs the partition files."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        self._shared = os.open(self.directory / "shared.wal", flags)
        self._frames: list[bytes] = []
        self._unsynced: set[int] = set()
        threading.Thread(target=self._checkpoint, daemon=True).start()

    def append(self, partition: int, frame: bytes, request: object) -> None:
        """Keep `frame` for the shared file too."""
        self._frames.append(frame)
        super().append(partition, frame, request)

    def start(self, round_: Round) -> None:
        """Write all frames of the round with one call, and sync once."""
        self._write()
        self._unsynced.update(round_)
        if self.delay_s:
            time.sleep(self.delay_s)
        os.fdatasync(self._shared)
        self.finished(round_)

    def _write(self) -> None:
        os.write(self._shared, b"".join(self._frames))
        self._frames.clear()

    def _checkpoint(self) -> None:
        while True:
            time.sleep(self.checkpoint_s)
            unsynced, self._unsynced = self._unsynced, set()
            for partition in unsynced:
                os.fdatasync(self.descriptors[partition])


class WriteAheadAio(WriteAhead):
    """The shared file is synced by AIO."""

    def open(self) -> None:
        """Listen to the AIO context."""
        super().open()
        self._aio = KernelAio(_AIO_CAPACITY)
        self._round: Round = {}
        self.loop.add_reader(self._aio.eventfd, self._on_ended)

    def close(self) -> None:
        """Stop listening."""
        self.loop.remove_reader(self._aio.eventfd)

    def start(self, round_: Round) -> None:
        """Write with one call and queue one sync."""
        self._write()
        self._unsynced.update(round_)
        self._round = round_
        self._aio.submit([self._shared])

    def _on_ended(self) -> None:
        _descriptors(self._aio.reap())
        if self.delay_s:
            self.loop.call_later(self.delay_s, self.finished, self._round)
        else:
            self.finished(self._round)


class _Partition:
    """One file as the broker's committer sees it."""

    def __init__(self, file: RealFile, durable: Callable[[list[object]], None]) -> None:
        self.file = file
        self._durable = durable
        self.waiting: list[object] = []
        self._committing: list[object] = []

    def begin_commit(self) -> list[RealFile]:
        """Hand the file over."""
        self._committing, self.waiting = self.waiting, []
        return [self.file]

    def end_commit(self) -> None:
        """Pass the requests on."""
        self._durable(self._committing)


class BrokerCommitter(NoSync):
    """The broker's own class, as it is."""

    def open(self) -> None:
        """Wrap the files as the log does."""
        self._committer = Committer(self.loop, on_failure=self._on_failure)
        names = [
            str(self.directory / f"{number:04}.log") for number in range(len(self.descriptors))
        ]
        flags = os.O_RDWR | os.O_APPEND
        self._partitions = [_Partition(RealFile(name, flags), self._on_durable) for name in names]
        self._durable: list[object] = []

    def close(self) -> None:
        """Give the kernel's context back."""
        self._committer.close()

    @staticmethod
    def _on_failure(failure: OSError) -> None:
        sys.exit(str(failure))

    def append(self, partition: int, frame: bytes, request: object) -> None:
        """Write and join the next round."""
        file = self._partitions[partition]
        file.file.append([frame])
        file.waiting.append(request)
        self._committer.add(file)

    def _on_durable(self, requests: list[object]) -> None:
        # One write for each connection and round, not one for each partition.
        if not self._durable:
            self.loop.call_soon(self._answer)
        self._durable += requests

    def _answer(self) -> None:
        durable, self._durable = self._durable, []
        self.complete(durable)


def _variant(base: type[Strategy], **attributes: object) -> type[Strategy]:
    return type(base.__name__, (base,), attributes)


STRATEGIES: dict[str, type[Strategy]] = {
    "no-sync": NoSync,
    "inline": Inline,
    "dsync": Dsync,
    "thread-1": Threads,
    "thread-1-fast": _variant(Threads, switch_interval_s=0.0005),
    "thread-2": _variant(Threads, threads=2),
    "thread-2-fast": _variant(Threads, threads=2, switch_interval_s=0.0005),
    "thread-4": _variant(Threads, threads=4),
    "thread-4-fast": _variant(Threads, threads=4, switch_interval_s=0.0005),
    "syncfs": _variant(SyncFs, switch_interval_s=0.0005),
    "helper-1": HelperProcess,
    "helper-4": _variant(HelperProcess, threads=4),
    "aio": Aio,
    "aio-2": _variant(Aio, rounds_max=2),
    "aio-file": AioPerFile,
    "adaptive": Adaptive,
    "committer": BrokerCommitter,
    "wal": WriteAhead,
    "wal-aio": WriteAheadAio,
}
