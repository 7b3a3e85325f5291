"""The way out of a connection: bytes and file ranges, in order, without blocking.

This file alone decides how bytes leave a socket. Large file ranges go by ``sendfile``, small ones
are read and joined with their neighbours; a range that is not in the page cache is first brought
there by another thread, because a read that waits for the disk would stop every other client.

``os.sendfile`` is given the position explicitly and a descriptor of its own, so that it can never
move the place where the appender writes.
"""

import os
import socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol

# Below this a read and a joined send cost less than two system calls of their own.
_SENDFILE_BYTES_MIN = 32 * 1024
# The most that one sendfile is asked for: the unit whose presence in memory is checked.
_SENDFILE_BYTES_MAX = 512 * 1024
# The most buffers one sendmsg takes; Linux allows 1024 (IOV_MAX).
_BUFFERS_MAX = 256

Buffer = bytes | bytearray | memoryview


class FileExtent(Protocol):
    """A range of a file, kept readable by whoever holds it."""

    position: int

    def __len__(self) -> int:
        """Count its bytes."""
        ...

    def fileno(self) -> int:
        """Return the descriptor, -1 in memory."""
        ...

    def read(self) -> bytes:
        """Return its bytes."""
        ...


class Outbox:
    """What one socket still has to send."""

    __slots__ = (
        "_executor",
        "_failure",
        "_parts",
        "_position",
        "_socket",
        "_warm",
        "_warming",
        "_when_warm",
    )

    def __init__(
        self, sock: socket.socket, executor: Executor, when_warm: Callable[[], None]
    ) -> None:
        """Take a non-blocking socket; ``when_warm`` is called from another thread."""
        self._socket = sock
        self._executor = executor
        self._when_warm = when_warm
        self._parts: deque[Buffer | FileExtent] = deque()
        # How much of a file range at the head is sent already.
        self._position = 0
        self._warming = False
        # The range at the head was just read: it goes out, whatever the page cache says of it.
        self._warm = False
        self._failure: OSError | None = None

    def __bool__(self) -> bool:
        """Tell whether anything is left to send."""
        return bool(self._parts)

    def extend(self, parts: list[Buffer | FileExtent]) -> None:
        """Queue the parts of one answer."""
        self._parts.extend(parts)

    def clear(self) -> None:
        """Forget everything: nobody reads it any more."""
        self._parts.clear()

    def send(self) -> bool:
        """Send as much as the socket takes.

        Returns:
            Whether the socket is full, so that the caller waits until it is writable. False also
            while a range is being brought into memory: then ``when_warm`` will be called.

        Raises:
            OSError: The peer is gone, or the head cannot be read.
        """
        if self._failure is not None:
            raise self._failure
        parts = self._parts
        try:
            while parts and not self._warming:
                head = parts[0]
                if isinstance(head, bytes | bytearray | memoryview):
                    self._send_buffers(head)
                elif len(head) - self._position >= _SENDFILE_BYTES_MIN and head.fileno() >= 0:
                    self._send_file(head)
                else:
                    self._read_into_memory(head)
        except BlockingIOError:
            return True
        return False

    def warmed(self) -> None:
        """The range at the head was read; to be called on the loop's own thread."""
        self._warming = False
        self._warm = True

    def _send_buffers(self, head: Buffer) -> None:
        parts = self._parts
        if len(parts) == 1:
            sent = self._socket.send(head)
            if sent == len(head):
                parts.popleft()
            else:
                parts[0] = memoryview(head)[sent:]
            return
        buffers: list[Buffer] = []
        for part in parts:
            if not isinstance(part, bytes | bytearray | memoryview) or len(buffers) == _BUFFERS_MAX:
                break
            buffers.append(part)
        sent = self._socket.sendmsg(buffers)
        for buffer in buffers:
            if sent < len(buffer):
                parts[0] = memoryview(buffer)[sent:]
                return
            sent -= len(buffer)
            parts.popleft()

    def _send_file(self, extent: FileExtent) -> None:
        length = len(extent)
        count = min(length - self._position, _SENDFILE_BYTES_MAX)
        descriptor = extent.fileno()
        start = extent.position + self._position
        if not self._warm and not (
            _is_resident(descriptor, start) and _is_resident(descriptor, start + count - 1)
        ):
            self._bring_in(extent, start, count)
            return
        # Once: a reader that stays away may find the range gone from memory again.
        self._warm = False
        sent = os.sendfile(self._socket.fileno(), descriptor, start, count)
        if sent == 0:
            # The file is shorter than the range says; the answer cannot be completed truthfully.
            raise OSError(f"range of {length} bytes ended early")
        self._position += sent
        if self._position == length:
            self._position = 0
            self._parts.popleft()

    def _read_into_memory(self, extent: FileExtent) -> None:
        descriptor = extent.fileno()
        if not self._warm and descriptor >= 0 and not _is_resident(descriptor, extent.position):
            self._bring_in(extent, extent.position, len(extent))
            return
        self._warm = False
        data = extent.read()
        if len(data) != len(extent):
            raise OSError(f"range of {len(extent)} bytes ended early")
        self._parts[0] = memoryview(data)[self._position :] if self._position else data
        self._position = 0

    def _bring_in(self, extent: FileExtent, start: int, count: int) -> None:
        self._warming = True

        def read() -> None:
            # The extent is held here so that its descriptor outlives the connection.
            try:
                os.pread(extent.fileno(), count, start)
            except OSError as error:
                self._failure = error
            self._when_warm()

        self._executor.submit(read)


if hasattr(os, "RWF_NOWAIT"):
    _probe = bytearray(1)

    def _is_resident(descriptor: int, position: int) -> bool:
        """Tell whether a read at the position would return without waiting for the disk."""
        try:
            os.preadv(descriptor, [_probe], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True  # this file system cannot tell (tmpfs, overlay): it is memory or a guess
        return True

else:

    def _is_resident(descriptor: int, position: int) -> bool:  # noqa: ARG001 - no way to know
        """Assume so: the platform offers no read that refuses to wait."""
        return True
