"""The data directory: opened, grown, closed, cut off, and found as it was promised."""

import errno
import os
import time
from pathlib import Path

import pytest

from headwater.base.chance import SystemChance
from headwater.base.clock import SystemClock
from headwater.base.directory_lock import AlreadyLockedError
from headwater.base.disk import Disk, RealDisk, read_file, replace_file
from headwater.base.errors import ErrorCode, HeadwaterError, KafkaError, StorageError
from headwater.base.settings import BrokerSettings, TopicConfig
from headwater.log import layout
from headwater.log.checkpoints import read_offsets, read_properties
from headwater.log.manifest import ManifestDamagedError
from headwater.log.store import LogStore, Recovery
from headwater.testing.manual_clock import ManualClock
from headwater.testing.memory_disk import MemoryDisk, PowerCut
from headwater.testing.seeded_chance import SeededChance
from tests.log.house import DATA, LOG, House, append, commit, values


@pytest.fixture
def house() -> House:
    return House()


class DiskOfAnother(MemoryDisk):
    """Its root directory cannot be synced."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def sync_opened(self, path: str) -> None:
        if path == "/":
            raise OSError(self.number, os.strerror(self.number), path)
        super().sync_opened(path)


class TestOpening:
    def test_an_empty_directory(self, house: House) -> None:
        store = house.open()

        assert store.topics == {}
        assert store.node_epoch == 0
        assert len(store.cluster_id) == 22
        assert not store.failed
        assert read_file(house.disk, f"{DATA}/VERSION") == b"1\n"
        assert read_properties(house.disk, f"{LOG}/meta.properties") == {
            "version": "1",
            "cluster.id": store.cluster_id,
            "node.id": "1",
            "directory.id": store.directory_id,
        }

    def test_directories_above_are_made(self) -> None:
        disk = MemoryDisk()
        store = LogStore.open(
            disk,
            "/a/b/c",
            settings=BrokerSettings(),
            topic_defaults=TopicConfig(),
            clock=ManualClock(),
            chance=SeededChance(),
        )
        store.close()

        found = disk.crash(0, keep="nothing")
        assert found.exists("/a/b/c/log/headwater.journal")

    def test_a_real_empty_directory_takes_less_than_50_ms(self, tmp_path: Path) -> None:
        best_ms = 1e9
        for attempt in range(10):
            start = time.perf_counter()
            store = LogStore.open(
                RealDisk(),
                str(tmp_path / str(attempt)),
                settings=BrokerSettings(),
                topic_defaults=TopicConfig(),
                clock=SystemClock(),
                chance=SystemChance(),
            )
            best_ms = min(best_ms, (time.perf_counter() - start) * 1000)
            store.close()

        assert best_ms < 50

    def test_ids_stay_and_the_epoch_grows(self, house: House) -> None:
        first = house.open()
        second = house.restart()
        second.close()
        third = house.crash()

        assert first.cluster_id == second.cluster_id == third.cluster_id
        assert [first.node_epoch, second.node_epoch, third.node_epoch] == [0, 1, 2]

    def test_the_second_process_is_refused(self, house: House) -> None:
        store = house.open()
        with pytest.raises(AlreadyLockedError, match="in use by process"):
            house.open()
        store.close()

        house.open().close()

    def test_a_failed_start_gives_the_lock_back(self, house: House) -> None:
        house.open().close()
        replace_file(house.disk, f"{LOG}/headwater.journal", b"nonsense")
        for _ in range(2):
            with pytest.raises(ManifestDamagedError):
                house.open()

    def test_progress_is_told(self, house: House) -> None:
        store = house.open()
        store.create_topics([("a", 2, {}), ("b", 1, {})])
        store.close()
        told: list[Recovery] = []
        house.open(told.append).close()

        assert told == [
            Recovery("a", 0, 1, 3, clean=True),
            Recovery("a", 1, 2, 3, clean=True),
            Recovery("b", 0, 3, 3, clean=True),
        ]

    @pytest.mark.parametrize("mounted", [False, True])
    def test_a_log_directory_that_is_gone_or_empty_is_not_begun_anew(
        self, house: House, mounted: bool
    ) -> None:
        house.open().create_topics([("a", 1, {})])
        house.disk = house.disk.restart()
        house.disk.remove_tree(LOG)
        if mounted:
            house.disk.make_directory(LOG)
        operations = house.disk.operations
        with pytest.raises(
            ManifestDamagedError, match=r"headwater\.journal is not there"
        ) as refused:
            house.open()

        assert "mount" in refused.value.hint
        assert house.disk.operations == operations
        house.disk.remove(f"{DATA}/VERSION")
        assert not house.open().topics
        assert not house.crash().topics

    def test_a_first_start_that_was_interrupted_goes_on(self) -> None:
        """Whatever it had come to."""
        whole = House()
        whole.open().close()
        for number in range(1, whole.disk.operations):
            for seed in (None, 1, 2):
                house = House()
                house.disk.cut_power_at(number)
                with pytest.raises(PowerCut):
                    house.open().close()
                assert house.crash(seed).topics == {}

    @pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.EROFS, errno.EACCES])
    def test_a_parent_that_cannot_be_synced_stops_no_start(self, number: int) -> None:
        """Where the data directory was there before: nobody can do more for its name."""
        house = House(DiskOfAnother(number))
        house.disk.make_directory(DATA)
        house.open().close()

        with pytest.raises(StorageError, match="cannot open /data"):
            House(DiskOfAnother(number)).open()

    def test_a_parent_whose_sync_fails_stops_the_start(self) -> None:
        house = House(DiskOfAnother(errno.EIO))
        house.disk.make_directory(DATA)
        with pytest.raises(StorageError, match="cannot open /data"):
            house.open()

    def test_a_disk_that_fails_is_named(self, house: House) -> None:
        house.disk.fail_at(1, OSError(errno.EACCES, "Permission denied"))
        with pytest.raises(StorageError, match=r"cannot open /data.*Permission denied"):
            house.open()

    def test_configs_that_cannot_be_used_stop_the_start(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        house.open().create_topics([("a", 1, {"retention.ms": "-1"})])

        def refuse(configs: object, defaults: object) -> TopicConfig:
            raise KafkaError(ErrorCode.INVALID_CONFIG, "retention.ms is unheard of")

        monkeypatch.setattr(TopicConfig, "parse", refuse)
        with pytest.raises(HeadwaterError, match=r"configs of topic a .*unheard of"):
            house.restart()


class TestLayout:
    def test_a_newer_one_is_refused_and_left_alone(self, house: House) -> None:
        house.open().close()
        replace_file(house.disk, f"{DATA}/VERSION", b"2\n")
        operations = house.disk.operations
        with pytest.raises(HeadwaterError, match=r"layout 2.*up to 1") as refused:
            house.open()

        assert "newer" in refused.value.hint
        assert house.disk.operations == operations

    def test_a_damaged_one_is_refused(self, house: House) -> None:
        house.open().close()
        replace_file(house.disk, f"{DATA}/VERSION", b"one\n")
        with pytest.raises(HeadwaterError, match="should hold a number"):
            house.open()

    def test_an_older_one_is_upgraded(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        house.open().close()
        steps: list[str] = []

        def upgrade(disk: Disk, data_directory: str) -> None:
            steps.append(data_directory)

        monkeypatch.setattr(layout, "LAYOUT_VERSION", 3)
        with pytest.raises(HeadwaterError, match="cannot upgrade"):
            house.open()
        monkeypatch.setattr(layout, "LAYOUT_UPGRADES", {1: upgrade, 2: upgrade})
        house.open().close()

        assert steps == [DATA, DATA]
        assert read_file(house.disk, f"{DATA}/VERSION") == b"3\n"


class TestTopics:
    def test_creation_is_one_sync_and_no_directory(self, house: House) -> None:
        store = house.open()
        start = house.disk.operations
        topics = store.create_topics([("a", 1000, {}), ("b", 500, {"retention.ms": "7"})])

        assert [operation.kind for operation in house.disk.trace[start:]] == ["append", "sync"]
        assert [len(topic.partitions) for topic in topics] == [1000, 500]
        assert topics[1].config.retention_ms == 7
        assert topics[1].configs == {"retention.ms": "7"}
        found = house.crash()
        assert {name: len(topic.partitions) for name, topic in found.topics.items()} == {
            "a": 1000,
            "b": 500,
        }
        assert found.topics["b"].config.retention_ms == 7
        assert found.topics["a"].topic_id == topics[0].topic_id
        assert found.topic_by_id(topics[0].topic_id) is found.topics["a"]

    def test_refusals_leave_nothing_behind(self, house: House) -> None:
        store = house.open()
        store.create_topics([("a", 1, {})])
        for bad, code in (
            (("a", 1, {}), ErrorCode.TOPIC_ALREADY_EXISTS),
            (("../up", 1, {}), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (("..", 1, {}), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (("", 1, {}), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (("a" * 250, 1, {}), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (("b", 1, {"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        ):
            with pytest.raises(KafkaError) as refused:
                store.create_topics([("good", 1, {}), bad])
            assert refused.value.code == code

        assert list(store.topics) == ["a"]
        assert list(house.crash().topics) == ["a"]

    def test_internal_topics(self, house: House) -> None:
        store = house.open()
        store.create_topics([("__consumer_offsets", 4, {}), ("__mine", 1, {})])

        assert store.topics["__consumer_offsets"].internal
        assert not store.topics["__mine"].internal

    def test_partitions_are_added(self, house: House) -> None:
        store = house.open()
        store.create_topics([("a", 1, {})])
        append(store.topics["a"].partitions[0])
        store.add_partitions("a", 3)
        with pytest.raises(KafkaError) as refused:
            store.add_partitions("a", 3)
        assert refused.value.code == ErrorCode.INVALID_PARTITIONS
        append(store.topics["a"].partitions[2])
        commit(store.topics["a"].partitions[2])
        found = house.crash()

        assert [log.log_end_offset for log in found.topics["a"].partitions] == [0, 0, 1]

    def test_configs_reach_the_partitions_and_the_next_start(self, house: House) -> None:
        store = house.open()
        store.create_topics([("a", 2, {"retention.ms": "5"})])
        store.set_configs("a", {"segment.bytes": "2000000"})
        assert store.topics["a"].partitions[1].config.segment_bytes == 2_000_000
        with pytest.raises(KafkaError):
            store.set_configs("a", {"segment.bytes": "-3"})
        with pytest.raises(KafkaError):
            store.set_configs("b", {})
        found = house.crash()

        assert found.topics["a"].configs == {"segment.bytes": "2000000"}
        assert found.topics["a"].config.segment_bytes == 2_000_000
        assert found.topics["a"].config.retention_ms == TopicConfig().retention_ms

    def test_defaults_can_change_under_way(self, house: House) -> None:
        store = house.open()
        store.create_topics([("a", 1, {}), ("b", 1, {"retention.ms": "5"})])
        store.topic_defaults = TopicConfig(retention_ms=99)

        assert store.topic_defaults.retention_ms == 99
        assert store.topics["a"].partitions[0].config.retention_ms == 99
        assert store.topics["b"].partitions[0].config.retention_ms == 5

    def test_broker_configs(self, house: House) -> None:
        store = house.open()
        store.set_broker_configs({"log.retention.ms": "5"}, store.topic_defaults)

        assert store.broker_configs == {"log.retention.ms": "5"}
        assert house.crash().broker_configs == {"log.retention.ms": "5"}

    def test_producer_ids_never_repeat(self, house: House) -> None:
        seen: set[int] = set()
        for opened in (house.open, house.crash, house.restart):
            store = opened()
            given = {store.next_producer_id() for _ in range(1500)}

            assert len(given) == 1500
            assert not seen & given
            seen |= given

    def test_a_block_of_producer_ids_costs_one_sync(self, house: House) -> None:
        store = house.open()
        start = house.disk.operations
        for _ in range(1000):
            store.next_producer_id()

        assert house.disk.operations == start + 2


class TestRecovery:
    def test_what_was_committed_is_there(self, house: House) -> None:
        store = house.open()
        (topic,) = store.create_topics([("a", 2, {})])
        for number in range(10):
            append(topic.partitions[0], b"%d" % number)
        commit(topic.partitions[0])
        append(topic.partitions[0], b"not committed")
        found = house.crash()
        log = found.topics["a"].partitions[0]

        assert values(log) == [b"%d" % number for number in range(10)]
        assert log.high_watermark == 10
        assert log.leader_epoch == 1

    def test_a_killed_process_loses_nothing_and_the_tail_becomes_durable(
        self, house: House
    ) -> None:
        (topic,) = house.open().create_topics([("a", 1, {})])
        append(topic.partitions[0], b"cached")
        assert values(house.restart().topics["a"].partitions[0]) == [b"cached"]
        assert values(house.crash().topics["a"].partitions[0]) == [b"cached"]

    def test_a_clean_stop_scans_nothing(self, house: House) -> None:
        store = house.open()
        (topic,) = store.create_topics([("a", 1, {})])
        append(topic.partitions[0])
        store.close()
        told: list[Recovery] = []
        house.disk = house.disk.crash(0, keep="nothing")
        found = house.open(told.append)

        assert [step.clean for step in told] == [True]
        assert found.topics["a"].partitions[0].recovery.scanned_bytes == 0
        assert values(found.topics["a"].partitions[0]) == [b"value"]

    def test_a_marker_that_comes_back_to_life_is_not_believed(self, house: House) -> None:
        store = house.open()
        store.create_topics([("a", 1, {})])
        store.close()
        marker = read_file(house.disk, f"{LOG}/.kafka_cleanshutdown")
        house.open()
        assert not house.disk.exists(f"{LOG}/.kafka_cleanshutdown")
        house.disk = house.disk.restart()
        replace_file(house.disk, f"{LOG}/.kafka_cleanshutdown", marker)
        told: list[Recovery] = []
        house.open(told.append)

        assert [step.clean for step in told] == [False]

    def test_a_recovery_point_spares_the_scan(self, house: House) -> None:
        store = house.open()
        (topic,) = store.create_topics([("a", 1, {})])
        log = topic.partitions[0]
        for _ in range(100):
            append(log, b"x" * 1000)
        commit(log)
        store.checkpoint()
        append(log, b"later")
        commit(log)
        assert read_offsets(house.disk, f"{LOG}/recovery-point-offset-checkpoint") == {
            ("a", 0): 100
        }
        assert read_offsets(house.disk, f"{LOG}/replication-offset-checkpoint") == {
            ("a", 0): 101 - 1
        }
        found = house.crash().topics["a"].partitions[0]

        assert found.log_end_offset == 101
        assert 0 < found.recovery.scanned_bytes < 10_000

    def test_damaged_checkpoints_cost_a_scan_and_no_more(
        self, house: House, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = house.open()
        (topic,) = store.create_topics([("a", 1, {})])
        append(topic.partitions[0])
        commit(topic.partitions[0])
        store.checkpoint()
        for name in (
            "recovery-point-offset-checkpoint",
            "log-start-offset-checkpoint",
            "replication-offset-checkpoint",
            "meta.properties",
        ):
            replace_file(house.disk, f"{LOG}/{name}", b"\xff\0nonsense")

        assert values(house.restart().topics["a"].partitions[0]) == [b"value"]
        assert "damaged" in caplog.text

    def test_a_log_start_is_kept_once_it_is_persisted(self, house: House) -> None:
        store = house.open()
        (topic,) = store.create_topics([("a", 1, {})])
        append(topic.partitions[0], count=5)
        append(topic.partitions[0], count=5)
        commit(topic.partitions[0])
        topic.partitions[0].trim(7)
        store.persist_log_starts()
        found = house.crash().topics["a"].partitions[0]

        assert (found.log_start_offset, found.log_end_offset) == (7, 10)

    def test_a_lost_journal_is_not_mistaken_for_an_empty_directory(self, house: House) -> None:
        store = house.open()
        (topic,) = store.create_topics([("a", 1, {})])
        append(topic.partitions[0])
        store.close()
        house.disk.remove(f"{LOG}/headwater.journal")
        with pytest.raises(ManifestDamagedError, match="holds partitions but no"):
            house.open()

        assert house.disk.is_directory(f"{LOG}/a-0")


def test_the_log_directory_is_real_too(tmp_path: Path) -> None:
    def open_real() -> LogStore:
        return LogStore.open(
            RealDisk(),
            str(tmp_path / "data"),
            settings=BrokerSettings(),
            topic_defaults=TopicConfig(),
            clock=SystemClock(),
            chance=SystemChance(),
        )

    store = open_real()
    (topic,) = store.create_topics([("a", 1, {"segment.bytes": "1048576"})])
    for number in range(30):
        append(topic.partitions[0], b"%d" % number * 10_000)
        commit(topic.partitions[0])
    with pytest.raises(AlreadyLockedError):
        open_real()
    store.close()
    found = open_real()
    log = found.topics["a"].partitions[0]

    assert values(log) == [b"%d" % number * 10_000 for number in range(30)]
    found.delete_topic("a")
    found.close()
