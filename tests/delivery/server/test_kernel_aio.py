"""The kernel's AIO, judged by the kernel's own account of dirty pages."""

import ctypes
import errno
import os
import select
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.delivery.server.kernel_aio import Ended, KernelAio

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernel AIO is Linux's")

# cachestat(2), the same number on every machine, since Linux 6.5.
_CACHESTAT = 451
_CACHESTAT_RANGE = struct.Struct("<QQ")
_CACHESTAT_RESULT = struct.Struct("<QQQQQ")


def unsynced_pages(descriptor: int) -> int:
    """Return how many pages of a file are dirty or on their way to the disk."""
    libc = ctypes.CDLL(None, use_errno=True)
    whole = _CACHESTAT_RANGE.pack(0, 0)
    result = ctypes.create_string_buffer(_CACHESTAT_RESULT.size)
    if libc.syscall(ctypes.c_long(_CACHESTAT), descriptor, whole, result, 0) != 0:
        pytest.skip("needs cachestat(2), Linux 6.5")
    _, dirty, writeback, _, _ = _CACHESTAT_RESULT.unpack(result.raw)
    return int(dirty + writeback)


@pytest.fixture
def aio() -> Iterator[KernelAio]:
    made = KernelAio(8)
    yield made
    made.close()


def reap(aio: KernelAio, count: int) -> list[Ended]:
    ended: list[Ended] = []
    while len(ended) < count:
        readable, _, _ = select.select([aio.eventfd], [], [], 20)
        assert readable
        ended += aio.reap()
    return ended


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[int]]:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    opened = [os.open(tmp_path / str(number), flags) for number in range(8)]
    yield opened
    for descriptor in opened:
        os.close(descriptor)


def test_an_ended_sync_leaves_no_page_behind(aio: KernelAio, files: list[int]) -> None:
    for descriptor in files:
        os.write(descriptor, b"x" * 10_000)
    if not all(unsynced_pages(descriptor) for descriptor in files):
        pytest.skip("this file system keeps no dirty pages")

    assert aio.submit(files) == 8
    ended = reap(aio, 8)

    assert sorted(ended) == [Ended(descriptor, 0) for descriptor in sorted(files)]
    assert [unsynced_pages(descriptor) for descriptor in files] == [0] * 8


def test_nothing_to_reap_is_no_wait(aio: KernelAio) -> None:
    assert aio.reap() == []


def test_a_refused_descriptor_stops_the_queue_before_it(aio: KernelAio, files: list[int]) -> None:
    reader, writer = os.pipe()
    try:
        assert aio.submit([files[0], files[1], reader, files[2]]) == 2
        assert len(reap(aio, 2)) == 2
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            aio.submit([reader])
    finally:
        os.close(reader)
        os.close(writer)


def test_a_descriptor_closed_in_flight_is_still_synced(aio: KernelAio, tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "short-lived", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, b"content")
    aio.submit([descriptor])
    os.close(descriptor)

    assert reap(aio, 1) == [Ended(descriptor, 0)]


def test_a_negative_result_is_the_number_of_the_error(
    aio: KernelAio, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = struct.pack("<QQqq", 17, 0, -errno.EIO, 0)

    def end_with_an_error(*_: object) -> int:
        ctypes.memmove(aio._events, event, len(event))
        return 1

    monkeypatch.setattr(aio, "_call", end_with_an_error)
    os.eventfd_write(aio.eventfd, 1)

    assert aio.reap() == [Ended(17, errno.EIO)]
    monkeypatch.undo()


def test_another_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    with pytest.raises(OSError, match="pdp11"):
        KernelAio(8)
