"""One process at a time on a directory.

This file alone decides how a process takes a directory for itself, and how others see which process
that is: by an advisory lock on a file in the directory, which holds the process id.
"""

import errno
import fcntl
import os
from pathlib import Path

from headwater.base.errors import HeadwaterError
from headwater.base.private import private_opener


class AlreadyLockedError(HeadwaterError):
    """Another process works on the same directory."""


class RealLock:
    """An advisory lock that the kernel drops when the process dies, however it dies."""

    def __init__(self, path: str) -> None:
        """Lock, then write our pid for whoever comes second."""
        self._descriptor = _locked(path)
        while not _is_at(path, self._descriptor):
            # Whoever held it has removed the file meanwhile: this lock would keep nobody out.
            os.close(self._descriptor)
            self._descriptor = _locked(path)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others in."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _locked(path: str) -> int:
    descriptor = private_opener(path, os.O_RDWR | os.O_CREAT)
    try:
        while not _flock(descriptor, fcntl.LOCK_EX):
            _refuse_if_held(path, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_if_held(path: str, descriptor: int) -> None:
    """Tell a holder from those who look, as `lock_holder` does: they let others look."""
    if _flock(descriptor, fcntl.LOCK_SH):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return
    holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    raise AlreadyLockedError(
        f"{Path(path).parent} is in use by process {holder or 'unknown'}",
        hint="stop it (headwater down) or choose another directory with --data",
    )


def _flock(descriptor: int, kind: int) -> bool:
    """Lock without waiting; tell whether nobody was in the way."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        return False
    return True


def _is_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))  # noqa: PTH116 - a pair of them
    except FileNotFoundError:
        return False


def lock_holder(path: str) -> int | None:
    """Return the pid of the process that holds a lock file, or None when nobody does."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if _flock(descriptor, fcntl.LOCK_SH):
            return None
        text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        return int(text) if text.isdecimal() else None
    finally:
        os.close(descriptor)
