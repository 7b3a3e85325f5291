"""Tumbling and hopping windows against DuckDB and plain Python."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.kernel.chunks import DictStore
from headwater.streams.kernel.errors import RetractionError
from headwater.streams.kernel.operator import Time
from headwater.streams.kernel.state import State
from headwater.streams.windows.aggregates import NAMES, aggregation
from headwater.streams.windows.aligned import AlignedWindows
from headwater.streams.windows.errors import (
    SumOverflowError,
    WindowSettingError,
)
from headwater.streams.windows.lateness import Correct, Drop, Lateness
from headwater.streams.windows.panes import Windows
from tests.streams.kernel.laws import (
    FOREVER,
    Batch,
    check_laws,
    cut,
    expected,
    play,
    rows,
    watermarks_within,
)
from tests.streams.windows.streams import Arrivals, arrivals, arriving, ask, keys, told

VALUES = pa.schema([("c0", pa.int64()), ("c1", pa.float64())])
AGGREGATIONS = [
    aggregation("count"),
    aggregation("sum", "c0", pa.int64()),
    aggregation("sum", "c1", pa.float64()),
    aggregation("min", "c1", pa.float64()),
    aggregation("last", "c0", pa.int64()),
]
IDENTITY = ("c0", "c1")
PLACE = ("time", "topic", "partition", "offset", "arrival")
YEAR_1 = -62_135_596_800_000_000
YEAR_9999 = 253_402_300_799_999_999
SECOND = 1_000_000

# Quarters, so that the order in which the oracle adds cannot show.
numbers = st.one_of(st.none(), st.integers(-40, 40).map(lambda number: number / 4))
events = st.lists(
    st.tuples(keys, st.integers(-30, 60), st.one_of(st.none(), st.integers(-9, 9)), numbers),
    max_size=40,
)
windows = st.sampled_from(
    [
        *(Windows(1, 1), Windows(10, 10), Windows(10, 5), Windows(9, 1, -2)),
        *(Windows(6, 4, 1), Windows(10, 3, -4), Windows(11, 7, 20)),
        # So many that panes share tables.
        *(Windows(40, 1), Windows(70, 2, 1), Windows(67, 2, -1)),
    ]
)


def operator(over: Windows, late: Lateness | None = None) -> AlignedWindows:
    return AlignedWindows(over, AGGREGATIONS, VALUES, late or Drop())


def batch_answer(table: pa.Table, over: Windows) -> Sequence[tuple[Any, ...]]:
    """What DuckDB gives for all rows at once."""
    return ask(
        f"""
        with starts as (
            select unnest(generate_series(-200, 200)) * {over.slide_us} + {over.offset_us} as start
        )
        select key, start, start + {over.length_us}, count(*), sum(c0)::bigint, sum(c1), min(c1),
            last(c0 order by time, "partition", "offset", arrival) filter (c0 is not null)
        from events join starts on time >= start and time < start + {over.length_us}
        group by key, start
        """,
        table,
    )


@settings(max_examples=40, deadline=None)
@given(events, windows, st.lists(st.integers(0, 40), max_size=5), st.lists(st.integers(0, 9)))
def test_any_batches_give_what_one_query_gives(
    listed: list[tuple[Any, ...]], over: Windows, places: list[int], slack: list[int]
) -> None:
    table = rows(listed, VALUES)
    pieces = cut(table, places)
    marks = watermarks_within(pieces, slack)
    batches = [Batch((piece,), mark) for piece, mark in zip(pieces, marks, strict=True)]

    left = check_laws(operator(over), batches, identity=IDENTITY)

    assert left.rows == expected(batch_answer(table, over))
    assert left.late == 0
    assert left.versions == 0


@pytest.mark.parametrize("time", [YEAR_1, -1, 0, YEAR_9999])
def test_the_ends_of_the_calendar_have_windows_too(time: int) -> None:
    over = Windows(60_000_000, 20_000_000, 7)
    batches = [Batch((rows([("a", time, 1, 1.0)], VALUES),), FOREVER)]

    left = check_laws(operator(over), batches, identity=IDENTITY)

    last_start = (time - 7) // 20_000_000 * 20_000_000 + 7
    starts = [last_start - 20_000_000 * number for number in range(3)]
    assert {row[1:3] for row in left.rows} == {(start, start + 60_000_000) for start in starts}


def test_nothing_closes_before_the_time_is_known() -> None:
    batches = [
        Batch((rows([("a", 1, 1, 1.0)], VALUES),), None),
        Batch((rows([("a", 2, 1, 1.0)], VALUES, first_offset=1),), None),
        Batch((rows([], VALUES),), 10),
    ]

    left = check_laws(operator(Windows(10, 10)), batches, identity=IDENTITY)

    assert [given.num_rows for given in left.played.given] == [0, 0, 1]
    assert left.rows == expected([("a", 0, 10, 2, 2, 2.0, 1.0, 1)])


def test_state_is_empty_when_all_windows_are_closed() -> None:
    batches = [Batch((rows([("a", 1, 1, 1.0)], VALUES),), FOREVER)]

    left = check_laws(operator(Windows(10, 5), Correct(3)), batches, identity=IDENTITY)

    assert '"tables": {}' in left.played.headers[-1][0]


def brute_force(
    batches: Sequence[Batch], over: Windows, until_us: int
) -> tuple[list[tuple[Any, ...]], int]:
    """Each window has the rows that came before it was closed for good; others are late."""
    inside: dict[tuple[str | None, int], list[tuple[Any, ...]]] = {}
    late, previous = 0, None
    for batch in batches:
        for row in told(batch):
            is_taken = False
            for start in range(-90, 40):
                end = start + over.length_us
                if (start - over.offset_us) % over.slide_us or row["time"] is None:
                    continue
                is_open = previous is None or end + until_us > previous
                if start <= row["time"] < end and is_open:
                    is_taken = True
                    place = [row[name] for name in PLACE]
                    inside.setdefault((row["key"], start), []).append((place, row["c0"], row["c1"]))
            late += row["time"] is not None and not is_taken
        previous = batch.watermark
    answer = []
    for (key, start), found in inside.items():
        found.sort(key=lambda row: row[0])
        wholes = [row[1] for row in found if row[1] is not None]
        fractions = [row[2] for row in found if row[2] is not None]
        answer.append(
            (
                *(key, start, start + over.length_us, len(found)),
                *(sum(wholes) if wholes else None, sum(fractions) if fractions else None),
                *(min(fractions, default=None), wholes[-1] if wholes else None),
            )
        )
    return answer, late


@settings(max_examples=40, deadline=None)
@given(
    arrivals(st.integers(-9, 9), numbers),
    windows,
    st.sampled_from([Drop(), Correct(1), Correct(7), Correct(30)]),
    st.integers(0, 3),
)
def test_late_rows_count_where_they_still_can(
    listed: list[tuple[list[tuple[Any, ...]], int]], over: Windows, late: Lateness, unknown: int
) -> None:
    batches = arriving(listed, VALUES, unknown=unknown)

    left = check_laws(operator(over, late), batches, identity=IDENTITY)

    answer, too_late = brute_force(batches, over, late.until_us)
    assert left.rows == expected(answer)
    assert left.late == too_late


#   time       0         10        20
#   window     |---------|              closes at 10, is corrected until 15
#   rows        x       y  z            z comes when the watermark is 12: the window is version 1
def test_a_late_row_takes_the_result_back_and_gives_it_again() -> None:
    batches = [
        Batch((rows([("a", 1, 1, 1.0), ("b", 2, 5, 1.0)], VALUES),), 12),
        Batch((rows([("a", 9, 2, 1.0), ("a", 8, 3, 1.0)], VALUES, first_offset=2),), 13),
        Batch((rows([("c", 3, 4, 1.0)], VALUES, first_offset=4),), 15),
        Batch((rows([("a", 3, 4, 1.0)], VALUES, first_offset=5),), 16),
    ]

    left = check_laws(operator(Windows(10, 10), Correct(5)), batches, identity=IDENTITY)

    columns = ["weight", "version", "c2", "c3", "time"]
    given = [table.select(columns).to_pylist() for table in left.played.given]
    as_tuples = [[tuple(row.values()) for row in batch] for batch in given]
    assert sorted(as_tuples[0]) == [(1, 0, 1, 1, 9), (1, 0, 1, 5, 9)]
    assert as_tuples[1] == [(-1, 0, 1, 1, 9), (1, 1, 3, 6, 9)]
    # A result that nobody saw on time is a correction as well.
    assert as_tuples[2] == [(1, 1, 1, 4, 9)]
    assert as_tuples[3] == []
    assert left.played.late == [0, 0, 0, 1]


def test_how_late_a_row_is() -> None:
    table = rows([("a", time, 1, 1.0) for time in (None, 0, 9, 10, 14, 20)], VALUES)

    mask, by_us = operator(Windows(10, 5), Correct(2)).late(0, table, 20)

    # The last windows end, with what is granted, at 12, 17, 22, 22 and 32.
    assert mask.tolist() == [True, True, True, False, False, False]
    assert by_us.tolist() == [0, 8, 3, 0, 0, 0]


def test_rows_without_a_time_are_in_no_window_and_not_late() -> None:
    table = rows([("a", None, 1, 1.0), ("b", 1, 1, 1.0), ("c", None, 1, 1.0)], VALUES)

    left = check_laws(operator(Windows(10, 10)), [Batch((table,), None)], identity=IDENTITY)

    assert left.late == 0


def test_an_overflow_names_window_and_key() -> None:
    table = rows([("a", 1, 2**63 - 1, 1.0), ("a", 2, 1, 1.0)], VALUES)
    over = operator(Windows(10, 10))

    with pytest.raises(SumOverflowError, match=r"window from 1970-01-01T00:00:00.*of the key 01"):
        play(over, [Batch((table,), FOREVER)])


def test_what_overflows_on_the_way_only_is_no_error() -> None:
    table = rows([("a", 1, 2**63 - 1, 1.0), ("a", 2, 1, 1.0), ("a", 3, -1, 1.0)], VALUES)

    left = check_laws(operator(Windows(10, 10)), [Batch((table,), FOREVER)], identity=IDENTITY)

    assert [row[4] for row in left.rows] == [2**63 - 1]


def test_rows_that_take_others_back_are_refused() -> None:
    table = rows([("a", 1, 1, 1.0)], VALUES).append_column("weight", pa.array([-1], pa.int8()))

    with pytest.raises(RetractionError, match=r"hf\.window is given rows that are taken back"):
        operator(Windows(10, 10)).combine(0, table)


@pytest.mark.parametrize("length,slide", [(0, 0), (10, 0), (10, 11), (-1, -1)])
def test_windows_that_make_no_sense_are_refused(length: int, slide: int) -> None:
    with pytest.raises(WindowSettingError):
        Windows(length, slide)


def test_windows_of_too_many_pieces_are_refused() -> None:
    Windows(10_000, 1)
    with pytest.raises(WindowSettingError, match="10001 pieces") as caught:
        Windows(10_001, 1)

    assert "less often" in (caught.value.hint or "")


@pytest.mark.parametrize("slide", [3 * SECOND, 3_001_000, 3_333_333, 9_999_999])
def test_rows_are_combined_however_odd_the_slide(slide: int) -> None:
    listed = [("a", 5_000 * number, 1, 1.0) for number in range(2000)]

    combined = operator(Windows(10 * SECOND, slide)).combine(0, rows(listed, VALUES))

    assert combined.num_rows <= 2 * -(-10 * SECOND // slide)


class CountingStore(DictStore):
    """Counts the chunks that are read."""

    reads = 0

    def get(self, name: str) -> pa.Buffer:
        self.reads += 1
        return super().get(name)


def test_an_hour_every_second_takes_few_tables_and_reads_none_when_nothing_is_due() -> None:
    over = operator(Windows(3600 * SECOND, SECOND))
    listed = [("a", number * SECOND, 1, 1.0) for number in range(3600)]
    first = over.step(over.start(), [over.combine(0, rows(listed, VALUES))], Time(None, 0))
    store = CountingStore({chunk.name: chunk.data() for chunk in first.state.chunks})
    nothing = over.combine(0, rows([], VALUES))

    assert len(first.state.tables) <= 33

    restored = State.restore(first.state.describe(), store)
    quiet = over.step(restored, [nothing], Time(0, SECOND - 1))
    reads_of_nothing = store.reads
    busy = over.step(quiet.state, [nothing], Time(SECOND - 1, 2 * SECOND))

    assert quiet.rows.num_rows == reads_of_nothing == 0
    assert store.reads == 1
    assert busy.rows.select(["c1", "c2"]).to_pylist() == [
        {"c1": SECOND, "c2": 1},
        {"c1": 2 * SECOND, "c2": 2},
    ]


def test_offsets_that_give_the_same_windows_can_go_on_with_each_others_state() -> None:
    listed = [("a", time, 1, 1.0) for time in range(-30, 30)]
    ways = [operator(Windows(70, 2, offset)) for offset in (1, 2001, -7)]

    steps = [
        way.step(way.start(), [way.combine(0, rows(listed, VALUES))], Time(None, 9)) for way in ways
    ]

    assert ways[0].parameters == ways[1].parameters == ways[2].parameters
    described = [step.state.describe() for step in steps]
    assert described[0] == described[1] == described[2]
    assert steps[0].rows == steps[1].rows == steps[2].rows


def test_a_bucket_that_missed_batches_closes_what_is_due_first() -> None:
    over = operator(Windows(10, 10))
    table = over.combine(0, rows([("a", 1, 1, 1.0)], VALUES))
    late = over.combine(0, rows([("a", 2, 1, 1.0), ("a", 12, 1, 1.0)], VALUES, first_offset=1))

    first = over.step(over.start(), [table], Time(None, 5))
    second = over.step(first.state, [late], Time(11, 30))

    assert second.late == 1
    assert second.rows.select(["c0", "c2"]).to_pylist() == [
        {"c0": 0, "c2": 1},
        {"c0": 10, "c2": 1},
    ]


def test_what_was_trimmed_is_taken_back_as_it_was_given() -> None:
    hitters = [aggregation("heavy_hitters", "c0", pa.int64(), k=2)]
    many = [("k", number % 9, number % 1500, 1.0) for number in range(2500)]
    batches = [
        Batch((rows(many, VALUES),), 30),
        Batch((rows([("k", 3, 7, 1.0)] * 30, VALUES, first_offset=2500),), 31),
        Batch((rows([("k", 4, 8, 1.0)] * 20, VALUES, first_offset=2530),), 32),
    ]

    left = check_laws(
        AlignedWindows(Windows(10, 10), hitters, VALUES, Correct(50)), batches, identity=IDENTITY
    )

    assert left.versions == 2
    for row in left.rows:
        found = row[3]
        assert isinstance(found, tuple)
        assert [dict(each)["value"] for each in found] == [7, 8]


@settings(max_examples=10, deadline=None)
@given(arrivals(st.integers(-9, 9), numbers))
def test_every_aggregate_can_lie_in_state(listed: Arrivals) -> None:
    every = [aggregation(name, "c1", pa.float64()) for name in NAMES]
    over = AlignedWindows(Windows(10, 5), every, VALUES, Correct(7))
    batches = arriving(listed, VALUES)

    left = check_laws(over, batches, identity=IDENTITY)

    answer, _ = brute_force(batches, Windows(10, 5), 7)
    assert {row[:3] for row in left.rows} == {row[:3] for row in answer}


def test_how_long_results_are_corrected_stays_with_the_state() -> None:
    """Panes that one patience has dropped are missing from what a longer one would correct."""
    ways = [operator(Windows(10, 10), late) for late in (Drop(), Correct(5), Correct(1000))]

    assert [way.parameters["results are corrected for"] for way in ways] == [
        "0 seconds",
        "5 us",
        "1 ms",
    ]


def test_panes_that_share_a_table_are_kept_apart() -> None:
    batches = [
        Batch((rows([("a", 10, 1, 1.0), ("b", 11, 2, 1.0)], VALUES),), 0),
        Batch((rows([("a", 11, 4, 1.0), ("b", 11, 8, 1.0)], VALUES, first_offset=2),), 0),
        Batch((rows([("b", 10, 16, 1.0)], VALUES, first_offset=4),), FOREVER),
    ]

    left = check_laws(operator(Windows(40, 1)), batches, identity=IDENTITY)

    sums = {(row[0], row[1]): row[4] for row in left.rows}
    assert [sums["a", start] for start in (-29, -28, 10, 11)] == [1, 5, 5, 4]
    assert [sums["b", start] for start in (-29, -28, 10, 11)] == [16, 26, 26, 10]
