"""Every way to sync a list of files keeps the same promises."""

import asyncio
import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from headwater.base.disk import RealDisk, RealFile, Syncable
from headwater.delivery.server import syncers
from headwater.delivery.server.kernel_aio import Ended, KernelAio
from headwater.delivery.server.syncers import (
    InlineSyncer,
    KernelSyncer,
    Syncer,
    ThreadSyncer,
    choose_syncer,
)
from headwater.log.unsynced import NamesSync

Loop = asyncio.AbstractEventLoop
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="kernel AIO is Linux's")
MAKERS: dict[str, Callable[[Loop], Syncer]] = {
    "inline": lambda _: InlineSyncer(),
    "threads": ThreadSyncer,
    "kernel": lambda loop: KernelSyncer(loop, KernelAio(4)),
}


class CountedFile(RealFile):
    """A file that counts its syncs, and fails them when told to."""

    def __init__(self, path: Path, failure: Exception | None = None) -> None:
        super().__init__(str(path), os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self.syncs = 0
        self._failure = failure

    def sync(self) -> None:
        self.syncs += 1
        if self._failure is not None:
            raise self._failure
        super().sync()


@pytest.fixture(
    params=["inline", "threads", pytest.param("kernel", marks=linux_only)],
)
def make(request: pytest.FixtureRequest) -> Callable[[Loop], Syncer]:
    return MAKERS[request.param]


def sync_rounds(make: Callable[[Loop], Syncer], *rounds: Sequence[Syncable]) -> list[str]:
    """Sync each list after the other; return how each ended."""
    outcomes: list[str] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        syncer = make(loop)
        for items in rounds:
            ended: asyncio.Future[OSError | None] = loop.create_future()
            syncer.start(items, ended.set_result)
            async with asyncio.timeout(20):
                outcomes.append(str(await ended))
        syncer.close()

    asyncio.run(run())
    return outcomes


def real_files(directory: Path, count: int) -> list[RealFile]:
    disk = RealDisk()
    files = [disk.open(str(directory / f"{number}.log"), create=True) for number in range(count)]
    for file in files:
        file.append([b"content"])
    return files


def test_plain_files_directories_and_wrappers_share_a_round(
    tmp_path: Path, make: Callable[[Loop], Syncer]
) -> None:
    counted = CountedFile(tmp_path / "counted")
    items: list[Syncable] = [*real_files(tmp_path, 9), counted]
    items.append(NamesSync(RealDisk(), [], [str(tmp_path)]))

    assert sync_rounds(make, items, [], items) == ["None"] * 3
    assert counted.syncs == 2


def test_a_failed_sync_is_reported_and_not_repeated(
    tmp_path: Path, make: Callable[[Loop], Syncer]
) -> None:
    broken = CountedFile(tmp_path / "broken", OSError(errno.EIO, "gone"))

    (outcome,) = sync_rounds(make, [*real_files(tmp_path, 2), broken])

    assert "gone" in outcome
    assert broken.syncs == 1


def test_a_file_that_cannot_be_synced_is_reported(
    tmp_path: Path, make: Callable[[Loop], Syncer]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    pipe = RealFile(str(tmp_path / "pipe"), os.O_RDWR)

    (outcome,) = sync_rounds(make, [*real_files(tmp_path, 2), pipe])

    assert os.strerror(errno.EINVAL) in outcome


def test_a_bug_in_a_sync_on_a_thread_is_a_failure_and_no_stall(tmp_path: Path) -> None:
    broken = CountedFile(tmp_path / "broken", LookupError("bug"))

    assert "bug" in sync_rounds(ThreadSyncer, [broken])[0]


@linux_only
def test_more_files_than_the_kernel_takes_at_once_are_all_synced(tmp_path: Path) -> None:
    aio = KernelAio(3)
    submitted: list[int] = []
    submit = aio.submit

    def watch(descriptors: Sequence[int]) -> int:
        submitted.extend(descriptors)
        return submit(descriptors)

    aio.submit = watch  # type: ignore[method-assign]
    files = real_files(tmp_path, 20)

    assert sync_rounds(lambda loop: KernelSyncer(loop, aio), files) == ["None"]
    assert sorted(submitted) == sorted(file.fileno() for file in files)


class FakeAio(KernelAio):
    """Reports what the test wants: a disk that fails after it has taken the work."""

    def __init__(self, results: Iterator[int]) -> None:
        super().__init__(4)
        self._results = results

    def reap(self) -> list[Ended]:
        return [Ended(ended.descriptor, next(self._results)) for ended in super().reap()]


@linux_only
def test_a_sync_that_the_kernel_reports_as_failed_fails_the_list(tmp_path: Path) -> None:
    results = iter([0, errno.EIO, *[0] * 20])
    files = real_files(tmp_path, 9)

    (outcome,) = sync_rounds(lambda loop: KernelSyncer(loop, FakeAio(results)), files)

    assert os.strerror(errno.EIO) in outcome


@linux_only
def test_the_kernel_needs_no_thread_for_plain_files(tmp_path: Path) -> None:
    before = threading.active_count()
    counts: list[int] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        syncer = choose_syncer(loop)
        assert isinstance(syncer, KernelSyncer)
        ended: asyncio.Future[None] = loop.create_future()
        syncer.start(real_files(tmp_path, 3), lambda _: ended.set_result(None))
        await ended
        counts.append(threading.active_count())
        syncer.close()
        syncer.close()

    asyncio.run(run())

    assert counts == [before]


@linux_only
def test_a_list_is_not_done_while_a_wrapper_is_still_syncing(tmp_path: Path) -> None:
    released = threading.Event()

    class Slow(CountedFile):
        def sync(self) -> None:
            assert released.wait(20)
            super().sync()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        aio = KernelAio(4)
        ended_in_kernel = asyncio.Event()
        syncer = KernelSyncer(loop, aio)
        on_ended = syncer._on_ended

        def watch() -> None:
            on_ended()
            ended_in_kernel.set()

        loop.add_reader(aio.eventfd, watch)
        done: asyncio.Future[OSError | None] = loop.create_future()
        syncer.start([*real_files(tmp_path, 1), Slow(tmp_path / "slow")], done.set_result)
        await ended_in_kernel.wait()
        assert not done.done()
        released.set()
        assert await done is None
        syncer.close()

    asyncio.run(run())


def test_threads_are_the_choice_where_the_kernel_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> KernelAio:
        raise PermissionError(errno.EPERM, "sandboxed")

    async def run() -> None:
        syncer = choose_syncer(asyncio.get_running_loop())
        assert isinstance(syncer, ThreadSyncer)
        assert sys.getswitchinterval() == pytest.approx(0.0005)
        syncer.close()

    monkeypatch.setattr(syncers, "KernelAio", refuse)
    usual = sys.getswitchinterval()
    try:
        asyncio.run(run())
    finally:
        sys.setswitchinterval(usual)


@pytest.mark.parametrize("name", ["threads", pytest.param("kernel", marks=linux_only)])
def test_close_waits_for_a_list_and_reports_nothing(tmp_path: Path, name: str) -> None:
    reports: list[object] = []

    async def run() -> None:
        syncer = MAKERS[name](asyncio.get_running_loop())
        syncer.start([*real_files(tmp_path, 4), CountedFile(tmp_path / "c")], reports.append)
        syncer.close()
        await asyncio.sleep(0)

    asyncio.run(run())

    assert not reports
