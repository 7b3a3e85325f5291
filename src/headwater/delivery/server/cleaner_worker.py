"""The process that compacts logs, seen from inside.

This file alone decides how a pass is run apart from the broker: a job comes as a line on standard
input, its result goes as a line to standard output, one at a time. It opens no segment for writing
but new ones, and puts none in place.

    .           it gets on; at most every few seconds
    + {...}     the segments are made: `Cleaned`
    - "..."     they are not, and why

The broker's end of the pipe closes with the broker, however it ends, and then this process ends
too, whatever it is doing: what it leaves is removed when the log is next opened.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable

from headwater.base.disk import Disk, RealDisk
from headwater.base.errors import HeadwaterError
from headwater.log.compaction.cleaner import clean
from headwater.log.compaction.job import Cleaned, Job

_NICENESS = 10
"""Compaction can wait: clients come first. Disk schedulers derive their priority from it too."""


_PULSE_S = 5.0
PULSE = b"."


def run_pass(disk: Disk, job: Job, getting_on: Callable[[], None]) -> Cleaned:
    """Run a pass to its end; `getting_on` is called now and then.

    Raises:
        OSError: The disk is full or has failed.
    """
    steps = clean(disk, job)
    due_s = time.monotonic() + _PULSE_S
    while True:
        try:
            next(steps)
            if time.monotonic() >= due_s:
                due_s = time.monotonic() + _PULSE_S
                getting_on()
        except StopIteration as done:
            cleaned: Cleaned = done.value
            return cleaned


def answer(line: bytes) -> bytes:
    """Do what a line asks for; the answer is a line, whatever happens."""
    try:
        return b"+" + run_pass(RealDisk(), Job.decode(line), _pulse).encode()
    except (OSError, HeadwaterError, MemoryError) as error:
        return b"-" + json.dumps(f"{error}" or type(error).__name__).encode() + b"\n"


def _pulse() -> None:
    sys.stdout.buffer.write(PULSE + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """Take jobs until the broker is gone."""
    # Ctrl-C goes to every process of a terminal; the broker decides when it is over.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    while True:
        sys.stdout.buffer.write(answer(jobs.get()))
        sys.stdout.buffer.flush()


def _listen(jobs: "queue.SimpleQueue[bytes]") -> None:
    for line in sys.stdin.buffer:
        jobs.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
