"""The lock on a directory, between real processes."""

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headwater.base.directory_lock import AlreadyLockedError, lock_holder
from headwater.base.disk import RealDisk


def test_refusal_names_the_process_that_holds_the_lock(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    program = (
        "import sys; from headwater.base.disk import RealDisk\n"
        "lock = RealDisk().lock(sys.argv[1]); print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(AlreadyLockedError, match=f"process {holder.pid}$"):
            RealDisk().lock(path)
        holder.kill()
        holder.wait()

    RealDisk().lock(path).release()


def test_looking_for_the_holder_blocks_no_lock(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    with path.open("w") as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)
        gone = threading.Timer(0.1, fcntl.flock, (looker, fcntl.LOCK_UN))
        gone.start()
        lock = RealDisk().lock(str(path))
        gone.join()
    assert lock_holder(str(path)) == os.getpid()
    lock.release()
    assert lock_holder(str(path)) is None
