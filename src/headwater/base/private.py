"""Files and directories that only their owner may read.

This file alone decides which modes the files and directories have that are made under a data
directory, and when those of an existing directory are changed. Records are in there, and nothing is
encrypted.
"""

import errno
import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
# What a file system says that has no modes (vfat, some network volumes) or is not ours.
_UNCHANGEABLE: Final = frozenset(
    {errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
)

_VERSION: Final = "VERSION"
_OURS: Final = frozenset({_VERSION, "log", "logs", "checkpoints", "lost+found"})
"""What lies in a data directory; the last is in every new volume of ext4."""
_PREFIXES: Final = ("headwater.", ".headwater", f"{_VERSION}.")

logger = logging.getLogger(__name__)


def private_opener(path: str, flags: int) -> int:
    """Open a file for Python's ``open``; one that is created is its owner's alone."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def write_private_text(path: Path, text: str) -> None:
    """Write a whole file that is its owner's alone if it is created."""
    with open(path, "w", encoding="utf-8", opener=private_opener) as file:
        file.write(text)


def make_private_directory(path: Path) -> None:
    """Make a directory and those above it; those that exist stay as they are."""
    if not path.exists():
        make_private_directory(path.parent)
    path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)


def others_may_enter(path: Path) -> bool:
    """Tell whether other users can open a directory that is meant to be one user's.

    One with the sticky bit, such as /tmp, is shared on purpose and is not meant here.
    """
    mode = stat.S_IMODE(path.stat().st_mode)
    return bool(mode & _OTHERS) and not mode & stat.S_ISVTX


def strangers(names: Iterable[str]) -> list[str]:
    """Return what in a data directory is not ours; nothing if it has been ours before."""
    found = set(names)
    if _VERSION in found:
        return []
    return sorted(name for name in found - _OURS if not name.startswith(_PREFIXES))


def restrict_data_directory(path: Path) -> None:
    """Restrict a data directory, unless it holds what is somebody else's."""
    if others_may_enter(path) and (found := strangers(each.name for each in path.iterdir())):
        logger.warning(
            "other users can open %s, which also holds %s; its mode was not changed: choose a "
            "directory of its own with --data, or run chmod 700 on it",
            path,
            found[0],
        )
        return
    restrict_directory(path)


def restrict_directory(path: Path) -> bool:
    """Keep all users but the owner out of a directory, and say so if some could look in.

    What is in it needs no change: nobody gets there any more. One that is shared on purpose stays
    as it is, and so does one whose file system or owner lets nobody change modes; that is said.

    Returns:
        Whether only its owner can open it now.
    """
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & _OTHERS:
        return True
    if mode & stat.S_ISVTX:
        logger.warning(
            "%s is shared (mode %o) and stays so: choose a directory of its own with --data",
            path,
            mode,
        )
        return False
    try:
        path.chmod(mode & ~_OTHERS)
    except OSError as error:
        if error.errno not in _UNCHANGEABLE:
            raise
        logger.warning(
            "other users can open %s (mode %03o), and that cannot be changed: %s; ask its owner "
            "to run chmod 700 on it, or choose a directory on another file system",
            path,
            mode,
            error.strerror,
        )
        return False
    logger.warning("other users could open %s (mode %03o); now only its owner can", path, mode)
    return True
