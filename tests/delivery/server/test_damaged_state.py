"""A disk that lied under the broker's own topics: it starts, and says what it has lost."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.wire.kafka.messages import OffsetCommitRequest
from headwater.testing.broker import EmbeddedBroker

SETTINGS = {"offsets.topic.segment.bytes": "1048576"}
# With this much beside each offset a segment holds 254 of them.
METADATA = "m" * 4_000
EARLY = 10
LATE = 300


def commit(cluster: Cluster, group: str, offset: int) -> None:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, offset, -1, METADATA)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(group, -1, "", None, -1, [topic])
    (answer,) = cluster.coordinator(group).call(request, version_max=9).topics
    assert answer.partitions[0].error_code == 0


def cut_the_end(content: bytearray) -> None:
    del content[-10:]


def clear_a_page(content: bytearray) -> None:
    page = len(content) // 2 // 4096 * 4096
    content[page : page + 4096] = bytes(4096)


def clear_all(content: bytearray) -> None:
    content[:] = bytes(len(content))


@pytest.mark.parametrize(
    "damage, keeps_early",
    [(cut_the_end, True), (clear_a_page, True), (clear_all, False)],
)
def test_what_can_be_read_of_committed_offsets_is_kept(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[bytearray], None],
    keeps_early: bool,
) -> None:
    with (
        EmbeddedBroker(data_directory=str(tmp_path), settings=SETTINGS) as broker,
        Cluster(broker.bootstrap_servers) as cluster,
    ):
        admin.create_topic(cluster, "t", partitions=1)
        commit(cluster, "early", EARLY)
        for number in range(LATE):
            commit(cluster, "late", number)
    first, *others = sorted((tmp_path / "log" / "__consumer_offsets-0").glob("*.log"))
    assert others, "the damaged segment must not be the active one, which is always looked at"
    content = bytearray(first.read_bytes())
    damage(content)
    first.write_bytes(content)

    with (
        caplog.at_level(logging.ERROR),
        EmbeddedBroker(data_directory=str(tmp_path), settings=SETTINGS) as broker,
        Cluster(broker.bootstrap_servers) as cluster,
    ):
        found = {group: admin.committed_offsets(cluster, group) for group in ("early", "late")}
        commit(cluster, "early", EARLY)

    assert found["late"] == {("t", 0): LATE - 1}
    assert found["early"] == ({("t", 0): EARLY} if keeps_early else {})
    (told,) = [record.getMessage() for record in caplog.records if "lost" in record.getMessage()]
    assert "__consumer_offsets-0" in told
    assert "headwater log dump" in told
