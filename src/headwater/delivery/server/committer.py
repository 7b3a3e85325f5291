"""Group commit: when appended bytes become durable, and who is told.

This file alone decides when a sync begins and what it covers. It must not know what is in the
files, nor how a sync is made (``syncers``).

The rules that everything acknowledged rests on:

* All that is added while a round is under way shares the next one: the busier the broker, the
  more one sync is worth. An idle broker starts a round at the end of the same loop iteration.
* One round at a time. Nothing is told durable before every file of its round is.
* A failed sync ends it all: no further round, no callback, no second try. The kernel may have
  dropped the pages that it could not write, and a repeated call would lie.
* The kernel may report a failed write to one sync only; another sync of the same file would then
  succeed falsely. So nothing else is synced during a round: what has to be, waits for its end.
"""

import asyncio
import errno
from collections.abc import Callable

from headwater.base.disk import Syncable
from headwater.delivery.broker.partition import Committable
from headwater.delivery.server.syncers import Syncer, choose_syncer


class Committer:
    """Gathers what is to become durable into rounds, on one event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        on_failure: Callable[[OSError], None],
        syncer: Syncer | None = None,
    ) -> None:
        """Wait for the first item.

        ``on_failure`` is called at most once, after which nothing is durable: end the broker.
        """
        self._loop = loop
        self._on_failure = on_failure
        self._syncer = syncer or choose_syncer(loop)
        # Dictionaries as ordered sets: an item added twice commits once, items keep their order.
        self._next: dict[Committable, None] = {}
        self._current: dict[Committable, None] = {}
        self._next_drained: list[asyncio.Future[None]] = []
        self._current_drained: list[asyncio.Future[None]] = []
        self._between: list[Callable[[], None]] = []
        self._scheduled = False
        self._running = False
        self._failure: OSError | None = None

    def add(self, item: Committable) -> None:
        """Let ``item`` join the next round."""
        self._next[item] = None
        if not self._scheduled and not self._running:
            self._scheduled = True
            # Runs before the sockets that became readable meanwhile: the end of this iteration.
            self._loop.call_soon(self._start_round)

    def between_rounds(self, action: Callable[[], None]) -> None:
        """Run the action while nothing is being synced; never again once a round has failed."""
        if self._running:
            self._between.append(action)
        elif self._failure is None:
            action()

    def _start_round(self) -> None:
        self._scheduled = False
        if self._failure is not None or self._running or not self._next:
            return
        self._running = True
        self._current, self._next = self._next, {}
        self._current_drained, self._next_drained = self._next_drained, []
        files: dict[Syncable, None] = {}
        try:
            for item in self._current:
                files.update(dict.fromkeys(item.begin_commit()))
        except Exception as error:  # noqa: BLE001 - a round that cannot begin would stall for ever
            if not isinstance(error, OSError):
                error = OSError(errno.EIO, f"a commit could not begin: {error!r}")
            self._on_synced(error)
            return
        self._syncer.start(list(files), self._on_synced)

    def _on_synced(self, failure: OSError | None) -> None:
        self._running = False
        if failure is not None:
            self._fail(failure)
            return
        durable, self._current = self._current, {}
        drained, self._current_drained = self._current_drained, []
        between, self._between = self._between, []
        for action in (*(item.end_commit for item in durable), *between):
            try:
                action()
            except Exception as error:  # noqa: BLE001 - the other partitions' clients still wait
                context = {"message": f"{action!r} failed after a round", "exception": error}
                self._loop.call_exception_handler(context)
        for waiter in drained:
            if not waiter.done():
                waiter.set_result(None)
        if self._next and not self._scheduled:
            # Not at once: requests that arrived during the sync are parsed first and join in.
            self._scheduled = True
            self._loop.call_soon(self._start_round)

    def _fail(self, failure: OSError) -> None:
        self._failure = failure
        waiters = self._current_drained + self._next_drained
        self._current_drained, self._next_drained = [], []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(failure)
        self._on_failure(failure)

    async def drain(self) -> None:
        """Return when all that was added before the call is durable; raise what prevented it."""
        if self._failure is not None:
            raise self._failure
        if self._next:
            waiters = self._next_drained
        elif self._running:
            waiters = self._current_drained
        else:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        waiters.append(waiter)
        await waiter

    async def settle(self) -> None:
        """Return when no round is under way or due, for a caller that lets nobody add any more."""
        while self._next or self._running:
            await self.drain()

    def close(self) -> None:
        """Give the syncer back; what was not drained is not reported."""
        for waiter in self._current_drained + self._next_drained:
            waiter.cancel()
        self._next.clear()
        self._syncer.close()
