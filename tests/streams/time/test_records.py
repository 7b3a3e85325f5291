"""What lies in the topic of reports: found again under any order, repetition and compaction."""

import itertools
import json
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.base.record.records import Record, build_batch
from headwater.streams.time.errors import TimeLogError
from headwater.streams.time.fold import Place, Progress, Report, merged
from headwater.streams.time.records import Names, QueryScan, TimeScan, report_record

QUERY, NAME = "q1", "at/any/p0123"
NAMES = Names(NAME, NAME)
PLACES = [("a", 0), ('ä,"b', 1)]
ALL = dict.fromkeys(PLACES, 10**9)


def written(records: list[Record], *, at: int = 0) -> bytes:
    """Write each record as a batch of its own, at rising offsets."""
    made = bytearray()
    for offset, record in enumerate(records, start=at):
        batch = build_batch([record])
        batch[0:8] = offset.to_bytes(8, "big")
        made += batch
    return bytes(made)


def scanned(records: list[Record]) -> TimeScan:
    """Read records of which a query has read all rows."""
    scan = TimeScan(QUERY, NAMES).take(written(records))
    scan.fold(ALL)
    return scan


def folded(seen: list[tuple[Place, Report]]) -> dict[Place, Progress]:
    found: dict[Place, Progress] = {}
    for place, report in seen:
        if report.time_us is not None:
            new = Progress(report.time_us, report.at_ms)
            found[place] = merged(found.get(place), new)
    return found


def times(progress: dict[Place, Progress]) -> dict[Place, int]:
    return {place: each.time_us for place, each in progress.items()}


def own(place: Place, report: Report) -> Record:
    return report_record(QUERY, NAME, place, report)


# The rows of an offset range have one largest time, whoever reports them.
@st.composite
def reports(draw: st.DrawFn) -> list[tuple[Place, Report]]:
    times = {
        place: draw(st.lists(st.none() | st.integers(0, 20), min_size=6, max_size=6))
        for place in PLACES
    }
    found = []
    for _ in range(draw(st.integers(0, 10))):
        place = draw(st.sampled_from(PLACES))
        first = draw(st.integers(0, 5))
        last = draw(st.integers(first, 5))
        known = [time for time in times[place][first : last + 1] if time is not None]
        found.append(
            (place, Report(max(known, default=None), first, last, draw(st.integers(1, 9))))
        )
    return found


@given(st.data(), reports())
def test_what_is_read_is_what_was_reported_in_any_order(
    data: st.DataObject, seen: list[tuple[Place, Report]]
) -> None:
    records = [own(*each) for each in seen]
    noise = [
        report_record("q2", NAME, PLACES[0], Report(99, 0, 9, 1)),
        report_record(QUERY, "at/any/2", PLACES[0], Report(99, 0, 9, 1)),
        Record(0, 1, b'["clock","c1"]', b'{"version":1,"query":"q1"}'),
        Record(0, 1, b"nobody's", b"{"),
        Record(0, 1, None, b"nobody's"),
    ]
    assert scanned(data.draw(st.permutations([*records, *noise]))).progress() == folded(seen)


@given(st.data(), reports())
def test_whatever_compaction_and_clearing_up_remove_the_same_is_known(
    data: st.DataObject, seen: list[tuple[Place, Report]]
) -> None:
    timed = [own(*each) for each in seen if each[1].time_us is not None]
    log = data.draw(st.permutations(timed))
    scan = scanned(log)
    removed = scan.surpassed
    assert all(len(list(group)) <= 2 for _, group in _live_by_place(log, removed))
    kept = [
        record
        for number, record in enumerate(log)
        if record.key not in removed
        and (
            record.key not in {later.key for later in log[number + 1 :]} or data.draw(st.booleans())
        )
    ]
    assert times(scanned(kept).progress()) == times(folded(seen))


def _live_by_place(log: list[Record], removed: set[bytes]):  # type: ignore[no-untyped-def]  # noqa: ANN202
    keys = sorted({record.key for record in log if record.key is not None} - removed)
    return itertools.groupby(keys, key=lambda key: json.loads(key)[3:5])


def test_a_task_that_was_given_up_and_writes_late_lowers_nothing() -> None:
    early, late = Report(150, 0, 50, 1), Report(140, 51, 99, 2)
    log = [own(PLACES[0], early), own(PLACES[0], late), own(PLACES[0], early._replace(at_ms=3))]
    scan = scanned(log)
    assert scan.progress()[PLACES[0]].time_us == 150
    assert scan.surpassed == set(), "one has the time, the other the offset"
    scan.take(written([own(PLACES[0], Report(151, 100, 100, 4))], at=3)).fold(ALL)
    assert len(scan.surpassed) == 2


def test_reports_whose_times_only_fall_do_not_pile_up() -> None:
    falling = [Report(100 - number, number, number, 1) for number in range(50)]
    scan = scanned([own(PLACES[0], each) for each in falling])
    assert len(scan.surpassed) == 48
    assert scan.progress()[PLACES[0]].time_us == 100


def test_a_log_is_gone_on_with_and_what_is_cut_off_comes_later() -> None:
    log = written([own(PLACES[0], Report(1, 0, 0, 1)), own(PLACES[0], Report(2, 1, 1, 1))])
    scan = TimeScan(QUERY, NAMES).take(log[:-10])
    assert scan.next_offset == 1
    scan.fold(ALL)
    assert scan.progress()[PLACES[0]].time_us == 1
    scan.take(log).fold(ALL)
    assert scan.next_offset == 2
    assert scan.progress()[PLACES[0]].time_us == 2
    assert scan.counts == {PLACES[0]: 2}


def test_a_log_that_is_deleted_takes_nothing_away() -> None:
    scan = scanned([own(PLACES[0], Report(7, 0, 3, 1))])
    scan.start_again()
    scan.take(written([own(PLACES[1], Report(9, 0, 3, 1))])).fold(ALL)
    assert {place: each.time_us for place, each in scan.progress().items()} == {
        PLACES[0]: 7,
        PLACES[1]: 9,
    }


def test_reports_of_rows_that_were_not_read_wait() -> None:
    read, half_read, unread = Report(7, 0, 3, 1), Report(9, 2, 5, 1), Report(8, 4, 6, 1)
    scan = TimeScan(QUERY, NAMES)
    scan.take(written([own(PLACES[0], each) for each in (unread, half_read, read)]))
    for position, time_us in ((0, None), (3, None), (4, 7), (5, 7), (6, 9), (7, 9)):
        scan.fold({PLACES[0]: position})
        progress = scan.progress().get(PLACES[0])
        assert (None if progress is None else progress.time_us) == time_us


def test_reports_without_a_time_tell_nothing() -> None:
    """Earlier releases wrote them."""
    scan = scanned([own(PLACES[0], Report(None, 0, 9, 1))])
    assert not scan.progress()
    assert not scan.counts


def test_what_a_checkpoint_of_an_earlier_release_has_read_is_found_under_its_number() -> None:
    def named(number: str, place: Place, time_us: int) -> Record:
        return report_record(QUERY, f"at/any/{number}", place, Report(time_us, 0, 0, 1))

    log = [
        named("1", PLACES[0], 5),
        named("2", PLACES[0], 3),
        named("2", PLACES[1], 8),
        named("p0fed", PLACES[0], 99),
        report_record(QUERY, "of/any/1", PLACES[0], Report(99, 0, 0, 1)),
    ]
    scan = TimeScan(QUERY, Names(NAME, None)).take(written(log))
    scan.fold(ALL)
    found = {place: each.time_us for place, each in scan.progress().items()}
    assert found == {PLACES[0]: 3, PLACES[1]: 8}, "of two clocks the slower"
    scan.take(written([own(PLACES[0], Report(4, 1, 1, 1))], at=len(log))).fold(ALL)
    assert scan.progress()[PLACES[0]].time_us == 4


def test_if_the_plan_was_changed_the_name_before_counts_for_what_was_read_before() -> None:
    log = [
        report_record(QUERY, "at/any/pbefore", PLACES[0], Report(5, 0, 1, 1)),
        report_record(QUERY, "at/any/pbefore", PLACES[0], Report(9, 2, 3, 1)),
        report_record(QUERY, "at/any/pother", PLACES[0], Report(99, 0, 0, 1)),
    ]
    scan = TimeScan(QUERY, Names(NAME, "at/any/pbefore")).take(written(log))
    scan.fold({PLACES[0]: 2})
    assert scan.progress()[PLACES[0]].time_us == 5
    scan.take(written([own(PLACES[0], Report(6, 2, 3, 1))], at=len(log))).fold({PLACES[0]: 4})
    assert scan.progress()[PLACES[0]].time_us == 6, "a copy with the plan before has read on"


@dataclass
class Checkpoint:
    """What a checkpoint holds: how far it has read, and what was folded."""

    position: int = 0
    fold: Progress | None = None


FORKS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(0, 2), st.integers(1, 4)),
        st.tuples(st.just("plan"), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("copy"), st.integers(0, 2), st.integers(0, 2)),
        st.tuples(st.just("clear up"), st.integers(0, 2), st.booleans()),
    ),
    max_size=30,
)


@settings(max_examples=300)
@given(st.lists(st.integers(0, 20), min_size=12, max_size=12), FORKS)
def test_copies_of_a_checkpoint_know_what_they_have_read_and_nothing_else(
    times: list[int],
    steps: list[tuple[str, int, int]],
) -> None:
    """Three checkpoints of one query, copied over each other at any time, write to one log."""
    log: list[Record] = []
    checkpoints = [Checkpoint() for _ in range(3)]
    has_cleared = False

    def plan(checkpoint: Checkpoint, *, is_kept: bool) -> TimeScan:
        """Plan in a process of its own; the fold is written down if the decision changes."""
        scan = TimeScan(QUERY, NAMES).take(written(log))
        scan.fold({PLACES[0]: checkpoint.position})
        found = scan.progress().get(PLACES[0])
        fold = checkpoint.fold if found is None else merged(checkpoint.fold, found)
        right = max(times[: checkpoint.position], default=None)
        known = None if fold is None else fold.time_us
        if has_cleared:
            assert right is None or known is None or known <= right
        else:
            assert known == right
        if is_kept:
            checkpoint.fold = fold
        return scan

    def read(checkpoint: Checkpoint, count: int) -> None:
        start, end = checkpoint.position, min(checkpoint.position + count, len(times))
        if end > start:
            log.append(own(PLACES[0], Report(max(times[start:end]), start, end - 1, 1)))
            checkpoint.position = end

    for step, which, how in steps:
        checkpoint = checkpoints[which]
        if step == "read":
            read(checkpoint, how)
        elif step == "copy":
            checkpoints[how] = Checkpoint(checkpoint.position, checkpoint.fold)
        else:
            scan = plan(checkpoint, is_kept=bool(how))
            if step == "clear up":
                has_cleared = has_cleared or bool(scan.surpassed)
                log = [each for each in log if each.key not in scan.surpassed]
    for checkpoint in checkpoints:
        while checkpoint.position < len(times):
            read(checkpoint, 5)
            plan(checkpoint, is_kept=True)
        plan(checkpoint, is_kept=True)
        assert checkpoint.fold is not None
        assert checkpoint.fold.time_us == max(times), "whatever was removed, it heals"


def test_all_that_is_remembered_of_a_query_is_found() -> None:
    mine = own(PLACES[0], Report(7, 0, 3, 1))
    gone = own(PLACES[1], Report(7, 0, 3, 1))
    bind, others = (
        Record(0, 1, f'["clock","{clock}"]'.encode(), f'{{"version":1,"query":"{query}"}}'.encode())
        for clock, query in (("c1", QUERY), ("c2", "q2"))
    )
    log = [bind, mine, others, gone, gone._replace(value=None), Record(0, 1, b"x", b"y")]
    assert QueryScan(QUERY).take(written(log)).keys == {bind.key, mine.key}


@pytest.mark.parametrize("value", [b"", b"7", b'{"version":1}', b'{"version":1,"time":"soon"}'])
def test_a_report_of_ours_that_cannot_be_read_is_no_guess(value: bytes) -> None:
    broken = own(PLACES[0], Report(1, 0, 0, 1))._replace(value=value)
    with pytest.raises(TimeLogError, match="none of ours"):
        scanned([broken])


def test_a_report_of_a_newer_version_is_no_guess() -> None:
    newer = own(PLACES[0], Report(1, 0, 0, 1))._replace(value=b'{"version":2}')
    with pytest.raises(TimeLogError, match="version 2"):
        scanned([newer])
