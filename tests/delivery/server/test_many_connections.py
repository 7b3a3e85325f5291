"""Ten thousand clients that only hold the line cost a broker little, and the others nothing."""

import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.producer import Producer

IDLE_CONNECTIONS = 10_000
EXTRA_BYTES_MAX = 200_000_000
_SPARE_DESCRIPTORS = 1_000

# A process of its own: what its sockets cost must not be counted for the broker.
HOLDER = """
import resource, socket, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
address = ("127.0.0.1", int(sys.argv[1]))
held = [socket.create_connection(address, timeout=30) for _ in range(int(sys.argv[2]))]
# Each speaks once, so that each has been really accepted and has a name.
ask = bytes.fromhex("0000000a 0012 0000 00000001 0000")
for sock in held:
    sock.sendall(ask)
    assert sock.recv(65536)
print("held", flush=True)
sys.stdin.read()
"""


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


@pytest.fixture
def broker_process(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Run `headwater up`; give its pid and port."""
    command = [str(Path(sys.executable).with_name("headwater")), "up"]
    command += ["--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        ready = re.search(r"127\.0\.0\.1:(\d+)", process.stderr.readline())
        assert ready is not None
        yield process.pid, int(ready[1])
        process.terminate()


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc to read memory")  # noqa: PTH110
def test_ten_thousand_idle_connections(broker_process: tuple[int, int]) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < IDLE_CONNECTIONS + _SPARE_DESCRIPTORS:
        pytest.skip(f"the file limit is {hard}: raise it with ulimit -Hn")
    pid, port = broker_process
    with Cluster(f"127.0.0.1:{port}") as cluster:
        with Producer(cluster, create_topics=True) as producer:
            producer.send("steady", b"before")
        before = resident_bytes(pid)
        command = [sys.executable, "-c", HOLDER, str(port), str(IDLE_CONNECTIONS)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"

            extra = resident_bytes(pid) - before
            with Producer(cluster) as producer:
                producer.send("steady", b"during")
                assert producer.flush()[0].base_offset == 1
            holder.terminate()

    assert extra <= EXTRA_BYTES_MAX
    print(f"{IDLE_CONNECTIONS} connections cost {extra / 1e6:.0f} MB")
