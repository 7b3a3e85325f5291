"""Queue fdatasync calls in the Linux kernel and learn of their end through a descriptor.

This file alone knows the layout of ``struct iocb`` and ``struct io_event`` and the numbers of the
system calls (man 2 io_submit). It must not know what the descriptors are for, nor the event loop.

Kernel AIO was chosen over io_uring because container runtimes forbid io_uring by default; here
it does one thing, IOCB_CMD_FDSYNC, which the kernel runs on its own workers since Linux 4.18.
"""

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Sequence
from typing import NamedTuple


class _Calls(NamedTuple):
    io_setup: int
    io_destroy: int
    io_submit: int
    io_getevents: int


_CALLS = {
    "x86_64": _Calls(io_setup=206, io_destroy=207, io_submit=209, io_getevents=208),
    "aarch64": _Calls(io_setup=0, io_destroy=1, io_submit=2, io_getevents=4),
}
_IOCB_CMD_FDSYNC = 3
_IOCB_FLAG_RESFD = 1
# data, key, rw_flags, opcode, priority, descriptor, buffer, length, offset, reserved, flags, resfd.
_IOCB = struct.Struct("<QIiHhIQQqQII")
# data, object, result, result2.
_IO_EVENT = struct.Struct("<QQqq")


class Ended(NamedTuple):
    """A sync that is over: its descriptor, and 0 or the number of the error."""

    descriptor: int
    errno: int


class KernelAio:
    """One AIO context; ``eventfd`` becomes readable when syncs have ended.

    Raises OSError when the kernel, a sandbox or the machine does not offer it.
    """

    def __init__(self, capacity: int) -> None:
        """Set up a context for at most ``capacity`` syncs in flight."""
        calls = _CALLS.get(platform.machine()) if sys.platform == "linux" else None
        # The structures above are little-endian and 64 bits wide, as both machines are.
        if calls is None or sys.maxsize < 2**32 or sys.byteorder != "little":
            raise OSError(f"no kernel AIO on {sys.platform} {platform.machine()}")
        self._calls = calls
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.restype = ctypes.c_long
        self.capacity = capacity
        self._capacity = ctypes.c_long(capacity)
        self._context = ctypes.c_ulong(0)
        self._call(calls.io_setup, self._capacity, ctypes.byref(self._context))
        self.eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._iocbs = ctypes.create_string_buffer(_IOCB.size * capacity)
        first = ctypes.addressof(self._iocbs)
        addresses = range(first, first + _IOCB.size * capacity, _IOCB.size)
        self._pointers = (ctypes.c_uint64 * capacity)(*addresses)
        self._events = ctypes.create_string_buffer(_IO_EVENT.size * capacity)

    def _call(self, number: int, *arguments: object) -> int:
        result = int(self._syscall(ctypes.c_long(number), *arguments))
        if result < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return result

    def submit(self, descriptors: Sequence[int]) -> int:
        """Queue an fdatasync of each descriptor; return how many of the first were queued.

        Fewer than all are queued when the kernel refuses one; OSError when it refuses the first.
        The kernel keeps the open file, so closing a descriptor later does no harm.
        """
        assert 0 < len(descriptors) <= self.capacity
        pack_into, iocbs, eventfd = _IOCB.pack_into, self._iocbs, self.eventfd
        place = 0
        for descriptor in descriptors:
            fields = (descriptor, 0, 0, _IOCB_CMD_FDSYNC, 0, descriptor, 0, 0, 0, 0)
            pack_into(iocbs, place, *fields, _IOCB_FLAG_RESFD, eventfd)
            place += _IOCB.size
        count = ctypes.c_long(len(descriptors))
        return self._call(self._calls.io_submit, self._context, count, self._pointers)

    def reap(self) -> list[Ended]:
        """Return the syncs that have ended since the last call; never waits."""
        try:
            os.eventfd_read(self.eventfd)
        except BlockingIOError:
            return []
        wanted = (ctypes.c_long(0), self._capacity, self._events, None)
        count = self._call(self._calls.io_getevents, self._context, *wanted)
        unpack_from = _IO_EVENT.unpack_from
        ended = []
        for place in range(0, count * _IO_EVENT.size, _IO_EVENT.size):
            descriptor, _, result, _ = unpack_from(self._events, place)
            ended.append(Ended(descriptor, -result))
        return ended

    def close(self) -> None:
        """Wait for the syncs in flight and give everything back; harmless when repeated."""
        if self.eventfd >= 0:
            self._call(self._calls.io_destroy, self._context)
            os.close(self.eventfd)
            self.eventfd = -1
