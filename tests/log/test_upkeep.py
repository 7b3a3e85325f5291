"""Retention, checkpoints and removals: done when due, in slices, again after a full disk."""

import errno

import pytest

from headwater.base.errors import StorageError
from headwater.log import upkeep
from headwater.log.checkpoints import read_offsets
from headwater.testing.manual_clock import ManualClock
from tests.log.house import LOG, House, append, commit


@pytest.fixture
def house() -> House:
    return House()


class TestUpkeep:
    def test_retention_runs_when_it_is_due(self, house: House) -> None:
        store = house.open()
        (topic,) = store.create_topics([("a", 1, {"retention.ms": "1000"})])
        log = topic.partitions[0]
        append(log, count=3)
        commit(log)
        house.clock.advance(2000)
        store.work_due(house.clock.now_ms())
        assert log.log_start_offset == 0, "retention is looked at every five minutes"
        house.clock.advance(300_000)
        store.work_due(house.clock.now_ms())
        assert log.log_start_offset == 3

        assert read_offsets(house.disk, f"{LOG}/log-start-offset-checkpoint") == {("a", 0): 3}
        found = house.crash().topics["a"].partitions[0]
        assert (found.log_start_offset, found.log_end_offset) == (3, 3)

    def test_deleted_segments_are_removed_after_their_delay(self, house: House) -> None:
        store = house.open()
        configs = {"retention.ms": "1000", "file.delete.delay.ms": "5000"}
        (topic,) = store.create_topics([("a", 1, configs)])
        append(topic.partitions[0])
        commit(topic.partitions[0])
        house.clock.advance(300_000)
        store.work_due(house.clock.now_ms())
        assert [n for n in house.disk.list_directory(f"{LOG}/a-0") if n.endswith(".deleted")]
        house.clock.advance(4_999)
        store.work_due(house.clock.now_ms())
        assert [n for n in house.disk.list_directory(f"{LOG}/a-0") if n.endswith(".deleted")]
        house.clock.advance(1)
        store.work_due(house.clock.now_ms())

        assert not [n for n in house.disk.list_directory(f"{LOG}/a-0") if n.endswith(".deleted")]

    def test_checkpoints_are_written_when_they_are_due(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(upkeep, "_CHECKPOINT_WORTH_BYTES", 1)
        store = house.open()
        (topic,) = store.create_topics([("a", 1, {})])
        append(topic.partitions[0])
        commit(topic.partitions[0])
        path = f"{LOG}/recovery-point-offset-checkpoint"
        store.work_due(house.clock.now_ms())
        assert not house.disk.exists(path)
        house.clock.advance(60_000)
        store.work_due(house.clock.now_ms())
        assert read_offsets(house.disk, path) == {("a", 0): 1}

    def test_an_idle_store_writes_nothing(self, house: House) -> None:
        store = house.open()
        (topic,) = store.create_topics([("a", 100, {})])
        append(topic.partitions[0])
        commit(topic.partitions[0])
        store.checkpoint()
        operations = house.disk.operations
        for _ in range(10):
            house.clock.advance(60_000)
            store.work_due(house.clock.now_ms())

        assert house.disk.operations == operations

    def test_work_is_done_in_slices(self, house: House) -> None:
        class SlowClock(ManualClock):
            def monotonic_ms(self) -> int:
                self.advance(1)
                return super().monotonic_ms()

        house.clock = SlowClock()
        store = house.open()
        (topic,) = store.create_topics([("a", 200, {"retention.ms": "1"})])
        for log in topic.partitions:
            append(log)
            commit(log)
        house.clock.advance(400_000)
        slices = 1
        while store.work_due(house.clock.now_ms()):
            recorded = read_offsets(house.disk, f"{LOG}/log-start-offset-checkpoint")
            started = {
                ("a", log.partition): log.log_start_offset
                for log in topic.partitions
                if log.log_start_offset
            }
            assert recorded == started, "nobody sees a log start that a crash could take back"
            slices += 1

        assert slices > 5
        assert all(log.log_start_offset == 1 for log in topic.partitions)

    def test_a_topic_deleted_between_two_slices(self, house: House) -> None:
        store = house.open()
        topics = store.create_topics([("a", 1, {}), ("b", 1, {})])
        for topic in topics:
            append(topic.partitions[0])
            commit(topic.partitions[0])
        steps = store._upkeep.checkpoint_steps()
        next(steps)
        store.delete_topic("b")
        for _ in steps:
            pass

        assert read_offsets(house.disk, f"{LOG}/recovery-point-offset-checkpoint") == {("a", 0): 1}

    def test_a_full_disk_puts_it_off(
        self,
        house: House,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(upkeep, "_CHECKPOINT_WORTH_BYTES", 1)
        store = house.open()
        (topic,) = store.create_topics([("a", 1, {})])
        append(topic.partitions[0])
        commit(topic.partitions[0])
        house.clock.advance(60_000)
        house.disk.capacity_bytes = house.disk.used_bytes()
        store.work_due(house.clock.now_ms())
        assert "put off" in caplog.text
        assert not store.failed
        house.disk.capacity_bytes = None
        house.clock.advance(60_000)
        store.work_due(house.clock.now_ms())

        assert read_offsets(house.disk, f"{LOG}/recovery-point-offset-checkpoint") == {("a", 0): 1}

    def test_a_broken_disk_is_final(self, house: House) -> None:
        store = house.open()
        (topic,) = store.create_topics([("a", 1, {})])
        append(topic.partitions[0])
        commit(topic.partitions[0])
        house.clock.advance(60_000)
        for ahead in range(1, 30):
            house.disk.fail_at(house.disk.operations + ahead, OSError(errno.EIO, "broken"))
        with pytest.raises(StorageError, match="broken"):
            store.work_due(house.clock.now_ms())

        assert store.failed or topic.partitions[0].failed

    def test_a_broken_disk_leaves_no_marker(self, house: House) -> None:
        store = house.open()
        (topic,) = store.create_topics([("a", 1, {})])
        append(topic.partitions[0])
        house.disk.fail_at(house.disk.operations + 1, OSError(errno.EIO, "broken"))
        with pytest.raises(StorageError):
            store.close()
        store.close()

        assert not house.disk.exists(f"{LOG}/.kafka_cleanshutdown")
        house.open()

    def test_a_log_that_finds_no_room_keeps_no_other_from_giving_some(self, house: House) -> None:
        store = house.open()
        configs = {"retention.ms": "1000", "file.delete.delay.ms": "0"}
        first, second = store.create_topics([("a", 1, configs), ("b", 1, configs)])
        for topic in (first, second):
            append(topic.partitions[0])
            commit(topic.partitions[0])
        house.clock.advance(300_000)
        # The first thing that retention does is to begin a new segment.
        house.disk.fail_at(house.disk.operations + 1, OSError(errno.ENOSPC, "full"))
        store.work_due(house.clock.now_ms())

        assert not store.failed
        assert [topic.partitions[0].log_start_offset for topic in (first, second)] == [0, 1]
