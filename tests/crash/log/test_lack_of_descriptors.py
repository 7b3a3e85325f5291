"""Descriptors that run out at any moment in the life of a data directory lose nothing."""

import errno
import os
from collections.abc import Sequence

import pytest

from headwater.base.errors import StorageError
from headwater.log.partition import PartitionLog
from headwater.testing.memory_disk import MemoryDisk
from tests.crash.log.campaign import AFTERWARDS, judge, small_journal
from tests.crash.log.ledger import Ledger
from tests.crash.log.workload import Life, StoppedError

STEP = 70
"""First moments per test: few enough that two workers share them."""

OPENS_MAX = 300
SHORTAGES = (1, 2, 7)
"""How many times in a row nothing can be opened: an idle file closed or not, a while of it."""

STARTS_MAX = 20
LOOKS_MAX = 3

pytestmark = pytest.mark.crash


class Shortage:
    """Lets some opens in a row fail, counted from 1."""

    def __init__(self, first: int, count: int) -> None:
        self.opens = 0
        self.failed = 0
        self._fails = range(first, first + count)

    @property
    def has_begun(self) -> bool:
        return self.opens >= self._fails.start > 0

    def __call__(self, path: str) -> None:
        self.opens += 1
        if self.opens in self._fails:
            self.failed += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)


class ShortLife(Life):
    """The fixed life; what the test itself reads can always be opened."""

    shortage: Shortage
    looks = 0

    def look(self) -> None:
        """Judge what a power cut would leave now, a few times after the shortage has begun."""
        if self.shortage.has_begun and self.looks < LOOKS_MAX:
            self.looks += 1
            disk = self.disk.after_power_cut(0, keep="nothing")
            judge(disk, self.ledger, self.clock, AFTERWARDS + self.looks)

    def commit_together(self, *partitions: tuple[str, int]) -> None:
        """Run one commit round for several partitions."""
        super().commit_together(*partitions)
        self.look()

    def open(self) -> None:
        """Start as often as it takes."""
        for _ in range(STARTS_MAX):
            try:
                self.store = self._start()
            except StorageError:
                self.ledger.stopped_cleanly = False
                self.disk = self.disk.restart()
            else:
                self.take_stock()
                return
        raise StoppedError("it does not start")

    def take_stock(self) -> None:
        """Look at everything."""
        self.disk.on_open = lambda _: None
        super().take_stock()
        self.disk.on_open = self.shortage

    def upkeep(self, *, after_ms: int, expires: Sequence[str] = ()) -> None:
        """Let the second of the broker's timer pass too, which commits what waits."""
        starts = [(promise, promise.start) for promise in map(self.ledger.promise, self.logs())]
        failed = self.shortage.failed
        super().upkeep(after_ms=after_ms, expires=expires)
        if self.shortage.failed > failed:
            # Something was put off, perhaps the record of where logs start.
            for promise, start in starts:
                promise.start = start
        waiting = [log for log in self.logs() if log.commit_due()]
        self.commit_together(*((log.topic, log.partition) for log in waiting))

    def logs(self) -> list[PartitionLog]:
        """Return all partitions of now."""
        return list(self.store.logs())


def live(first: int, count: int) -> ShortLife:
    """Live with a shortage; nothing may take it for a broken disk."""
    disk = MemoryDisk()
    life = ShortLife(disk, Ledger(was_full=True), 0)
    life.shortage = disk.on_open = Shortage(first, count)
    with small_journal():
        life.run()
        assert not life.store.failed
        assert not life.disk.read_only
    return life


@pytest.mark.parametrize("first", range(1, OPENS_MAX + 1, STEP))
@pytest.mark.parametrize("count", SHORTAGES)
def test_every_promise_is_kept(first: int, count: int) -> None:
    for number in range(first, first + STEP):
        try:
            life = live(number, count)
            with small_journal():
                for keep in ("nothing", "some"):
                    disk = life.disk.after_power_cut(number, keep=keep)
                    judge(disk, life.ledger, life.clock, AFTERWARDS + number)
        except Exception as error:
            message = f"{count} opens from number {number} on cannot be had"
            raise AssertionError(message) from error


def test_the_life_opens_as_much_as_is_tried() -> None:
    assert OPENS_MAX - STEP < live(0, 0).shortage.opens <= OPENS_MAX
