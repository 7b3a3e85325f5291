"""Directories on their way out: moved, removed, never mistaken for a new topic's."""

import errno

import pytest

from headwater.base.disk import replace_file
from headwater.base.errors import ErrorCode, KafkaError, StorageError
from headwater.base.record.batch import parse_header
from headwater.log.directories import parse_partition_directory
from headwater.log.store import LogStore
from tests.log.house import LOG, House, append, commit, values


@pytest.fixture
def house() -> House:
    return House()


class TestDeletion:
    def deleted(self, house: House, partitions: int = 2, name: str = "a") -> LogStore:
        store = house.open()
        (topic,) = store.create_topics([(name, partitions, {})])
        for log in topic.partitions:
            append(log, b"old")
            commit(log)
        store.delete_topic(name)
        return store

    def directories(self, house: House) -> list[str]:
        names = house.disk.list_directory(LOG)
        return [name for name in names if house.disk.is_directory(f"{LOG}/{name}")]

    def test_files_are_moved_now_and_removed_later(self, house: House) -> None:
        store = self.deleted(house)
        assert store.topics == {}
        assert [parse_partition_directory(name) for name in self.directories(house)] == [None] * 2
        assert all(name.endswith("-delete") for name in self.directories(house))
        store.work_due(house.clock.now_ms())
        assert len(self.directories(house)) == 2
        house.clock.advance(60_000)
        store.work_due(house.clock.now_ms())

        assert self.directories(house) == []
        assert store._manifest.image.deletions == {}

    def test_an_open_reader_can_finish(self, house: House) -> None:
        store = house.open()
        (topic,) = store.create_topics([("a", 1, {})])
        append(topic.partitions[0], b"old")
        commit(topic.partitions[0])
        extent = topic.partitions[0].read(0, 1000, upto_offset=1, at_least_one=True)
        store.delete_topic("a")
        house.clock.advance(60_000)
        store.work_due(house.clock.now_ms())

        assert extent is not None
        assert parse_header(extent.read()).record_count == 1

    def test_a_commit_under_way_is_not_disturbed(self, house: House) -> None:
        store = house.open()
        (topic,) = store.create_topics([("a", 1, {})])
        log = topic.partitions[0]
        append(log)
        items = log.begin_commit()
        store.delete_topic("a")
        for item in items:
            item.sync()
        log.end_commit()

        assert not store.failed

    def test_a_topic_without_files_leaves_no_trace(self, house: House) -> None:
        store = house.open()
        store.create_topics([("a", 100, {})])
        store.delete_topic("a")

        assert store._manifest.image.deletions == {}
        with pytest.raises(KafkaError) as refused:
            store.delete_topic("a")
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_the_name_can_be_used_again_at_once(self, house: House) -> None:
        store = self.deleted(house)
        (again,) = store.create_topics([("a", 1, {})])
        assert again.partitions[0].log_end_offset == 0
        append(again.partitions[0], b"new")
        commit(again.partitions[0])

        assert values(house.crash().topics["a"].partitions[0]) == [b"new"]

    def test_old_checkpoints_do_not_touch_the_new_topic(self, house: House) -> None:
        store = house.open()
        (topic,) = store.create_topics([("a", 1, {})])
        append(topic.partitions[0], count=100)
        commit(topic.partitions[0])
        topic.partitions[0].trim(90)
        store.checkpoint()
        store.delete_topic("a")
        (again,) = store.create_topics([("a", 1, {})])
        append(again.partitions[0], b"new", count=5)
        commit(again.partitions[0])
        found = house.crash().topics["a"].partitions[0]

        assert (found.log_start_offset, found.log_end_offset) == (0, 5)

    def test_whatever_a_power_cut_undoes_the_old_records_stay_away(self) -> None:
        for seed in range(40):
            house = House()
            store = self.deleted(house)
            if seed % 2:
                store.create_topics([("a", 2, {})])
                append(store.topics["a"].partitions[0], b"new")
            found = house.crash(seed)
            kept = found.topics.get("a")
            assert (kept is not None) == bool(seed % 2)
            if kept is not None:
                assert values(kept.partitions[0]) in ([], [b"new"])
                assert values(kept.partitions[1]) == []
            found.work_due(house.clock.now_ms())
            house.clock.advance(600_000)
            found.work_due(house.clock.now_ms())
            assert self.directories(house) in ([], ["a-0"])

    def test_long_names_do_not_collide(self, house: House) -> None:
        store = self.deleted(house, partitions=12, name="x" * 249)
        assert len(self.directories(house)) == 12
        assert all(len(name) <= 255 for name in self.directories(house))
        house.clock.advance(60_000)
        store.work_due(house.clock.now_ms())

        assert self.directories(house) == []

    def test_a_directory_that_cannot_be_moved_blocks_its_name_only(
        self, house: House, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = house.open()
        (topic,) = store.create_topics([("a", 1, {})])
        append(topic.partitions[0], b"old")
        commit(topic.partitions[0])
        start = house.disk.operations
        house.disk.fail_at(start + 3, OSError(errno.EIO, "broken"))
        store.delete_topic("a")
        assert house.disk.exists(f"{LOG}/a-0")
        assert "cannot move" in caplog.text
        house.disk.fail_at(house.disk.operations + 1, OSError(errno.EIO, "broken"))
        with pytest.raises(StorageError, match="could not be moved"):
            store.create_topics([("a", 1, {})])
        (again,) = store.create_topics([("a", 1, {})])

        assert again.partitions[0].log_end_offset == 0
        assert not house.disk.exists(f"{LOG}/a-0")

    def test_a_removal_that_fails_is_tried_again(
        self, house: House, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = self.deleted(house, partitions=1)
        house.clock.advance(60_000)
        house.disk.fail_at(house.disk.operations + 2, OSError(errno.EIO, "broken"))
        store.work_due(house.clock.now_ms())
        assert "cannot remove" in caplog.text
        assert len(self.directories(house)) == 1
        house.clock.advance(60_000)
        store.work_due(house.clock.now_ms())

        assert self.directories(house) == []

    def test_a_stray_directory_is_kept_aside_and_named(
        self, house: House, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = house.open()
        (topic,) = store.create_topics([("a", 1, {})])
        append(topic.partitions[0])
        store.close()
        house.disk.rename(f"{LOG}/a-0", f"{LOG}/unknown-3")
        house.disk.make_directory(f"{LOG}/lost+found")
        found = house.open()

        (stray, lost) = sorted(self.directories(house), reverse=True)
        assert lost == "lost+found"
        assert stray.startswith("unknown-3.")
        assert stray.endswith("-stray")
        assert house.disk.list_directory(f"{LOG}/{stray}")
        assert "unknown-3 belongs to no topic" in caplog.text
        house.clock.advance(10**9)
        found.work_due(house.clock.now_ms())
        assert stray in self.directories(house)
        found.close()
        caplog.clear()
        house.open()
        assert "belongs to no topic" not in caplog.text

    def test_a_partition_of_another_topic_id_is_stray(self, house: House) -> None:
        store = house.open()
        (topic,) = store.create_topics([("a", 1, {})])
        append(topic.partitions[0])
        store.close()
        path = f"{LOG}/a-0/partition.metadata"
        replace_file(house.disk, path, b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
        found = house.open()

        assert values(found.topics["a"].partitions[0]) == []
        assert any(name.endswith("-stray") for name in self.directories(house))
