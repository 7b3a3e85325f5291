"""Who runs the passes of compaction.

This file alone decides how a job gets to where it is done and how its outcome comes back: by a
process of its own on the machine's disk, or in short turns of the event loop on any other disk,
which no other process could see.

A process is started by the first job, and ended when there has been none for a minute. One that
dies, be it by a kill, costs the pass that it was at; the next job starts another. One that neither
dies nor gets on, because somebody stopped it or the disk hangs, is told of in the log.
"""

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from headwater.base.disk import Disk
from headwater.base.errors import HeadwaterError
from headwater.delivery.server import cleaner_worker
from headwater.log.compaction.cleaner import clean
from headwater.log.compaction.job import Cleaned, Job

Outcome = Cleaned | str
"""What a pass has made, or why it has made nothing."""

_IDLE_S: Final = 60.0
_READ_BYTES: Final = 1 << 16
_SILENCE_S: Final = 300.0
"""A step takes milliseconds, a sync of a large segment on a slow disk some seconds."""

logger = logging.getLogger(__name__)


class Cleaner(Protocol):
    """Runs one pass at a time."""

    def start(self, job: Job, done: Callable[[Outcome], None]) -> None:
        """Begin a pass; `done` is called once, later, unless the cleaner is closed before."""
        ...

    def close(self) -> None:
        """Stop whatever is under way."""
        ...


class TurnCleaner:
    """Runs passes on the event loop, a few megabytes a turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, disk: Disk) -> None:
        """Wait for a job."""
        self._loop = loop
        self._disk = disk
        self._turn: asyncio.Handle | None = None

    def start(self, job: Job, done: Callable[[Outcome], None]) -> None:
        """Begin a pass."""
        steps = clean(self._disk, job)

        def turn() -> None:
            try:
                next(steps)
            except StopIteration as end:
                done(end.value)
            except (OSError, HeadwaterError) as error:
                done(str(error))
            else:
                self._turn = self._loop.call_soon(turn)

        self._turn = self._loop.call_soon(turn)

    def close(self) -> None:
        """Stop whatever is under way."""
        if self._turn is not None:
            self._turn.cancel()


class ProcessCleaner:
    """Runs passes in a process of its own."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        idle_s: float = _IDLE_S,
        silence_s: float = _SILENCE_S,
    ) -> None:
        """Wait for a job; no process is started before there is one.

        Args:
            loop: The broker's.
            idle_s: When a process without a job ends.
            silence_s: When one with a job that tells nothing is complained of.
        """
        self._loop = loop
        self._idle_s = idle_s
        self._silence_s = silence_s
        self._silence: asyncio.TimerHandle | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._done: Callable[[Outcome], None] | None = None
        self._job: Job | None = None
        self._unsent = b""
        self._received = b""
        self._idle: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """The process, if there is one."""
        return None if self._process is None else self._process.pid

    def start(self, job: Job, done: Callable[[Outcome], None]) -> None:
        """Begin a pass."""
        assert self._done is None, "one pass at a time"
        self._done = done
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        try:
            process = self._process or self._spawn()
        except OSError as error:
            self._loop.call_soon(self._finish, f"no process can be started: {error}")
            return
        assert process.stdin is not None
        self._unsent = job.encode()
        self._loop.add_writer(process.stdin.fileno(), self._send)
        self._listen(job)

    def _listen(self, job: Job) -> None:
        """Complain if nothing is heard for long; the pass is not given up, it may yet get on."""
        if self._silence is not None:
            self._silence.cancel()
        self._silence = self._loop.call_later(self._silence_s, self._complain, job)
        self._job = job

    def _complain(self, job: Job) -> None:
        logger.warning(
            "compaction of %s-%d has not got on for %d s: is process %s stopped, or does the disk "
            "hang? If it is killed, the pass is tried again",
            job.topic,
            job.partition,
            self._silence_s,
            self.pid,
        )

    def _spawn(self) -> subprocess.Popen[bytes]:
        """Start the process: with our own package, and with nothing from the working directory."""
        package = Path(cleaner_worker.__file__).parents[3]
        paths = [str(package), os.environ.get("PYTHONPATH", "")]
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-P", "-m", cleaner_worker.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        for pipe in (process.stdin, process.stdout):
            os.set_blocking(pipe.fileno(), False)
        self._process = process
        self._received = b""
        self._loop.add_reader(process.stdout.fileno(), self._receive)
        return process

    def _send(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        descriptor = self._process.stdin.fileno()
        try:
            sent = os.write(descriptor, self._unsent)
        except BlockingIOError:
            return
        except OSError:
            # It has died; the end of its output tells so.
            sent = len(self._unsent)
        self._unsent = self._unsent[sent:]
        if not self._unsent:
            self._loop.remove_writer(descriptor)

    def _receive(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            content = os.read(self._process.stdout.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        if not content:
            code = self._end()
            self._finish(f"the process that did it ended with {code}")
            return
        self._received += content
        if content.endswith(b"\n"):
            *_, line = self._received.splitlines()
            self._received = b""
            if line == cleaner_worker.PULSE:
                assert self._job is not None
                self._listen(self._job)
                return
            self._finish(Cleaned.decode(line[1:]) if line[:1] == b"+" else json.loads(line[1:]))

    def _finish(self, outcome: Outcome) -> None:
        done, self._done, self._job = self._done, None, None
        if self._silence is not None:
            self._silence.cancel()
        if self._process is not None:
            self._idle = self._loop.call_later(self._idle_s, self._end)
        if done is not None:
            done(outcome)

    def _end(self) -> int:
        """End the process and return how it ended."""
        process, self._process = self._process, None
        if process is None:
            return 0
        # Before its pipes close, which it would complain of.
        process.kill()
        for pipe, remove in (
            (process.stdin, self._loop.remove_writer),
            (process.stdout, self._loop.remove_reader),
        ):
            assert pipe is not None
            remove(pipe.fileno())
            with contextlib.suppress(OSError):
                pipe.close()
        return process.wait()

    def close(self) -> None:
        """Stop whatever is under way."""
        self._done = None
        for timer in (self._idle, self._silence):
            if timer is not None:
                timer.cancel()
        self._end()
