"""A broker compacts while it serves: readers notice nothing, and nothing stops it."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.base.disk import RealDisk
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.consumer import Consumer
from headwater.delivery.client.producer import Producer
from headwater.delivery.server.cleaners import ProcessCleaner
from headwater.log.checkpoints import read_offsets
from headwater.testing.broker import EmbeddedBroker
from headwater.testing.memory_disk import MemoryDisk

QUICK = {"log.cleaner.backoff.ms": "20", "log.retention.check.interval.ms": "50"}
COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}
KEYS = 50
VALUE = bytes(20_000)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def produce(address: str, rounds: int) -> None:
    """Write every key once a round; a segment holds about one round."""
    with Cluster(address) as cluster, Producer(cluster) as producer:
        for number in range(rounds):
            for key in range(KEYS):
                producer.send("t", b"%d " % number + VALUE, key=b"%d" % key)


def clean_offset(data: Path) -> int:
    path = data / "log" / "cleaner-offset-checkpoint"
    return read_offsets(RealDisk(), str(path)).get(("t", 0), 0)


def read_all(address: str) -> dict[int, tuple[bytes, bytes]]:
    """Read everything below the high watermark: key and value by offset."""
    found: dict[int, tuple[bytes, bytes]] = {}
    place = ("t", 0)
    with Cluster(address) as cluster:
        consumer = Consumer(cluster)
        consumer.assign({place: 0})
        while consumer.positions[place] < consumer.high_watermarks.get(place, 1):
            for message in consumer.poll(0.1):
                assert message.key is not None
                assert message.value is not None
                assert message.offset not in found
                found[message.offset] = message.key, message.value
    return found


def check_places(found: dict[int, tuple[bytes, bytes]]) -> None:
    """Every record is where it was written, whole."""
    for offset, (key, value) in found.items():
        number, place = divmod(offset, KEYS)
        assert (key, value) == (b"%d" % place, b"%d " % number + VALUE)


def newest(found: dict[int, tuple[bytes, bytes]]) -> dict[bytes, int]:
    return {key: offset // KEYS for offset, (key, _) in sorted(found.items())}


def log_bytes(data: Path) -> int:
    return sum(path.stat().st_size for path in (data / "log" / "t-0").glob("*.log"))


def create(address: str, **configs: str) -> None:
    with Cluster(address) as cluster:
        admin.create_topic(cluster, "t", partitions=1, configs={**COMPACT, **configs})


def test_a_topic_becomes_small_and_stays_right(tmp_path: Path) -> None:
    with EmbeddedBroker(data_directory=str(tmp_path), settings=QUICK) as broker:
        address = broker.bootstrap_servers
        create(address)
        produce(address, 8)
        wait_for(lambda: clean_offset(tmp_path) >= 6 * KEYS, "it is never cleaned")
        wait_for(lambda: log_bytes(tmp_path) < 4 * KEYS * len(VALUE), "nothing is removed")
        found = read_all(address)
    check_places(found)
    assert newest(found) == {b"%d" % key: 7 for key in range(KEYS)}
    # The same after a start that trusts the files, and after one that does not.
    for clean in (True, False):
        if not clean:
            (tmp_path / "log" / ".kafka_cleanshutdown").unlink()
        with EmbeddedBroker(
            data_directory=str(tmp_path), settings={"log.cleaner.enable": "false"}
        ) as broker:
            assert read_all(broker.bootstrap_servers) == found


def test_readers_notice_nothing(tmp_path: Path) -> None:
    with EmbeddedBroker(data_directory=str(tmp_path), settings=QUICK) as broker:
        address = broker.bootstrap_servers
        create(address)
        written = 0
        failures: list[BaseException] = []
        scans = 0
        stop = threading.Event()

        def read_on() -> None:
            nonlocal scans
            try:
                while not stop.is_set():
                    floor = written - 1
                    found = read_all(address)
                    check_places(found)
                    rounds = newest(found)
                    assert all(rounds[b"%d" % key] >= floor for key in range(KEYS) if floor >= 0)
                    scans += 1
            except BaseException as error:  # noqa: BLE001 - told by the test's own thread
                failures.append(error)

        reader = threading.Thread(target=read_on)
        reader.start()
        passes = broker.node.broker.store.compaction
        with Cluster(address) as cluster, Producer(cluster) as producer:
            for number in range(15):
                for key in range(KEYS):
                    producer.send("t", b"%d " % number + VALUE, key=b"%d" % key)
                producer.flush()
                written = number + 1
        wait_for(lambda: passes.passes >= 2 or bool(failures), "it is never cleaned")
        stop.set()
        reader.join()
    assert failures == []
    assert scans > 0


def test_a_killed_cleaner_is_told_and_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker(data_directory=str(tmp_path), settings=QUICK) as broker:
        address = broker.bootstrap_servers
        assert broker.node.cleaning is not None
        (cleaner,) = broker.node.cleaning.cleaners
        assert isinstance(cleaner, ProcessCleaner)
        create(address)
        produce(address, 4)
        for _ in range(2):
            wait_for(lambda: cleaner.pid is not None, "no process is started")
            pid = cleaner.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda before=pid: cleaner.pid != before, "nobody notices")  # type: ignore[misc]
            produce(address, 2)
        wait_for(lambda: clean_offset(tmp_path) > 0, "it is never cleaned")
        found = read_all(address)
        pid = cleaner.pid
    assert "compaction of t-0 is put off: the process that did it ended with -9" in caplog.text
    # The latest round is the last of the eight; each call of `produce` counts from 0.
    assert {key: offset // KEYS for offset, (key, _) in sorted(found.items())} == {
        b"%d" % key: 7 for key in range(KEYS)
    }
    assert pid is None or not Path(f"/proc/{pid}").exists()


def test_a_topic_that_is_deleted_meanwhile_harms_nobody(tmp_path: Path) -> None:
    with EmbeddedBroker(data_directory=str(tmp_path), settings=QUICK) as broker:
        address = broker.bootstrap_servers
        for _ in range(3):
            create(address)
            produce(address, 3)
            with Cluster(address) as cluster:
                admin.delete_topic(cluster, "t")
        create(address)
        produce(address, 4)
        wait_for(lambda: clean_offset(tmp_path) > 0, "it is never cleaned")
        found = read_all(address)
        assert not broker.node.failed.done()
    check_places(found)
    assert newest(found) == {b"%d" % key: 3 for key in range(KEYS)}
    shutil.rmtree(tmp_path)


def test_committed_offsets_stay_few(tmp_path: Path) -> None:
    """The broker's own topics are compacted too, so that a start does not take ever longer."""
    settings = {**QUICK, "offsets.topic.segment.bytes": str(1 << 20)}
    path = str(tmp_path / "log" / "cleaner-offset-checkpoint")
    places = [("t", number) for number in range(400)]
    with EmbeddedBroker(data_directory=str(tmp_path), settings=settings) as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            admin.create_topic(cluster, "t", partitions=len(places), configs={})
            for number in range(60):
                admin.commit_offsets(cluster, "g", dict.fromkeys(places, number))
        wait_for(
            lambda: read_offsets(RealDisk(), path).get(("__consumer_offsets", 0), 0) > 0,
            "it is never cleaned",
        )
    directory = tmp_path / "log" / "__consumer_offsets-0"
    left = sum(file.stat().st_size for file in directory.glob("*.log"))
    assert left < 2 << 20
    with (
        EmbeddedBroker(data_directory=str(tmp_path), settings=settings) as broker,
        Cluster(broker.bootstrap_servers) as cluster,
    ):
        assert admin.committed_offsets(cluster, "g") == dict.fromkeys(places, 59)


def test_any_other_disk_is_compacted_in_turns_of_the_loop() -> None:
    disk = MemoryDisk()
    with EmbeddedBroker(data_directory="/data", settings=QUICK, disk=disk) as broker:
        address = broker.bootstrap_servers
        create(address)
        produce(address, 4)
        passes = broker.node.broker.store.compaction
        wait_for(lambda: passes.passes > 0, "it is never cleaned")
        found = read_all(address)
    check_places(found)
    assert newest(found) == {b"%d" % key: 3 for key in range(KEYS)}
    assert len(found) < 4 * KEYS
