"""Room on the disk comes back when it is asked for, and what is missing is told."""

import errno
import logging
import shutil
import time
from pathlib import Path

import pytest

from headwater.base.disk import may_pass
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.producer import Producer
from headwater.testing.broker import EmbeddedBroker

SMALL_SEGMENTS = {"segment.bytes": "1048576"}


def fill(address: str, records: int) -> None:
    with Cluster(address) as cluster:
        admin.create_topic(cluster, "t", partitions=1, configs=SMALL_SEGMENTS)
        with Producer(cluster) as producer:
            for _ in range(records):
                producer.send("t", bytes(100_000))


def segments(data: Path) -> list[str]:
    return sorted(path.name for path in (data / "log" / "t-0").glob("*.log*"))


def test_deleted_records_give_their_room_back_at_once(tmp_path: Path) -> None:
    with EmbeddedBroker(data_directory=str(tmp_path)) as broker:
        fill(broker.bootstrap_servers, 60)
        before = segments(tmp_path)
        with Cluster(broker.bootstrap_servers) as cluster:
            admin.delete_records(cluster, {("t", 0): 50})
        deadline = time.monotonic() + 10
        while len(segments(tmp_path)) > 2 and time.monotonic() < deadline:
            time.sleep(0.05)

        after = segments(tmp_path)

    assert len(before) > 4
    assert 0 < len(after) <= 2, "neither the retention check nor the delete delay is waited for"


@pytest.mark.parametrize("whole", [False, True], ids=["end cut off", "directory removed"])
def test_records_that_somebody_took_away_are_missed_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, whole: bool
) -> None:
    with EmbeddedBroker(data_directory=str(tmp_path)) as broker:
        fill(broker.bootstrap_servers, 5)
    directory = tmp_path / "log" / "t-0"
    if whole:
        shutil.rmtree(directory)
    else:
        log = directory / "00000000000000000000.log"
        with log.open("r+b") as file:
            file.truncate(log.stat().st_size - 100)

    with caplog.at_level(logging.WARNING), EmbeddedBroker(data_directory=str(tmp_path)):
        pass

    assert [record.getMessage() for record in caplog.records if "are lost" in record.getMessage()]
    assert "t-0" in caplog.text


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
def test_a_shortage_ends_no_broker(number: int) -> None:
    assert may_pass(OSError(number, "short"))
