"""Files and directories that only their owner may read.

This file alone decides which modes the files and directories have that are made under a data
directory, and when those of an existing directory are changed. Records are in there, and nothing is
encrypted.
"""

import logging
import os
import stat
from pathlib import Path
from typing import Final

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO

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


def restrict_directory(path: Path) -> None:
    """Keep all users but the owner out of a data directory, and say so if some could look in.

    What is in it needs no change: nobody gets there any more.
    """
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & _OTHERS:
        return
    try:
        path.chmod(mode & ~_OTHERS)
    except PermissionError:
        logger.warning(
            "other users can open %s (mode %03o), which belongs to another user: "
            "ask them to run chmod 700 on it",
            path,
            mode,
        )
        return
    logger.warning("other users could open %s (mode %03o); now only its owner can", path, mode)
