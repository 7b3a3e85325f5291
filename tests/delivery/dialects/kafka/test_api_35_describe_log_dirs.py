"""DescribeLogDirs: what lies where, and how much room is left."""

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.wire.kafka.messages import DescribeLogDirsRequest
from headwater.testing.memory_disk import MemoryDisk
from tests.delivery.dialects.kafka.desk import Desk

Topic = DescribeLogDirsRequest.DescribableLogDirTopic


@pytest.fixture
def desk() -> Desk:
    desk = Desk(disk=MemoryDisk(capacity_bytes=1 << 20))
    desk.broker.topics.create([NewTopic("a", 2, {}), NewTopic("b", 1, {})])
    desk.append("a", count=3)
    return desk


def sizes(
    desk: Desk, topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None
) -> dict[str, dict[int, int]]:
    (directory,) = desk.ask(DescribeLogDirsRequest(topics)).results
    return {
        topic.name: {one.partition_index: one.partition_size for one in topic.partitions}
        for topic in directory.topics
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_every_version(desk: Desk, version: int) -> None:
    answer = desk.ask(DescribeLogDirsRequest(None), version)
    (directory,) = answer.results
    assert (answer.error_code, directory.error_code, directory.log_dir) == (0, 0, "/data/log")
    partition = directory.topics[0].partitions[0]
    assert (partition.offset_lag, partition.is_future_key) == (0, False)
    expected = (1 << 20, desk.disk.free_bytes("/data")) if version >= 4 else (-1, -1)
    assert (directory.total_bytes, directory.usable_bytes) == expected
    assert not directory.is_cordoned


def test_sizes_are_those_of_the_files(desk: Desk) -> None:
    name = f"{0:020d}.log"
    on_disk = desk.disk.open_for_reading(f"/data/log/a-0/{name}").size()
    assert sizes(desk, None) == {"a": {0: on_disk, 1: 0}, "b": {0: 0}}


def test_a_list_is_a_filter(desk: Desk) -> None:
    size = sizes(desk, None)["a"][0]
    assert sizes(desk, [Topic("a", [0, 7]), Topic("none", [0]), Topic("b", [])]) == {"a": {0: size}}
    assert sizes(desk, []) == {}


def test_a_failed_disk_says_so(desk: Desk) -> None:
    desk.disk.fail_at(desk.disk.operations + 2, OSError(5, "Input/output error"))
    with pytest.raises(Exception, match="cannot sync"):
        desk.broker.topics.create([NewTopic("c", 1, {})])
    assert desk.broker.store.failed
    (directory,) = desk.ask(DescribeLogDirsRequest(None)).results
    assert directory.error_code == ErrorCode.KAFKA_STORAGE_ERROR
