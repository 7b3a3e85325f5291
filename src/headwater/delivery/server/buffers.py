"""Memory for requests: reused, and bounded.

This file alone decides how much memory requests may take in all. It hands out byte arrays and
counts them; whoever finds the budget spent stops reading until some are given back. Buffers that
are kept for the next request count too: they are let go when the budget needs their room.
"""

# Buffers of at least this size are worth keeping: smaller ones the allocator serves as fast.
_POOLED_BYTES_MIN = 64 * 1024
_POOLED_BYTES_MAX = 4 * 1024 * 1024
# At most 8 buffers of each power of two from 64 KiB to 4 MiB: 64 MiB if all were in use once.
_POOLED_PER_SIZE_MAX = 8


class RequestMemory:
    """The buffers of all connections together."""

    __slots__ = ("_limit_bytes", "_pool", "pooled_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        """Take the bound on all request bytes at once; -1 means none."""
        self._limit_bytes = limit_bytes
        self._pool: dict[int, list[bytearray]] = {}
        self.used_bytes = 0
        self.pooled_bytes = 0

    def take(self, size: int) -> bytearray:
        """Return a buffer of at least ``size`` bytes, with whatever content."""
        if _POOLED_BYTES_MIN <= size <= _POOLED_BYTES_MAX:
            size = 1 << (size - 1).bit_length()
            pooled = self._pool.get(size)
            if pooled:
                self.pooled_bytes -= size
                self.used_bytes += size
                return pooled.pop()
        self._make_room(size)
        self.used_bytes += size
        return bytearray(size)

    def grow(self, buffer: bytearray, size: int) -> bytearray:
        """Return a longer buffer with the same beginning, the same object where that can be."""
        added = bytes(size - len(buffer))
        self._make_room(len(added))
        self.used_bytes += len(added)
        try:
            buffer.extend(added)
        except BufferError:
            # Somebody still holds a view of its former use, such as the traceback of an error.
            return buffer + added
        return buffer

    def trim(self, buffer: bytearray, size: int) -> None:
        """Take back what lies behind the first ``size`` bytes, if nobody looks at the buffer."""
        spare = len(buffer) - size
        try:
            del buffer[size:]
        except BufferError:
            return
        self.used_bytes -= spare

    def give_back(self, buffer: bytearray) -> None:
        """Let others have the memory."""
        size = len(buffer)
        self.used_bytes -= size
        if _POOLED_BYTES_MIN <= size <= _POOLED_BYTES_MAX and not size & (size - 1):
            pooled = self._pool.setdefault(size, [])
            if len(pooled) < _POOLED_PER_SIZE_MAX and not self._lacks(size):
                pooled.append(buffer)
                self.pooled_bytes += size

    def _make_room(self, size: int) -> None:
        if self.pooled_bytes and self._lacks(size):
            self._pool.clear()
            self.pooled_bytes = 0

    def _lacks(self, size: int) -> bool:
        return 0 <= self._limit_bytes < self.used_bytes + self.pooled_bytes + size

    @property
    def spent(self) -> bool:
        """Whether the budget is used up."""
        return 0 <= self._limit_bytes <= self.used_bytes
