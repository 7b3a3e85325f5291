"""Defaults of `headwater.overflow`: what they have dropped stays dropped, through any start."""

import errno

import pytest

from headwater.base.errors import StorageError
from headwater.base.settings import BrokerSettings
from headwater.delivery.broker.configs import Change, Operation
from headwater.delivery.broker.topics import NewTopic
from headwater.log.partition import PartitionLog
from tests.delivery.dialects.kafka.desk import Desk

BOUND = 10_000
DROPPED_BY_DEFAULT = {"headwater.overflow": "drop", "headwater.overflow.bytes": str(BOUND)}
LARGER = {"headwater.overflow": "drop", "headwater.overflow.bytes": str(10 * BOUND)}


def dropping_desk(settings: dict[str, str]) -> Desk:
    """Start a broker with a topic that has no configs of its own."""
    desk = Desk(settings)
    desk.broker.topics.create([NewTopic("a", 1, {})])
    return desk


def fill(desk: Desk, count: int = 50) -> PartitionLog:
    partition = desk.broker.topics.partition("a", 0)
    assert partition is not None
    for _ in range(count):
        desk.append_unsynced("a", size=900)
        desk.broker.overflow.after_append(partition)
        desk.commits.run()
    return partition.log


def start_anew(desk: Desk, settings: dict[str, str], *, crash: bool = True) -> PartitionLog:
    desk.settings = BrokerSettings.parse(settings)
    if crash:
        desk.crash()
    else:
        desk.broker.store.close()
        desk.start()
    partition = desk.broker.topics.partition("a", 0)
    assert partition is not None
    return partition.log


@pytest.mark.parametrize(
    "settings", [LARGER, {"headwater.overflow": "buffer"}, {}], ids=["larger", "buffer", "none"]
)
def test_a_larger_default_after_a_crash_brings_nothing_back(settings: dict[str, str]) -> None:
    desk = dropping_desk(DROPPED_BY_DEFAULT)
    start = fill(desk).log_start_offset
    assert start > 0

    assert start_anew(desk, settings).log_start_offset == start
    # Also when it is the default of the run before last.
    assert start_anew(desk, settings).log_start_offset == start


@pytest.mark.parametrize("settings", [LARGER, {"headwater.overflow.bytes": str(10 * BOUND)}, {}])
def test_a_topic_that_drops_by_the_default_bound_gets_nothing_back(
    settings: dict[str, str],
) -> None:
    desk = Desk({"headwater.overflow.bytes": str(BOUND)})
    desk.broker.topics.create([NewTopic("a", 1, {"headwater.overflow": "drop"})])
    start = fill(desk).log_start_offset
    assert start > 0

    assert start_anew(desk, settings).log_start_offset == start


def test_a_bound_by_which_nothing_was_dropped_drops_nothing_later() -> None:
    """It was a default for topics that say `drop`; the next start says so for all, and more."""
    desk = dropping_desk({"headwater.overflow.bytes": str(BOUND)})
    assert fill(desk).log_start_offset == 0

    assert start_anew(desk, LARGER).log_start_offset == 0


def test_a_default_that_was_set_at_run_time_counts_like_one_of_the_start() -> None:
    desk = dropping_desk({})
    changes = [Change(name, Operation.SET, value) for name, value in DROPPED_BY_DEFAULT.items()]
    desk.broker.configs.alter_broker("", changes, keep_others=True, validate_only=False)
    start = fill(desk).log_start_offset
    assert start > 0
    changes = [Change(name, Operation.DELETE, None) for name in DROPPED_BY_DEFAULT]

    assert start_anew(desk, {}).log_start_offset == start
    desk.broker.configs.alter_broker("", changes, keep_others=True, validate_only=False)
    assert start_anew(desk, {}).log_start_offset == start


@pytest.mark.parametrize("crash", [True, False])
def test_what_a_larger_default_has_kept_is_not_dropped_by_the_smaller_one_before(
    crash: bool,
) -> None:
    desk = dropping_desk(DROPPED_BY_DEFAULT)
    start = fill(desk).log_start_offset
    start_anew(desk, LARGER, crash=crash)
    log = fill(desk)
    assert log.log_start_offset == start

    assert start_anew(desk, LARGER).log_start_offset == start


def test_a_topic_that_drops_without_a_bound_loses_nothing_in_a_crash() -> None:
    """The bound came from the broker and is gone; the note has another default, of no bound."""
    lax = {"log.flush.interval.messages": "1000000"}
    desk = Desk({**lax, "headwater.overflow.bytes": str(BOUND)})
    desk.broker.topics.create([NewTopic("a", 1, {"headwater.overflow": "drop"})])
    start_anew(desk, lax, crash=False)
    fill(desk)
    partition = desk.broker.topics.partition("a", 0)
    assert partition is not None
    partition.request_commit()
    desk.commits.run()
    start = partition.log.log_start_offset

    assert start_anew(desk, lax).log_start_offset == start


def test_the_brokers_own_topics_are_not_dropped_by_the_default_before() -> None:
    desk = dropping_desk(DROPPED_BY_DEFAULT)
    desk.broker.create_on_demand(["__consumer_offsets"], allowed=True)
    for _ in range(50):
        desk.append_unsynced("__consumer_offsets", size=900)
    desk.commits.run()
    start_anew(desk, {})

    partition = desk.broker.topics.partition("__consumer_offsets", 0)
    assert partition is not None
    assert partition.log.log_start_offset == 0


def test_where_nothing_is_dropped_by_default_no_default_is_noted() -> None:
    desk = dropping_desk({})
    entries = desk.broker.store.journal_entries
    assert desk.broker.store._manifest.image.noted == {}
    start_anew(desk, {}, crash=False)
    assert desk.broker.store.journal_entries == entries + 1


def test_a_change_that_was_refused_holds_at_no_later_start() -> None:
    """Whatever operation of the disk fails: what the client was told is what holds."""
    changes = [Change("headwater.overflow", Operation.SET, "drop")]
    changes.append(Change("headwater.overflow.bytes", Operation.SET, "1000"))
    for failing in range(1, 10):
        desk = dropping_desk({})
        log = fill(desk)
        desk.disk.fail_at(desk.disk.operations + failing, OSError(errno.ENOSPC, "no room"))
        try:
            desk.broker.configs.alter_broker("1", changes, keep_others=True, validate_only=False)
        except StorageError:
            assert log.config.headwater_overflow == "buffer"
            refused = not desk.broker.store.failed
        else:
            assert failing > 1
            return
        log = start_anew(desk, {}, crash=failing % 2 == 0 or not refused)
        if refused:
            assert log.config.headwater_overflow == "buffer"
            assert log.log_start_offset == 0
    pytest.fail("the change never went through")


@pytest.mark.parametrize("opened", range(4))
def test_a_change_that_lacks_a_file_holds_or_not_for_good(opened: int) -> None:
    desk = dropping_desk({})
    log = fill(desk)
    left = [opened]

    def lack(path: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.EMFILE, "no descriptor")

    desk.disk.on_open = lack
    changes = [Change(name, Operation.SET, value) for name, value in DROPPED_BY_DEFAULT.items()]
    try:
        desk.broker.configs.alter_broker("1", changes, keep_others=True, validate_only=False)
    except StorageError:
        expected = "buffer"
    else:
        expected = "drop"
    assert log.config.headwater_overflow == expected
    desk.disk.on_open = lambda _: None

    log = start_anew(desk, {}, crash=False)
    assert log.config.headwater_overflow == expected
    assert (log.log_start_offset > 0) is (expected == "drop")
