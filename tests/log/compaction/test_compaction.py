"""Which log is next, and what becomes of a pass while the world goes on."""

import errno
import os

import pytest

from headwater.base.record.batch import MAGIC_POS
from headwater.base.settings import BrokerSettings
from headwater.log.checkpoints import read_offsets
from headwater.log.compaction.job import Cleaned, Job
from headwater.log.dropping import drop_above
from headwater.log.names import LOG as LOG_SUFFIX
from headwater.log.names import TIME_INDEX, offset_name
from headwater.log.partition import PartitionLog
from headwater.log.store import LogStore
from headwater.testing.memory_disk import MemoryDisk, Operation, PowerCut
from tests.log.compaction.helpers import append_pairs, damage, pairs, roll, run
from tests.log.helpers import base_offsets, read_values
from tests.log.house import LOG, House

CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.5"}
BACKOFF_MS = BrokerSettings().log_cleaner_backoff_ms


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def store(house: House) -> LogStore:
    return house.open()


def fill(store: LogStore, name: str = "t", segments: int = 2, **configs: str) -> PartitionLog:
    """Create a topic with some closed segments of one key."""
    if name not in store.topics:
        all_configs = {**CONFIGS, **{key.replace("_", "."): configs[key] for key in configs}}
        store.create_topics([(name, 1, all_configs)])
    log = store.topics[name].partitions[0]
    for number in range(segments):
        append_pairs(log, [(b"a", b"%d" % number), (b"b", b"%d" % number)])
        roll(log)
    return log


def fill_groups(store: LogStore, *, merged: bool = True) -> PartitionLog:
    """Create a log of five segments, of which the first two may be merged, as may the last two."""
    store.create_topics([("t", 1, {**CONFIGS, "segment.bytes": "1048576"})])
    log = store.topics["t"].partitions[0]
    half = bytes(450_000 if merged else 600_000)
    for batch in (
        [(b"x", b"0"), (b"1", half)],
        [(b"dead", b"alive"), (b"2", half)],
        [(b"dead", None), (b"x", b"1"), (b"3", half)],
        [(b"4", b""), (b"4", half), (b"y", b"1")],
        [(b"y", b"2"), (b"5", b"")],
    ):
        append_pairs(log, batch)
        roll(log)
    return log


def take_oldest(house: House, store: LogStore, log: PartitionLog) -> None:
    """Let the first segment go, as retention does."""
    store.trim([(log, 2)])
    log.remove_expired(house.clock.now_ms())
    assert base_offsets(log)[0] == 2


def next_job(house: House, store: LogStore) -> Job:
    job = store.compaction.next_job(house.clock.now_ms())
    assert job is not None
    return job


def finish(house: House, store: LogStore, job: Job, cleaned: Cleaned | None = None) -> None:
    cleaned = cleaned or run(house.disk, job)
    for _ in store.compaction.put_in_place(job, cleaned, house.clock.now_ms()):
        pass


def names(house: House, log: PartitionLog, suffix: str) -> list[str]:
    return [name for name in house.disk.list_directory(log.directory) if name.endswith(suffix)]


@pytest.mark.parametrize("lasts", [1, 3, 1_000])
def test_a_lack_of_descriptors_puts_compaction_off(lasts: int) -> None:
    """Whenever it begins and however long it lasts: nothing is lost, and a later pass is done."""
    put_off = 0
    for first in range(1, 60):
        house = House()
        store = house.open()
        log = fill(store, segments=3)
        job = next_job(house, store)
        cleaned = run(house.disk, job)
        opens = 0

        def refuse(path: str, first: int = first) -> None:
            nonlocal opens
            opens += 1
            if first <= opens < first + lasts:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

        house.disk.on_open = refuse
        finish(house, store, job, cleaned)
        house.disk.on_open = lambda _: None
        assert not store.failed
        if store.compaction.passes == 0:
            put_off += 1
            house.clock.advance(BACKOFF_MS)
            finish(house, store, next_job(house, store))
        assert pairs(log) == [(4, b"a", b"2"), (5, b"b", b"2")]
        if opens < first:
            break
    assert opens < first
    assert bool(put_off) == (lasts > 1), "an idle file is closed for the second try"


def test_files_of_an_interrupted_pass_do_not_undo_a_later_one() -> None:
    """Descriptors run out after one swap of a pass; the next pass groups the segments anew."""
    house = House()
    store = house.open()
    # Twelve batches have an entry in an index: two segments of eight are not merged.
    indexes = {"index.interval.bytes": "100", "segment.index.bytes": "100"}
    store.create_topics([("t", 1, {**CONFIGS, **indexes})])
    log = store.topics["t"].partitions[0]
    for segment in ("", "a", "b", "c", ""):
        for number in range(8):
            key = f"{segment}{number}" if segment and number else "superseded"
            append_pairs(log, [(key.encode(), bytes(100))])
        roll(log)
    kept = {key for _, key, _ in pairs(log)}

    def refuse(path: str) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    first = next_job(house, store)
    cleaned = run(house.disk, first)
    steps = store.compaction.put_in_place(first, cleaned, house.clock.now_ms())
    next(steps)
    house.disk.on_open = refuse
    assert list(steps) == []
    house.disk.on_open = lambda _: None
    assert names(house, log, ".log.cleaned"), "they could not be removed"

    house.clock.advance(BACKOFF_MS)
    second = next_job(house, store)
    crashed: list[MemoryDisk] = []
    house.disk.after_operation = lambda _: crashed.extend(
        [house.disk.after_power_cut(0, keep="nothing"), house.disk.after_kill()]
    )
    again = run(house.disk, second)
    finish(house, store, second, again)
    house.disk.after_operation = None
    assert again.segments[0].replaces != cleaned.segments[0].replaces
    assert len(crashed) > 100
    for disk in crashed:
        house.disk = disk
        assert {key for _, key, _ in pairs(house.open().topics["t"].partitions[0])} == kept


def test_progress_is_recorded_as_kafka_does(house: House, store: LogStore) -> None:
    log = fill(store)
    finish(house, store, next_job(house, store))

    assert pairs(log) == [(2, b"a", b"1"), (3, b"b", b"1")]
    path = f"{LOG}/cleaner-offset-checkpoint"
    assert read_offsets(house.disk, path) == {("t", 0): 4}
    assert store.compaction.next_job(house.clock.now_ms()) is None

    again = house.restart()
    assert again.compaction.next_job(house.clock.now_ms()) is None
    fill(again, segments=3)
    assert next_job(house, again).first_dirty_offset == 4


def test_the_dirtiest_log_is_first_and_each_is_cleaned_once_at_a_time(
    house: House, store: LogStore
) -> None:
    fill(store, "some")
    finish(house, store, next_job(house, store))
    fill(store, "some")
    fill(store, "all")
    jobs = [next_job(house, store).topic for _ in range(2)]

    assert jobs == ["all", "some"]
    assert store.compaction.next_job(house.clock.now_ms()) is None


def test_a_log_that_is_not_on_disk_yet_keeps_no_other_waiting(
    house: House, store: LogStore
) -> None:
    lazy = fill(store, "lazy", segments=0, flush_messages="1000000")
    for _ in range(6):
        append_pairs(lazy, [(b"a", b"1")])
        lazy._roll(house.clock.now_ms())
    fill(store, "some")
    finish(house, store, next_job(house, store))
    fill(store, "some", segments=3)

    assert next_job(house, store).topic == "some"


def test_a_damaged_log_keeps_no_other_waiting(
    house: House, store: LogStore, caplog: pytest.LogCaptureFixture
) -> None:
    """A longest lag asks for the age of a segment, which its first batch does not tell."""
    bad = fill(store, "bad", segments=3, max_compaction_lag_ms="1000000")
    fill(store, "good")
    store.close()
    damage(house.disk, f"{bad.directory}/{offset_name(0, LOG_SUFFIX)}", MAGIC_POS, 0xFF)
    store = house.open()

    for _ in range(2):
        finish(house, store, next_job(house, store))

    assert pairs(store.topics["good"].partitions[0]) == [(2, b"a", b"1"), (3, b"b", b"1")]
    assert "the segment is left as it is" in caplog.text


def test_records_that_go_for_want_of_a_key_are_told_once(
    house: House, store: LogStore, caplog: pytest.LogCaptureFixture
) -> None:
    log = fill(store)
    append_pairs(log, [(None, b"1"), (b"a", b"2"), (None, b"2")])
    roll(log)

    finish(house, store, next_job(house, store))

    told = [entry for entry in caplog.records if "without a key" in entry.message]
    assert [entry.levelname for entry in told] == ["WARNING"]
    assert "compaction of t-0 drops 2 records" in told[0].message
    caplog.clear()
    fill(store, segments=4)
    finish(house, store, next_job(house, store))
    assert not caplog.records


def test_a_pass_is_planned_without_reading_any_index(house: House, store: LogStore) -> None:
    """Those of a gigabyte take a tenth of a second, and a log may have hundreds."""
    log = fill(store, segments=3)
    _, known_bytes = log.segments[0].index_sizes()
    for _ in range(2):
        # What was idle from one checkpoint to the next is let go of.
        log.checkpoint()
    nonsense = b"makes an index unreadable"
    house.disk.open(f"{log.directory}/{offset_name(0, TIME_INDEX)}").append([nonsense])

    facts = next_job(house, store).segments[0]

    assert facts.time_index_bytes == known_bytes + len(nonsense) > len(nonsense)


def test_topics_that_only_delete_are_left_alone(house: House, store: LogStore) -> None:
    fill(store, cleanup_policy="delete")
    assert store.compaction.next_job(house.clock.now_ms()) is None


def test_what_is_not_safe_yet_is_not_touched(house: House, store: LogStore) -> None:
    """A gap between offsets is believed below the recovery point alone."""
    log = fill(store, flush_messages="1000")
    store.checkpoint()
    append_pairs(log, [(b"a", b"9")])
    log._roll(house.clock.now_ms())

    job = next_job(house, store)

    assert job.end_offset == 4
    recorded = read_offsets(house.disk, f"{LOG}/recovery-point-offset-checkpoint")
    assert recorded["t", 0] == 4
    # A closed segment is synced whatever the topic says of its records.
    assert log.commit_due()


def test_a_failed_pass_is_put_off_longer_each_time(
    house: House, store: LogStore, caplog: pytest.LogCaptureFixture
) -> None:
    log = fill(store)
    fill(store, "other")
    jobs = {job.topic: job for job in (next_job(house, store) for _ in range(2))}
    store.compaction.give_up(jobs["t"], "no luck")
    finish(house, store, jobs["other"])
    house.clock.advance(BACKOFF_MS - 1)
    assert store.compaction.next_job(house.clock.now_ms()) is None
    house.clock.advance(1)
    store.compaction.give_up(next_job(house, store), "no luck")
    house.clock.advance(2 * BACKOFF_MS - 1)
    assert store.compaction.next_job(house.clock.now_ms()) is None
    house.clock.advance(1)
    finish(house, store, next_job(house, store))
    assert pairs(log) == [(2, b"a", b"1"), (3, b"b", b"1")]
    assert "compaction of t-0 is put off: no luck" in caplog.text


def test_appends_go_on_during_a_pass(house: House, store: LogStore) -> None:
    log = fill(store)
    job = next_job(house, store)
    cleaned = run(house.disk, job)
    append_pairs(log, [(b"a", b"later")])
    roll(log)
    finish(house, store, job, cleaned)

    assert pairs(log) == [(2, b"a", b"1"), (3, b"b", b"1"), (4, b"a", b"later")]


def test_a_reader_keeps_the_file_it_holds(house: House, store: LogStore) -> None:
    log = fill(store, file_delete_delay_ms="0")
    held = log.read(0, 1 << 20, upto_offset=4, at_least_one=True)
    assert held is not None
    content = held.read()
    finish(house, store, next_job(house, store))
    store.work_due(house.clock.now_ms())

    assert names(house, log, ".deleted") == []
    assert held.read() == content
    assert [offset for offset, _ in read_values(log, 0)] == [2, 3]


def test_old_files_wait_for_the_delete_delay(house: House, store: LogStore) -> None:
    log = fill(store)
    finish(house, store, next_job(house, store))
    store.work_due(house.clock.now_ms())
    assert names(house, log, ".log.deleted")
    house.clock.advance(log.config.file_delete_delay_ms)
    store.work_due(house.clock.now_ms())
    assert names(house, log, ".deleted") == []


def test_files_go_in_time_though_there_are_always_new_ones(house: House, store: LogStore) -> None:
    log = fill(store, segments=3, file_delete_delay_ms="60000")
    waiting = []
    for _ in range(10):
        finish(house, store, next_job(house, store))
        fill(store, segments=4)
        house.clock.advance(30_000)
        store.work_due(house.clock.now_ms())
        waiting.append(len(names(house, log, ".log.deleted")))

    assert waiting[2:] == waiting[2:3] * 8


class TestMeanwhile:
    def test_the_topic_is_deleted(self, house: House, store: LogStore) -> None:
        fill(store)
        job = next_job(house, store)
        cleaned = run(house.disk, job)
        store.delete_topic("t")
        finish(house, store, job, cleaned)
        assert not store.failed

    def test_the_topic_is_deleted_and_created_again(self, house: House, store: LogStore) -> None:
        fill(store)
        job = next_job(house, store)
        cleaned = run(house.disk, job)
        store.delete_topic("t")
        log = fill(store)
        # As if the process had written into the new directory of that name.
        run(house.disk, job)
        finish(house, store, job, cleaned)

        assert len(pairs(log)) == 4
        assert names(house, log, ".cleaned") == []
        assert not store.failed
        finish(house, store, next_job(house, store))
        assert len(pairs(log)) == 2

    def test_the_topic_is_deleted_and_the_pass_finds_no_files(
        self, house: House, store: LogStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A new topic of that name need not wait for it."""
        fill(store)
        job = next_job(house, store)
        store.delete_topic("t")
        log = fill(store)
        store.compaction.give_up(job, "no such file")
        finish(house, store, next_job(house, store))

        assert len(pairs(log)) == 2
        assert "put off" not in caplog.text

    def test_retention_takes_the_oldest_segments(self, house: House, store: LogStore) -> None:
        log = fill(store, segments=3, cleanup_policy="compact,delete", segment_index_bytes="12")
        job = next_job(house, store)
        cleaned = run(house.disk, job)
        assert len(cleaned.segments) > 1
        log.trim(2)
        log.remove_expired(house.clock.now_ms())
        assert base_offsets(log)[0] == 2
        finish(house, store, job, cleaned)

        assert pairs(log) == [(4, b"a", b"2"), (5, b"b", b"2")]
        assert names(house, log, ".cleaned") == []
        assert not store.failed

    def test_retention_takes_a_part_of_what_was_merged(self, house: House, store: LogStore) -> None:
        """The next pass cleans the rest, while the tombstone is there that keeps it dead."""
        log = fill_groups(store)
        job = next_job(house, store)
        cleaned = run(house.disk, job)
        take_oldest(house, store, log)
        finish(house, store, job, cleaned)

        assert store.compaction.passes == 0
        assert names(house, log, ".cleaned") == []
        finish(house, store, next_job(house, store))
        assert [value for _, key, value in pairs(log) if key == b"dead"] == [None]

    @pytest.mark.parametrize("merged", [True, False])
    def test_retention_was_there_and_then_the_power_goes(self, *, merged: bool) -> None:
        """A swap counts though what was made of the segments before it was not wanted."""
        operations = 1
        at = 0
        while at < operations:
            house = House()
            store = house.open()
            log = fill_groups(store, merged=merged)
            job = next_job(house, store)
            cleaned = run(house.disk, job)
            take_oldest(house, store, log)
            newest = {key: value for _, key, value in pairs(log)}
            before = house.disk.operations
            if at:
                house.disk.cut_power_at(before + at)
                with pytest.raises(PowerCut):
                    finish(house, store, job, cleaned)
            else:
                finish(house, store, job, cleaned)
                operations = house.disk.operations - before
            store = house.crash()
            found = {key: value for _, key, value in pairs(store.topics["t"].partitions[0])}
            assert found == newest, at
            at += 1

    def test_compaction_is_turned_off(self, house: House, store: LogStore) -> None:
        log = fill(store)
        job = next_job(house, store)
        cleaned = run(house.disk, job)
        store.set_configs("t", {"cleanup.policy": "delete"})
        finish(house, store, job, cleaned)

        assert len(pairs(log)) == 4
        assert names(house, log, ".cleaned") == []

    def test_somebody_removes_what_was_made(self, house: House, store: LogStore) -> None:
        log = fill(store)
        job = next_job(house, store)
        cleaned = run(house.disk, job)
        for name in names(house, log, ".index.cleaned"):
            house.disk.remove(f"{log.directory}/{name}")
        finish(house, store, job, cleaned)

        assert not store.failed
        assert len(pairs(log)) == 4
        assert names(house, log, ".cleaned") == names(house, log, ".swap") == []


def test_both_policies_apply(house: House, store: LogStore) -> None:
    log = fill(store, cleanup_policy="compact,delete", retention_ms="1000")
    finish(house, store, next_job(house, store))
    assert len(pairs(log)) == 2
    log.remove_expired(house.clock.now_ms() + 10**12)
    assert pairs(log) == []


def test_a_topic_that_is_compacted_no_more_keeps_its_gaps(house: House, store: LogStore) -> None:
    """After a crash, too: otherwise recovery would take a gap for the end of the log."""
    fill(store)
    finish(house, store, next_job(house, store))
    store.set_configs("t", {"cleanup.policy": "delete"})
    log = house.crash().topics["t"].partitions[0]
    assert [offset for offset, _, _ in pairs(log)] == [2, 3]


def test_it_keeps_them_also_when_no_recovery_point_is_known(house: House, store: LogStore) -> None:
    """That a gap was compacted away is told by how far compaction has come."""
    log = fill(store, segments=4)
    append_pairs(log, [(b"c", b"last")])
    roll(log)
    finish(house, store, next_job(house, store))
    store.set_configs("t", {"cleanup.policy": "delete"})
    before = pairs(log)
    house.disk = house.disk.crash(0, keep="nothing")
    house.disk.remove(f"{LOG}/recovery-point-offset-checkpoint")
    log = house.open().topics["t"].partitions[0]
    assert [offset for offset, _, _ in before] == [6, 7, 8]
    assert pairs(log) == before


def test_it_keeps_them_also_when_a_pass_ends_early() -> None:
    """Whenever the power goes, or because compaction is turned off between two turns of a pass."""
    at = 0
    was_cut = True
    while was_cut:
        house = House()
        store = house.open()
        fill(store, segments=4)
        job = next_job(house, store)
        steps = store.compaction.put_in_place(job, run(house.disk, job), house.clock.now_ms())
        at += 1
        house.disk.cut_power_at(house.disk.operations + at, after=True)
        was_cut = False
        try:
            next(steps)
        except PowerCut:
            was_cut = True
            store = house.crash()
        house.disk.cut_power_at(0)
        store.set_configs("t", {"cleanup.policy": "delete"})
        assert list(steps) == []
        before = pairs(store.topics["t"].partitions[0])
        house.disk = house.disk.crash(0, keep="nothing")
        house.disk.remove(f"{LOG}/recovery-point-offset-checkpoint")
        assert pairs(house.open().topics["t"].partitions[0]) == before, at
    assert at > 10


def test_behind_what_was_compacted_a_gap_is_still_the_end(house: House, store: LogStore) -> None:
    log = fill(store)
    finish(house, store, next_job(house, store))
    store.set_configs("t", {"cleanup.policy": "delete"})
    fill(store, segments=3)
    bases = base_offsets(log)
    house.disk = house.disk.crash(0, keep="nothing")
    house.disk.remove(f"{LOG}/recovery-point-offset-checkpoint")
    house.disk.remove(f"{log.directory}/{offset_name(bases[-3], LOG_SUFFIX)}")
    log = house.open().topics["t"].partitions[0]
    assert log.log_end_offset == bases[-3]


def test_what_was_dropped_stays_dropped_whenever_the_power_goes() -> None:
    """A log that compaction makes smaller starts nowhere below where readers were told."""
    bound = 60_000
    house = House()
    store = house.open()
    configs = {
        "cleanup.policy": "compact,delete",
        "min.cleanable.dirty.ratio": "0.01",
        # So that few segments become one, and a pass has several to put in place.
        "index.interval.bytes": "100",
        "segment.index.bytes": "100",
        "headwater.overflow": "drop",
        "headwater.overflow.bytes": str(bound),
    }
    store.create_topics([("t", 1, configs)])
    log = store.topics["t"].partitions[0]
    told = 0
    crashed: list[tuple[int, MemoryDisk]] = []

    def write() -> None:
        nonlocal told
        number = log.log_end_offset
        append_pairs(log, [(b"same", bytes(3_000)), (b"%d" % number, bytes(1_000))])
        for item in log.begin_commit():
            item.sync()
        log.end_commit()
        drop_above(log, bound)
        told = log.log_start_offset

    def cut(_: Operation) -> None:
        crashed.append((told, house.disk.after_power_cut(0, keep="nothing")))

    for _ in range(10):
        for _ in range(4):
            write()
        roll(log)
    house.disk.after_operation = cut
    starts = set()
    for _ in range(2):
        job = next_job(house, store)
        cleaned = run(house.disk, job)
        for _ in store.compaction.put_in_place(job, cleaned, house.clock.now_ms()):
            starts.add(told)
            # Between two swaps more is dropped, by the log as the first has left it.
            for _ in range(3):
                write()
        roll(log)
    house.disk.after_operation = None
    assert len(starts) > 2
    for before, disk in crashed:
        house.disk = disk
        found = house.open().topics["t"].partitions[0]
        drop_above(found, bound)
        assert found.log_start_offset >= before
