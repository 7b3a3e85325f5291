"""A process that syncs the descriptors it was given, when it is told which.

This file alone knows the bytes between the server and its sync helper. It must not know what
the files are for.
"""

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

_COUNT = struct.Struct("<I")
# The kernel passes at most 253 descriptors in one message.
_DESCRIPTORS_PER_MESSAGE = 250


class Helper:
    """The server's end: a child process that shares the server's descriptors."""

    def __init__(self, descriptors: Sequence[int], threads: int, delay_s: float) -> None:
        """Start the child and pass it all `descriptors`, once."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "benchmarks.group_commit.helper", str(theirs.fileno())]
        command += [str(len(descriptors)), str(threads), str(delay_s)]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()
        self.pid = self._process.pid
        self.socket = ours
        for start in range(0, len(descriptors), _DESCRIPTORS_PER_MESSAGE):
            part = list(descriptors[start : start + _DESCRIPTORS_PER_MESSAGE])
            socket.send_fds(ours, [b"x"], part)
            if ours.recv(1) != b"x":
                message = "the helper did not take the descriptors"
                raise RuntimeError(message)
        ours.setblocking(False)

    def ask(self, indexes: Sequence[int]) -> None:
        """Ask for a sync of the files at `indexes`; one byte comes back when it is done."""
        self.socket.sendall(struct.pack(f"<I{len(indexes)}I", len(indexes), *indexes))

    def close(self) -> None:
        """End the child."""
        self.socket.close()
        self._process.wait()


def _receive(link: socket.socket, size: int) -> bytes:
    return link.recv(size, socket.MSG_WAITALL)


def main(arguments: Sequence[str]) -> None:
    """Serve until the server hangs up."""
    link = socket.socket(fileno=int(arguments[0]))
    count, threads, delay_s = int(arguments[1]), int(arguments[2]), float(arguments[3])
    descriptors: list[int] = []
    while len(descriptors) < count:
        descriptors += socket.recv_fds(link, 1, _DESCRIPTORS_PER_MESSAGE)[1]
        link.sendall(b"x")

    def sync(index: int) -> None:
        if delay_s:
            time.sleep(delay_s)
        os.fdatasync(descriptors[index])

    pool = ThreadPoolExecutor(threads)
    while header := _receive(link, _COUNT.size):
        (wanted,) = _COUNT.unpack(header)
        indexes = struct.unpack(f"<{wanted}I", _receive(link, 4 * wanted))
        if threads == 1 or wanted == 1:
            for index in indexes:
                sync(index)
        else:
            list(pool.map(sync, indexes, chunksize=1))
        try:
            link.sendall(b"x")
        except BrokenPipeError:
            return


if __name__ == "__main__":
    main(sys.argv[1:])
