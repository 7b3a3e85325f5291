"""The outbox sends every byte in order, whatever the socket and the page cache do."""

import errno
import os
import queue
import random
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headwater.base.disk import RealDisk
from headwater.delivery.server import outbox as outbox_module
from headwater.delivery.server.outbox import Outbox
from headwater.log.extent import FileRange


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.settimeout(10)
        yield ours, theirs


def file_of(tmp_path: Path, content: bytes) -> Callable[[int, int], FileRange]:
    path = tmp_path / "records"
    path.write_bytes(content)
    disk = RealDisk()
    return lambda position, length: FileRange(disk.open_for_reading(str(path)), position, length, 0)


def send_all(outbox: Outbox, theirs: socket.socket, expected: int) -> bytes:
    """Play the event loop: send what the socket takes, read it, go on."""
    received = b""
    while len(received) < expected:
        outbox.send()
        received += theirs.recv(65536)
    return received


@pytest.mark.parametrize("seed", range(5))
def test_buffers_and_ranges_arrive_whole_and_in_order(
    tmp_path: Path,
    pair: tuple[socket.socket, socket.socket],
    executor: ThreadPoolExecutor,
    seed: int,
) -> None:
    dice = random.Random(seed)
    content = dice.randbytes(3_000_000)
    extent = file_of(tmp_path, content)
    ours, theirs = pair
    outbox = Outbox(ours, executor, lambda: None)
    expected = b""
    for _ in range(40):
        if dice.random() < 0.5:
            data = dice.randbytes(dice.randint(1, 5_000))
            outbox.extend([memoryview(data), b"-"])
            expected += data + b"-"
        else:
            position = dice.randrange(2_000_000)
            length = dice.choice([10, 1_000, 40_000, 900_000])
            outbox.extend([extent(position, length)])
            expected += content[position : position + length]

    assert send_all(outbox, theirs, len(expected)) == expected
    assert not outbox


def test_a_range_that_is_not_in_memory_is_read_by_another_thread_first(
    tmp_path: Path,
    pair: tuple[socket.socket, socket.socket],
    executor: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = random.Random(1).randbytes(200_000)
    extent = file_of(tmp_path, content)
    ours, theirs = pair
    warm = threading.Event()
    monkeypatch.setattr(outbox_module, "_is_resident", lambda *_: warm.is_set())
    outbox = Outbox(ours, executor, warm.set)
    outbox.extend([extent(0, 200_000)])

    assert outbox.send() is False
    executor.shutdown(wait=True)
    assert warm.is_set()
    assert outbox
    outbox.warmed()
    assert send_all(outbox, theirs, 200_000) == content


def test_a_range_is_looked_for_in_memory_by_both_ends_of_each_piece(
    tmp_path: Path,
    pair: tuple[socket.socket, socket.socket],
    executor: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pages that are missing between the two are not noticed: the loop reads them itself."""
    piece, length = 512 * 1024, 700_000
    content = random.Random(2).randbytes(length)
    extent = file_of(tmp_path, content)
    ours, theirs = pair
    asked: list[int] = []

    def is_resident(_: int, position: int) -> bool:
        asked.append(position)
        return True

    monkeypatch.setattr(outbox_module, "_is_resident", is_resident)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * length)
    outbox = Outbox(ours, executor, lambda: None)
    outbox.extend([extent(0, length)])
    assert send_all(outbox, theirs, length) == content
    assert asked[:2] == [0, piece - 1]
    # What the socket did not take is looked for again.
    assert asked[1::2] == [min(start + piece, length) - 1 for start in asked[::2]]


def test_a_file_that_is_shorter_than_its_range_breaks_the_connection(
    tmp_path: Path, pair: tuple[socket.socket, socket.socket], executor: ThreadPoolExecutor
) -> None:
    extent = file_of(tmp_path, bytes(1_000))
    outbox = Outbox(pair[0], executor, lambda: None)
    outbox.extend([extent(0, 40_000)])

    with pytest.raises(OSError, match="ended early"):
        outbox.send()


def test_sending_never_moves_the_position_of_the_appending_descriptor(
    tmp_path: Path, pair: tuple[socket.socket, socket.socket], executor: ThreadPoolExecutor
) -> None:
    disk = RealDisk()
    path = str(tmp_path / "records")
    appender = disk.open(path, create=True)
    appender.append([bytes(100_000)])
    before = os.lseek(appender.fileno(), 0, os.SEEK_CUR)
    outbox = Outbox(pair[0], executor, lambda: None)
    outbox.extend([FileRange(disk.open_for_reading(path), 0, 100_000, 0)])
    send_all(outbox, pair[1], 100_000)
    appender.append([b"end"])

    assert before == 100_000
    assert appender.read(3, 100_000) == b"end"


def unreadable(*_: int) -> bytes:
    raise OSError(errno.EIO, "bad sector")


def test_a_range_that_cannot_be_read_breaks_the_connection(
    tmp_path: Path,
    pair: tuple[socket.socket, socket.socket],
    executor: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    extent = file_of(tmp_path, bytes(100_000))
    told = threading.Event()
    monkeypatch.setattr(outbox_module, "_is_resident", lambda *_: False)
    outbox = Outbox(pair[0], executor, told.set)
    monkeypatch.setattr(os, "pread", unreadable)
    outbox.extend([extent(0, 100_000)])

    outbox.send()
    assert told.wait(10)
    outbox.warmed()
    with pytest.raises(OSError, match="sector"):
        outbox.send()


def test_a_file_system_that_cannot_tell_what_is_in_memory_is_sent_from_all_the_same(
    tmp_path: Path,
    pair: tuple[socket.socket, socket.socket],
    executor: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = random.Random(2).randbytes(1_500_000)
    extent = file_of(tmp_path, content)
    ours, theirs = pair
    told: queue.Queue[None] = queue.Queue()
    monkeypatch.setattr(outbox_module, "_is_resident", lambda *_: False)
    outbox = Outbox(ours, executor, lambda: told.put(None))
    outbox.extend([extent(0, 1_490_000), extent(1_490_000, 10_000)])

    received = b""
    while outbox:
        if not outbox.send():
            told.get(timeout=10)
            outbox.warmed()
            outbox.send()
        received += theirs.recv(1 << 20)
    while len(received) < len(content):
        received += theirs.recv(1 << 20)

    assert received == content
