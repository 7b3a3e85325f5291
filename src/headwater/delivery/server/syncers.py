"""How a list of files becomes durable without stopping the event loop.

This file alone decides who calls fdatasync: the kernel's workers, threads of ours, or the loop
itself. It must not know partitions or rounds, and it never repeats a sync that failed: the kernel
drops the dirty pages of a failed fsync, so a second call would report a success that is none.

The measurements behind the order of preference are in ``docs/decisions/0001-group-commit.md``.
"""

import asyncio
import errno
import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from headwater.base.disk import RealFile, Syncable
from headwater.delivery.server.kernel_aio import KernelAio

# Called once, on the loop: None when everything is durable, else the first error.
Done = Callable[[OSError | None], None]

# 64 bytes of request and 32 of result each; more files than this wait for a free place.
_KERNEL_SYNCS_MAX = 512
# Four threads were the fastest pool measured; more only queue at the journal.
_THREADS = 4
# A thread that has synced waits up to this long for the interpreter while the loop is busy; it is
# a setting of the whole process, so it is touched only where threads do all the syncing.
_SWITCH_INTERVAL_S = 0.0005


class Syncer(Protocol):
    """Makes files durable, one list at a time."""

    def start(self, items: Sequence[Syncable], done: Done) -> None:
        """Begin to sync ``items``; ``done`` is called later, or before this returns."""
        ...

    def close(self) -> None:
        """Give everything back; a list that is being synced is waited for, not reported."""
        ...


def choose_syncer(loop: asyncio.AbstractEventLoop) -> Syncer:
    """Return the best syncer that this machine offers."""
    try:
        return KernelSyncer(loop, KernelAio(_KERNEL_SYNCS_MAX))
    except OSError:
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL_S))
        return ThreadSyncer(loop)


class InlineSyncer:
    """The caller's own thread syncs: for disks in memory, where order must be repeatable."""

    def start(self, items: Sequence[Syncable], done: Done) -> None:
        """Sync one after the other."""
        try:
            for item in items:
                item.sync()
        except OSError as error:
            done(error)
        else:
            done(None)

    def close(self) -> None:
        """Nothing is held."""


class ThreadSyncer:
    """A few threads share the list: for macOS, and where the kernel offers no AIO."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = _THREADS) -> None:
        """Threads start when they are first needed."""
        self._loop = loop
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="sync")
        self._unfinished = 0
        self._done: Done | None = None

    def start(self, items: Sequence[Syncable], done: Done) -> None:
        """Deal the items out; each thread reports once."""
        assert self._done is None
        shares = [share for n in range(self._threads) if (share := items[n :: self._threads])]
        if not shares:
            done(None)
            return
        self._unfinished = len(shares)
        self._done = done
        for share in shares:
            self._pool.submit(self._sync, share)

    def _sync(self, share: Sequence[Syncable]) -> None:
        failure: OSError | None = None
        try:
            for item in share:
                item.sync()
        except OSError as error:
            failure = error
        except BaseException as error:  # noqa: BLE001 - a lost report would stall every commit
            failure = OSError(errno.EIO, f"sync raised {error!r}")
        # The loop is closed when the process is on its way out: nobody waits for the report.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_share, failure)

    def _on_share(self, failure: OSError | None) -> None:
        self._unfinished -= 1
        if self._done is None or (self._unfinished and failure is None):
            return
        done, self._done = self._done, None
        done(failure)

    def close(self) -> None:
        """Wait for the threads."""
        self._done = None
        self._pool.shutdown(wait=True, cancel_futures=True)


class KernelSyncer:
    """The kernel syncs all files at once and wakes the loop: no thread, no interpreter lock.

    Only plain files go this way. Whatever has a ``sync`` of its own (a directory, a wrapper that
    counts or injects faults) is synced by a thread, so that its ``sync`` is really called.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, aio: KernelAio) -> None:
        """Listen for ended syncs."""
        self._loop = loop
        self._aio = aio
        self._others = ThreadSyncer(loop, threads=1)
        self._queue: deque[int] = deque()
        self._in_flight = 0
        self._others_unfinished = False
        self._done: Done | None = None
        loop.add_reader(aio.eventfd, self._on_ended)

    def start(self, items: Sequence[Syncable], done: Done) -> None:
        """Queue the plain files; hand the rest to the thread."""
        assert self._done is None
        assert not self._queue
        others: list[Syncable] = []
        for item in items:
            # A subclass may do more than fdatasync in its sync.
            if type(item) is RealFile:
                self._queue.append(item.fileno())
            else:
                others.append(item)
        self._done = done
        if others:
            self._others_unfinished = True
            self._others.start(others, self._on_others)
        self._submit()
        self._finish_if_all_ended()

    def _submit(self) -> None:
        while self._queue and self._in_flight < self._aio.capacity:
            room = self._aio.capacity - self._in_flight
            wanted = [self._queue.popleft() for _ in range(min(room, len(self._queue)))]
            try:
                queued = self._aio.submit(wanted)
            except OSError as error:
                self._fail(error)
                return
            self._in_flight += queued
            self._queue.extendleft(reversed(wanted[queued:]))

    def _on_ended(self) -> None:
        ended = self._aio.reap()
        self._in_flight -= len(ended)
        for _, number in ended:
            if number:
                self._fail(OSError(number, os.strerror(number)))
                return
        if self._queue:
            self._submit()
        self._finish_if_all_ended()

    def _on_others(self, failure: OSError | None) -> None:
        self._others_unfinished = False
        if failure is not None:
            self._fail(failure)
        else:
            self._finish_if_all_ended()

    def _finish_if_all_ended(self) -> None:
        if self._in_flight or self._queue or self._others_unfinished or self._done is None:
            return
        done, self._done = self._done, None
        done(None)

    def _fail(self, failure: OSError) -> None:
        self._queue.clear()
        done, self._done = self._done, None
        if done is not None:
            done(failure)

    def close(self) -> None:
        """Stop listening, then wait for what is in flight."""
        if self._aio.eventfd < 0:
            return
        self._done = None
        self._loop.remove_reader(self._aio.eventfd)
        self._others.close()
        self._aio.close()
