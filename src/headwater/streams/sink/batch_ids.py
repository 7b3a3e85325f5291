"""The transactional ids under which DataFrames are written at once.

This file alone decides which id such a write uses. A broker remembers an id for a week after its
last use, so an id for each write would pile up where `foreachBatch` writes every second. Spark
commits every write in a process of its own, on the driver's machine. So the ids are kept in files
there, and a process takes the first one that no other process uses: there are as many ids as writes
have ever been committed at the same time.

    <temporary directory>/headwater-sink-<user>/ids/<number>         a random name
    <temporary directory>/headwater-sink-<user>/ids/<number>.lock    held by who uses it

The kernel drops the lock of a process that dies, and the next write under the id aborts what that
process left open. The machine's name is part of an id, because a folder may have been copied with
an image.
"""

import contextlib
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headwater.base.directory_lock import AlreadyLockedError, RealLock
from headwater.base.private import make_private_directory, write_private_text
from headwater.streams.sink.errors import StagingError
from headwater.streams.sink.staging import own_root

_FOLDER: Final = "ids"
# A write that finds no free id among so many gets one that is not kept.
_KEPT_MAX: Final = 1_000


@contextlib.contextmanager
def lent_id(directory: str | None = None) -> Iterator[str]:
    """Lend a transactional id that no other write uses meanwhile.

    Args:
        directory: Where this user's folder is; in the temporary directory where none is given.
    """
    with contextlib.ExitStack() as held:
        name = None
        # Without a folder of our own a write is still a write.
        with contextlib.suppress(StagingError, OSError):
            folder = own_root(directory) / _FOLDER
            make_private_directory(folder)
            name = _taken(folder, held)
        yield f"hw.batch-{name or uuid.uuid4()}"


def _taken(folder: Path, held: contextlib.ExitStack) -> str | None:
    for number in range(_KEPT_MAX):
        try:
            lock = RealLock(str(folder / f"{number}.lock"))
        except AlreadyLockedError:
            continue
        held.callback(lock.release)
        path = folder / str(number)
        name = path.read_text(encoding="utf-8") if path.exists() else ""
        if not name:
            name = str(uuid.uuid4())
            write_private_text(path, name)
        return f"{name}-{socket.gethostname()}"
    return None
