"""Reading a file past the page cache, on Linux.

This file alone decides how such reads are made: with O_DIRECT, into memory and from places that are
aligned to blocks. It opens and closes nothing.
"""

import fcntl
import mmap
import os
from typing import Final

_BLOCK_BYTES: Final = 4096
"""The largest block of a disk: address, size and place of a read are multiples of it."""

_BUFFER_BYTES: Final = (4 << 20) + _BLOCK_BYTES
"""Room for the 4 MiB that a scan takes at once, from any place in a block on."""


class DirectReader:
    """Reads from an open descriptor that is used for nothing else."""

    __slots__ = ("_buffer", "_descriptor")

    def __init__(self, descriptor: int) -> None:
        """Set O_DIRECT on the descriptor.

        Raises:
            OSError: EINVAL: the file system cannot do it; ENOMEM: there is no memory for it.
        """
        # First, because it may fail: the descriptor must not be left behind with a flag set.
        self._buffer = mmap.mmap(-1, _BUFFER_BYTES)
        self._descriptor = descriptor
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)

    def read(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes at `position`; shorter only at the end of the file.

        Raises:
            OSError: The device failed; EINVAL where it wants larger blocks than any that we know.
        """
        chunks: list[bytes] = []
        while size > 0:
            skipped = position % _BLOCK_BYTES
            blocks = -(-(skipped + size) // _BLOCK_BYTES)
            view = memoryview(self._buffer)[: blocks * _BLOCK_BYTES]
            count = os.preadv(self._descriptor, (view,), position - skipped)
            chunk = bytes(view[skipped : min(count, skipped + size)])
            chunks.append(chunk)
            position += len(chunk)
            size -= len(chunk)
            # A read that comes back short may have met a bad block: only an empty one is the end.
            if not chunk:
                break
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def stop(self) -> None:
        """Let the descriptor be read through the page cache again."""
        flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
