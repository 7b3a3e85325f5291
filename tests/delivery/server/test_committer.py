"""Rounds: what they cover, when they begin, who is told, and what a failure ends."""

import asyncio
import errno
from collections.abc import Callable, Coroutine, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.disk import File, Syncable
from headwater.delivery.server.committer import Committer
from headwater.delivery.server.syncers import Done, InlineSyncer
from headwater.testing.memory_disk import MemoryDisk


class Sheet:
    """A file that is only versions: what was written, and what a sync has covered."""

    def __init__(self) -> None:
        self.written = 0
        self.synced = 0

    def sync(self) -> None:
        self.synced = self.written


class Item:
    """A partition with one file; checks that it is never told more than was synced."""

    def __init__(self, sheet: Sheet | None = None) -> None:
        self.sheet = sheet or Sheet()
        self.snapshot = 0
        self.durable = 0
        self.ends = 0
        self.on_end: Callable[[], None] = lambda: None

    def write(self) -> None:
        self.sheet.written += 1

    def begin_commit(self) -> Sequence[Syncable]:
        self.snapshot = self.sheet.written
        return [self.sheet]

    def end_commit(self) -> None:
        assert self.snapshot <= self.sheet.synced
        self.durable = self.snapshot
        self.ends += 1
        self.on_end()


class HeldSyncer:
    """Syncs when the test says so."""

    def __init__(self) -> None:
        self.rounds: list[list[Syncable]] = []
        self._done: Done | None = None
        self.closed = False

    def start(self, items: Sequence[Syncable], done: Done) -> None:
        assert self._done is None, "two rounds at once"
        self.rounds.append(list(items))
        self._done = done

    @property
    def busy(self) -> bool:
        return self._done is not None

    def finish(self, failure: OSError | None = None) -> None:
        done, self._done = self._done, None
        assert done is not None
        if failure is None:
            for item in self.rounds[-1]:
                item.sync()
        done(failure)

    def close(self) -> None:
        self.closed = True


class Bench:
    """A committer on a running loop with a syncer that waits for the test."""

    def __init__(self) -> None:
        self.syncer = HeldSyncer()
        self.failures: list[OSError] = []
        self.committer = Committer(
            asyncio.get_running_loop(), on_failure=self.failures.append, syncer=self.syncer
        )

    def write(self, *items: Item) -> None:
        for item in items:
            item.write()
            self.committer.add(item)


async def iterate() -> None:
    """Let everything run that is scheduled now."""
    await asyncio.sleep(0)


def on_loop(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@on_loop
async def test_what_is_added_in_one_iteration_shares_a_round() -> None:
    bench = Bench()
    first, second = Item(), Item()
    bench.write(first, second, first)

    assert not bench.syncer.rounds
    await iterate()
    assert bench.syncer.rounds == [[first.sheet, second.sheet]]
    assert (first.durable, second.durable) == (0, 0)
    bench.syncer.finish()
    assert (first.durable, second.durable) == (2, 1)
    assert first.ends == 1


@on_loop
async def test_what_is_added_during_a_round_waits_for_the_next() -> None:
    bench = Bench()
    item, late = Item(), Item()
    bench.write(item)
    await iterate()
    bench.write(item, late)
    await iterate()

    assert len(bench.syncer.rounds) == 1
    bench.syncer.finish()
    assert (item.durable, late.durable) == (1, 0)
    await iterate()
    assert bench.syncer.rounds[1] == [item.sheet, late.sheet]
    bench.syncer.finish()
    assert (item.durable, late.durable) == (2, 1)
    await iterate()
    assert not bench.syncer.busy


@on_loop
async def test_an_item_added_by_a_callback_joins_the_next_round() -> None:
    bench = Bench()
    first, second = Item(), Item()
    first.on_end = lambda: bench.write(second)
    bench.write(first)
    await iterate()
    bench.syncer.finish()
    await iterate()

    assert bench.syncer.rounds[1] == [second.sheet]


@on_loop
async def test_a_file_of_two_items_is_synced_once() -> None:
    bench = Bench()
    shared = Sheet()
    bench.write(Item(shared), Item(shared))
    await iterate()

    assert bench.syncer.rounds == [[shared]]


@on_loop
async def test_a_failed_sync_ends_all_commits() -> None:
    bench = Bench()
    item, late = Item(), Item()
    bench.write(item)
    waiting = asyncio.ensure_future(bench.committer.drain())
    await iterate()
    bench.write(late)
    failure = OSError(errno.EIO, "the disk is gone")
    bench.syncer.finish(failure)
    bench.write(item)
    await iterate()
    await iterate()

    assert bench.failures == [failure]
    assert (item.ends, late.ends) == (0, 0)
    assert len(bench.syncer.rounds) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        await waiting
    with pytest.raises(OSError, match="the disk is gone"):
        await bench.committer.drain()


@on_loop
async def test_an_item_that_cannot_begin_fails_the_round_instead_of_stalling_it() -> None:
    bench = Bench()

    class Broken(Item):
        def begin_commit(self) -> Sequence[Syncable]:
            raise LookupError("no such segment")

    bench.write(Item(), Broken())
    await iterate()

    assert not bench.syncer.rounds
    assert "no such segment" in str(bench.failures[0])


@on_loop
async def test_an_item_whose_callback_raises_does_not_hold_back_the_others() -> None:
    bench = Bench()
    reported: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
    broken, sound = Item(), Item()

    def break_off() -> None:
        raise LookupError("callback")

    broken.on_end = break_off
    bench.write(broken, sound)
    await iterate()
    bench.syncer.finish()

    assert sound.durable == 1
    assert reported == ["callback"]
    assert not bench.failures


@on_loop
async def test_drain_waits_for_the_round_that_covers_it_and_no_longer() -> None:
    bench = Bench()
    await bench.committer.drain()
    item = Item()
    bench.write(item)
    before = asyncio.ensure_future(bench.committer.drain())
    await iterate()
    during = asyncio.ensure_future(bench.committer.drain())
    await iterate()
    bench.write(item)
    after = asyncio.ensure_future(bench.committer.drain())
    await iterate()

    bench.syncer.finish()
    await asyncio.gather(before, during)
    assert not after.done()
    await iterate()
    bench.syncer.finish()
    await after
    assert item.durable == 2


@on_loop
async def test_close_releases_the_syncer_and_whoever_drains() -> None:
    bench = Bench()
    bench.write(Item())
    waiting = asyncio.ensure_future(bench.committer.drain())
    await iterate()
    bench.committer.close()

    assert bench.syncer.closed
    with pytest.raises(asyncio.CancelledError):
        await waiting


@given(st.lists(st.sampled_from(["write 0", "write 1", "write 2", "iterate", "finish"])))
def test_nothing_is_told_durable_too_early_and_everything_in_the_end(steps: list[str]) -> None:
    async def run() -> None:
        bench = Bench()
        items = [Item(), Item(), Item()]
        for step in steps:
            if step.startswith("write"):
                bench.write(items[int(step[-1])])
            elif step == "iterate":
                await iterate()
            elif bench.syncer.busy:
                bench.syncer.finish()
        last = asyncio.ensure_future(bench.committer.drain())
        for _ in range(4):
            await iterate()
            if bench.syncer.busy:
                bench.syncer.finish()
        assert last.done()
        assert [item.durable for item in items] == [item.sheet.written for item in items]

    asyncio.run(run())


class FileItem:
    """One file of a memory disk."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.ends = 0

    def begin_commit(self) -> Sequence[Syncable]:
        return [self.file]

    def end_commit(self) -> None:
        self.ends += 1


@on_loop
async def test_what_was_told_durable_survives_a_power_cut() -> None:
    disk = MemoryDisk()
    disk.make_directory("data")
    disk.sync_directory("")
    item = FileItem(disk.open("data/log", create=True))
    disk.sync_directory("data")
    failures: list[OSError] = []
    loop = asyncio.get_running_loop()
    committer = Committer(loop, on_failure=failures.append, syncer=InlineSyncer())

    item.file.append([b"kept"])
    committer.add(item)
    await committer.drain()
    item.file.append([b"lost"])

    assert item.ends == 1
    found = disk.crash(seed=0, keep="nothing").open_for_reading("data/log")
    assert found.read(100, 0) == b"kept"
    assert not failures


@on_loop
async def test_whoever_syncs_by_itself_does_so_between_two_rounds() -> None:
    bench = Bench()
    item = Item()
    seen: list[int] = []

    def look() -> None:
        assert not bench.syncer.busy
        seen.append(item.durable)

    bench.committer.between_rounds(look)
    assert seen == [0], "nothing is under way"
    bench.write(item)
    await iterate()
    bench.committer.between_rounds(look)
    bench.write(item)
    assert seen == [0]
    bench.syncer.finish()
    assert seen == [0, 1]
    await iterate()
    bench.syncer.finish()
    assert seen == [0, 1]


@on_loop
async def test_nothing_is_between_a_failed_round_and_the_next() -> None:
    bench = Bench()
    seen: list[str] = []
    bench.write(Item())
    await iterate()
    bench.committer.between_rounds(lambda: seen.append("during"))
    bench.syncer.finish(OSError(errno.EIO, "gone"))
    bench.committer.between_rounds(lambda: seen.append("after"))

    assert bench.failures
    assert not seen
