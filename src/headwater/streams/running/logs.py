"""The log of a pipeline: a file that outlives its runs.

This file alone decides what a line of it looks like, and that one pipeline's lines stand in its
own file and nowhere else.
"""

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path

from headwater.base.private import make_private_directory, private_opener

_FORM = "%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s"
_TIME = "%Y-%m-%dT%H:%M:%S"
# A hundred lines of batches have some eight thousand bytes.
_TAIL_BYTES = 64 * 1024


class _Utc(logging.Formatter):
    """Writes times in UTC, as everything else does."""

    converter = staticmethod(time.gmtime)


class _File(logging.FileHandler):
    """Lets a line go where there is no room for it: what it says is told elsewhere, too."""

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, opener=private_opener)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name is logging's
        """Keep quiet about a disk that is full; anything else is a mistake of ours."""
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


@contextmanager
def log_file(path: Path, name: str) -> Iterator[logging.Logger]:
    """Give a logger that writes to the file, behind what is there."""
    make_private_directory(path.parent)
    handler = _File(path, encoding="utf-8")
    handler.setFormatter(_Utc(_FORM, _TIME))
    # A dot would make one pipeline's logger the child of another's.
    logger = logging.getLogger(f"{__name__}:{name.replace('.', '/')}")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield logger
    finally:
        logger.removeHandler(handler)
        # Lines for which there was no room are still wanted to be written.
        with suppress(OSError):
            handler.close()


def last_lines(path: Path, count: int, *, whole: bool) -> tuple[list[str], int]:
    """Return the last lines of a log, and the position behind the last one that is whole.

    Args:
        path: The log.
        count: How many.
        whole: Leave out a line that is still being written.
    """
    size = _TAIL_BYTES
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while True:
            file.seek(max(0, end - size))
            text = file.read(min(size, end))
            if size >= end or text.count(b"\n") > count:
                break
            size *= 2
    *lines, rest = text.split(b"\n")
    if rest and not whole:
        lines.append(rest)
    shown = lines[-count:] if count else []
    return [line.decode(errors="replace") for line in shown], end - len(rest)
