"""What lies in the topic of reports: found again under any order, repetition and compaction."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.record.records import Record, build_batch
from headwater.streams.time.errors import TimeLogError
from headwater.streams.time.fold import Place, Report, folded
from headwater.streams.time.records import QueryScan, TimeScan, clock_record, report_record

CLOCK, QUERY, NAME = "c1", "q1", "at/any/1"
PLACES = [("a", 0), ('ä,"b', 1)]


def written(records: list[Record], *, at: int = 0) -> bytes:
    """Write each record as a batch of its own, at rising offsets."""
    made = bytearray()
    for offset, record in enumerate(records, start=at):
        batch = build_batch([record])
        batch[0:8] = offset.to_bytes(8, "big")
        made += batch
    return bytes(made)


def scanned(records: list[Record], *, query_id: str | None = None) -> TimeScan:
    return TimeScan(CLOCK, NAME, query_id=query_id).take(written(records))


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


BIND = clock_record(CLOCK, QUERY, 1)


@given(st.data(), reports())
def test_what_is_read_is_what_was_reported_wherever_the_binding_stands(
    data: st.DataObject, seen: list[tuple[Place, Report]]
) -> None:
    records = [own(*each) for each in seen]
    noise = [
        report_record("q2", NAME, PLACES[0], Report(99, 0, 9, 1)),
        report_record(QUERY, "at/any/2", PLACES[0], Report(99, 0, 9, 1)),
        clock_record("c2", "q2", 1),
        Record(0, 1, b"nobody's", b"{"),
        Record(0, 1, None, b"nobody's"),
    ]
    log = data.draw(st.permutations([*records, *noise, BIND]))
    scan = scanned(log)
    assert scan.query_id == QUERY
    assert scan.progress() == folded(seen)
    assert scanned(log, query_id=QUERY).progress() == folded(seen)


def positions(seen: list[tuple[Place, Report]]) -> dict[Place, tuple[int | None, int]]:
    return {place: (each.time_us, each.position) for place, each in folded(seen).items()}


@given(st.data(), reports())
def test_whatever_compaction_and_clearing_up_remove_the_same_is_known(
    data: st.DataObject, seen: list[tuple[Place, Report]]
) -> None:
    log = data.draw(st.permutations([own(*each) for each in seen]))
    scan = scanned(log, query_id=QUERY)
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
    again = scanned(kept, query_id=QUERY)
    assert {
        place: (each.time_us, each.position) for place, each in again.progress().items()
    } == positions(seen)


def _live_by_place(log: list[Record], removed: set[bytes]):  # type: ignore[no-untyped-def]  # noqa: ANN202
    keys = sorted({record.key for record in log if record.key is not None} - removed)
    return itertools.groupby(keys, key=lambda key: json.loads(key)[3:5])


def test_a_task_that_was_given_up_and_writes_late_lowers_nothing() -> None:
    early, late = Report(150, 0, 50, 1), Report(140, 51, 99, 2)
    log = [own(PLACES[0], early), own(PLACES[0], late), own(PLACES[0], early._replace(at_ms=3))]
    scan = scanned(log, query_id=QUERY)
    assert scan.progress()[PLACES[0]].time_us == 150
    assert scan.progress()[PLACES[0]].position == 100
    assert scan.surpassed == set(), "one has the time, the other the offset"
    scan.take(written([own(PLACES[0], Report(151, 100, 100, 4))], at=3))
    assert len(scan.surpassed) == 2


def test_reports_whose_times_only_fall_do_not_pile_up() -> None:
    falling = [Report(100 - number, number, number, 1) for number in range(50)]
    scan = scanned([own(PLACES[0], each) for each in falling], query_id=QUERY)
    assert len(scan.surpassed) == 48
    assert positions([(PLACES[0], each) for each in falling]) == {PLACES[0]: (100, 50)}
    assert scan.progress()[PLACES[0]][::2] == (100, 50)


def test_a_log_is_gone_on_with_and_what_is_cut_off_comes_later() -> None:
    log = written([BIND, own(PLACES[0], Report(1, 0, 0, 1)), own(PLACES[0], Report(2, 1, 1, 1))])
    scan = TimeScan(CLOCK, NAME).take(log[:-10])
    assert scan.next_offset == 2
    assert scan.progress()[PLACES[0]].time_us == 1
    scan.take(log)
    assert scan.next_offset == 3
    assert scan.progress()[PLACES[0]].time_us == 2


def test_the_binding_may_go_when_it_is_remembered_elsewhere() -> None:
    scan = scanned([BIND])
    scan.forget_clock()
    assert scan.surpassed == {BIND.key}
    scan.surpassed.clear()
    scan.forget_clock()
    assert scan.surpassed == set()


def test_a_log_that_is_deleted_takes_nothing_away() -> None:
    scan = scanned([BIND, own(PLACES[0], Report(7, 0, 3, 1))])
    scan.start_again()
    scan.take(written([own(PLACES[1], Report(9, 0, 3, 1))]))
    assert {place: each.time_us for place, each in scan.progress().items()} == {
        PLACES[0]: 7,
        PLACES[1]: 9,
    }


def test_all_that_is_remembered_of_a_query_is_found() -> None:
    mine, others = own(PLACES[0], Report(7, 0, 3, 1)), clock_record("c2", "q2", 1)
    gone = own(PLACES[1], Report(7, 0, 3, 1))
    log = [BIND, mine, others, gone, gone._replace(value=None), Record(0, 1, b"x", b"y")]
    assert QueryScan(QUERY).take(written(log)).keys == {BIND.key, mine.key}


@pytest.mark.parametrize("value", [b"", b"7", b'{"version":1}', b'{"version":1,"time":"soon"}'])
def test_a_report_of_ours_that_cannot_be_read_is_no_guess(value: bytes) -> None:
    broken = own(PLACES[0], Report(1, 0, 0, 1))._replace(value=value)
    with pytest.raises(TimeLogError, match="none of ours"):
        scanned([BIND, broken])


def test_a_report_of_a_newer_version_is_no_guess() -> None:
    newer = own(PLACES[0], Report(1, 0, 0, 1))._replace(value=b'{"version":2}')
    with pytest.raises(TimeLogError, match="version 2"):
        scanned([BIND, newer])
