"""Who runs the passes of compaction: processes that come, die and go, and turns of the loop."""

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headwater.base.disk import RealDisk
from headwater.delivery.server import cleaner_worker, cleaners
from headwater.delivery.server.cleaners import Cleaner, Outcome, ProcessCleaner, TurnCleaner
from headwater.log.compaction.job import Cleaned, Job, LastOfProducer
from headwater.testing.memory_disk import MemoryDisk
from tests.log.compaction.helpers import COMPACT, append_pairs, plan, roll
from tests.log.helpers import open_log


def make_job(directory: str, disk: RealDisk | MemoryDisk) -> Job:
    """Return a pass over a log of four records of one key."""
    log = open_log(disk, directory, config=COMPACT)
    for number in range(4):
        append_pairs(log, [(b"k", b"%d" % number)])
    roll(log)
    log.close()
    log = open_log(disk, directory, config=COMPACT)
    job = plan(log)
    assert job is not None
    return job


async def outcome_of(cleaner: Cleaner, job: Job) -> Outcome:
    done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    cleaner.start(job, done.set_result)
    return await asyncio.wait_for(done, 30)


@contextlib.asynccontextmanager
async def process_cleaner(idle_s: float = 60) -> AsyncIterator[ProcessCleaner]:
    cleaner = ProcessCleaner(asyncio.get_running_loop(), idle_s=idle_s)
    try:
        yield cleaner
    finally:
        cleaner.close()


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended, also if nobody has asked for its end yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_pass_in_a_process(tmp_path: Path) -> None:
    job = make_job(str(tmp_path / "t-0"), RealDisk())

    async def run() -> None:
        async with process_cleaner() as cleaner:
            assert cleaner.pid is None
            outcome = await outcome_of(cleaner, job)
            pid = cleaner.pid
            assert isinstance(outcome, Cleaned)
            assert outcome.dropped_records == 3
            assert isinstance(await outcome_of(cleaner, job), Cleaned)
            assert cleaner.pid == pid

    asyncio.run(run())
    assert list((tmp_path / "t-0").glob("*.cleaned"))


def test_a_job_may_be_larger_than_a_pipe_holds(tmp_path: Path) -> None:
    job = make_job(str(tmp_path / "t-0"), RealDisk())
    many = [LastOfProducer(number, 0, number) for number in range(50_000)]
    large = dataclasses.replace(job, producers=many)
    assert len(large.encode()) > 1 << 19

    async def run() -> None:
        async with process_cleaner() as cleaner:
            assert isinstance(await outcome_of(cleaner, large), Cleaned)

    asyncio.run(run())


def test_a_pass_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    job = make_job(str(tmp_path / "t-0"), RealDisk())
    (tmp_path / "t-0" / "00000000000000000000.log").unlink()

    async def run() -> None:
        async with process_cleaner() as cleaner:
            outcome = await outcome_of(cleaner, job)
            assert isinstance(outcome, str)
            assert "No such file" in outcome
            # The process itself is none the worse for it.
            assert cleaner.pid is not None

    asyncio.run(run())


def test_a_killed_process_costs_one_pass(tmp_path: Path) -> None:
    job = make_job(str(tmp_path / "t-0"), RealDisk())

    async def run() -> None:
        async with process_cleaner() as cleaner:
            done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            cleaner.start(job, done.set_result)
            assert cleaner.pid is not None
            os.kill(cleaner.pid, signal.SIGKILL)
            outcome = await asyncio.wait_for(done, 30)
            assert isinstance(outcome, str)
            assert "ended with -9" in outcome
            assert isinstance(await outcome_of(cleaner, job), Cleaned)

    asyncio.run(run())


class Bell(logging.Handler):
    """Rings when something is logged."""

    def __init__(self, event: asyncio.Event) -> None:
        super().__init__()
        self._event = event

    def emit(self, record: logging.LogRecord) -> None:
        del record
        self._event.set()


def test_a_process_that_is_stopped_is_complained_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = make_job(str(tmp_path / "t-0"), RealDisk())

    async def run() -> None:
        loop = asyncio.get_running_loop()
        cleaner = ProcessCleaner(loop, silence_s=0.2)
        heard = asyncio.Event()
        told = Bell(heard)
        cleaners.logger.addHandler(told)
        try:
            done: asyncio.Future[Outcome] = loop.create_future()
            cleaner.start(job, done.set_result)
            assert cleaner.pid is not None
            os.kill(cleaner.pid, signal.SIGSTOP)
            await heard.wait()
            assert not done.done()
            os.kill(cleaner.pid, signal.SIGCONT)
            assert isinstance(await asyncio.wait_for(done, 30), Cleaned)
        finally:
            cleaners.logger.removeHandler(told)
            cleaner.close()

    asyncio.run(asyncio.wait_for(run(), 60))
    (entry,) = caplog.records
    assert entry.levelname == "WARNING"
    assert "compaction of t-0 has not got on" in entry.message


def test_a_pass_tells_that_it_gets_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = RealDisk()
    log = open_log(disk, str(tmp_path / "t-0"), config=COMPACT)
    for number in range(12):
        append_pairs(log, [(b"%d" % number, bytes(900_000))])
    roll(log)
    job = plan(log)
    assert job is not None
    told: list[None] = []
    cleaner_worker.run_pass(disk, job, lambda: told.append(None))
    assert not told, "it takes less than a few seconds"
    monkeypatch.setattr(cleaner_worker, "_PULSE_S", 0.0)
    cleaner_worker.run_pass(disk, job, lambda: told.append(None))
    assert told
    log.close()


def test_a_process_that_gets_on_is_left_in_peace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = make_job(str(tmp_path / "t-0"), RealDisk())

    async def run() -> None:
        loop = asyncio.get_running_loop()
        cleaner = ProcessCleaner(loop, silence_s=0.5)
        reading, writing = os.pipe()
        try:
            done: asyncio.Future[Outcome] = loop.create_future()
            cleaner.start(job, done.set_result)
            assert cleaner._process is not None
            assert cleaner._process.stdout is not None
            # What it says is said in its place, so that it takes as long as we like.
            os.kill(cleaner._process.pid, signal.SIGSTOP)
            loop.remove_reader(cleaner._process.stdout.fileno())
            os.dup2(reading, cleaner._process.stdout.fileno())
            loop.add_reader(cleaner._process.stdout.fileno(), cleaner._receive)
            for _ in range(10):
                os.write(writing, b".\n.\n")
                await asyncio.sleep(0.1)
            assert not done.done()
            made = Cleaned(clean_offset=4, segments=[], complaints=[])
            os.write(writing, b".\n+" + made.encode())
            assert await asyncio.wait_for(done, 30) == made
        finally:
            cleaner.close()
            os.close(reading)
            os.close(writing)

    asyncio.run(run())
    assert not caplog.records


def test_an_idle_process_ends(tmp_path: Path) -> None:
    job = make_job(str(tmp_path / "t-0"), RealDisk())

    async def run() -> None:
        async with process_cleaner(idle_s=0) as cleaner:
            pids: list[int | None] = []
            done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

            def note(outcome: Outcome) -> None:
                pids.append(cleaner.pid)
                done.set_result(outcome)

            cleaner.start(job, note)
            await asyncio.wait_for(done, 30)
            await asyncio.sleep(0.01)
            assert cleaner.pid is None
            assert pids[0] is not None
            assert is_gone(pids[0])
            assert isinstance(await outcome_of(cleaner, job), Cleaned)

    asyncio.run(run())


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_process_ends_with_a_broker_that_is_killed(tmp_path: Path) -> None:
    job = make_job(str(tmp_path / "t-0"), RealDisk())
    (tmp_path / "job").write_bytes(job.encode())
    program = (
        "import asyncio, os, sys, pathlib\n"
        "from headwater.delivery.server.cleaners import ProcessCleaner\n"
        "from headwater.log.compaction.job import Job\n"
        "async def run():\n"
        "    cleaner = ProcessCleaner(asyncio.get_running_loop())\n"
        "    job = Job.decode(pathlib.Path(sys.argv[1]).read_bytes())\n"
        "    cleaner.start(job, lambda outcome: print(cleaner.pid, flush=True))\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(run())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "job")], stdout=subprocess.PIPE
    ) as broker:
        assert broker.stdout is not None
        pid = int(broker.stdout.readline())
        assert not is_gone(pid)
        broker.kill()
    deadline = time.monotonic() + 20
    while not is_gone(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_pass_in_turns_of_the_loop() -> None:
    disk = MemoryDisk()
    job = make_job("/t-0", disk)

    async def run() -> None:
        cleaner = TurnCleaner(asyncio.get_running_loop(), disk)
        outcome = await outcome_of(cleaner, job)
        assert isinstance(outcome, Cleaned)
        assert outcome.dropped_records == 3
        disk.remove("/t-0/00000000000000000000.log")
        assert isinstance(await outcome_of(cleaner, job), str)
        cleaner.close()

    asyncio.run(run())
