"""One bucket's steps on a state store that Spark itself offers for tests."""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from headwater.streams.kernel import processor
from headwater.streams.kernel.buckets import bucket_ids
from headwater.streams.kernel.errors import StateDamagedError, StateMismatchError
from headwater.streams.kernel.keys import encode_keys
from headwater.streams.kernel.operator import Step, Time
from headwater.streams.kernel.packing import from_bytes, to_bytes
from headwater.streams.kernel.processor import BucketProcessor, Setting
from headwater.streams.kernel.state import State
from headwater.streams.windows.aggregates import aggregation
from headwater.streams.windows.aligned import AlignedWindows
from headwater.streams.windows.panes import Windows
from headwater.streams.windows.sliding import SlidingWindows

BUCKET = bucket_ids(4)[2]
VALUES = pa.schema([("c0", pa.int64())])
ROWS = pa.schema(
    [
        ("key", pa.binary()),
        ("time", pa.int64()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("c0", pa.int64()),
    ]
)


@pytest.fixture(autouse=True)
def _own_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    processor._copies.cache_clear()
    yield
    processor._copies.cache_clear()


def bucket_with(*, clocks: int = 1, fingerprint: dict[str, str] | None = None) -> TwsTester:
    operator = AlignedWindows(
        Windows(10, 10), [aggregation("count"), aggregation("sum", "c0", pa.int64())], VALUES
    )
    setting = Setting(operator, (ROWS,), fingerprint or {"operator": "windows"}, 4, clocks)
    return TwsTester(BucketProcessor(setting))


def blob(*events: tuple[str, int | None, int]) -> Row:
    """Pack events: key, time and offset; their number is ten times the offset."""
    names, times, offsets = zip(*events, strict=True)
    rows = pa.table(
        {
            "key": encode_keys([pa.array(names)], len(names)),
            "time": pa.array(times, pa.int64()),
            "partition": pa.array([0] * len(names), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "c0": pa.array([10 * offset for offset in offsets], pa.int64()),
        },
        schema=ROWS,
    )
    operator = AlignedWindows(
        Windows(10, 10), [aggregation("count"), aggregation("sum", "c0", pa.int64())], VALUES
    )
    return sent(blob=to_bytes(operator.combine(0, rows)).to_pybytes(), input=0)


def told(watermark: int | None, *, clock: str = "a", idle: bool = False, hold: int = 0) -> Row:
    return sent(clock=clock, watermark=watermark, idle=idle, hold=hold)


def sent(**fields: object) -> Row:
    names = ("bucket", "input", "blob", "clock", "watermark", "idle", "hold")
    empty = dict.fromkeys(names) | {"bucket": BUCKET, "input": -1}
    return Row(**(empty | fields))


def given_rows(results: list[Row]) -> list[dict[str, Any]]:
    return [
        row
        for each in results
        if each.blob is not None
        for row in from_bytes(each.blob).to_pylist()
    ]


def test_a_window_closes_when_the_clock_says_so_and_rows_are_numbered() -> None:
    test = bucket_with()
    assert test.test(BUCKET, [blob(("x", 3, 1), ("x", 4, 2), ("y", 12, 3)), told(None)]) == []
    assert test.test(BUCKET, [told(9)]) == []

    first = given_rows(test.test(BUCKET, [told(10)]))
    second = given_rows(test.test(BUCKET, [told(20)]))

    assert [(row["c0"], row["c1"], row["c2"], row["c3"]) for row in first] == [(0, 10, 2, 30)]
    assert [(row["c0"], row["c2"]) for row in second] == [(10, 1)]
    assert [(row["partition"], row["offset"]) for row in (*first, *second)] == [(2, 0), (2, 1)]


def test_late_events_are_counted_one_by_one_and_those_without_a_time_are_not_among_them() -> None:
    test = bucket_with()
    test.test(BUCKET, [told(100)])

    results = test.test(BUCKET, [blob(("x", 3, 1), ("x", 4, 2), ("x", 200, 3), ("x", None, 4))])

    assert [row.late for row in results] == [2]


def test_rows_count_before_the_time_of_their_batch() -> None:
    test = bucket_with()
    results = test.test(BUCKET, [told(50), blob(("x", 3, 1))])

    assert [row["c2"] for row in given_rows(results)] == [1]


def test_all_clocks_must_have_spoken_and_the_slowest_counts() -> None:
    test = bucket_with(clocks=2)
    test.test(BUCKET, [blob(("x", 3, 1)), told(100)])
    assert test.test(BUCKET, [told(5, clock="b")]) == []

    assert len(given_rows(test.test(BUCKET, [told(10, clock="b")]))) == 1


def test_nobody_waits_for_a_clock_that_is_idle() -> None:
    test = bucket_with(clocks=2)
    test.test(BUCKET, [blob(("x", 3, 1)), told(100)])

    assert len(given_rows(test.test(BUCKET, [told(None, clock="b", idle=True)]))) == 1


def test_a_clock_that_falls_silent_costs_no_step_and_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    test = bucket_with(clocks=2)
    test.test(BUCKET, [blob(("x", 3, 1)), told(5), told(2, clock="b")])
    step, times = AlignedWindows.step, list[Time]()

    def watched(self: AlignedWindows, state: State, inputs: Sequence[pa.Table], time: Time) -> Step:
        times.append(time)
        return step(self, state, inputs, time)

    monkeypatch.setattr(AlignedWindows, "step", watched)
    assert test.test(BUCKET, [told(2, clock="b"), told(5)]) == []
    assert test.test(BUCKET, [told(5, idle=True)]) == []
    assert times == []
    assert test.test(BUCKET, [told(4, clock="b")]) == []
    assert times == [Time(2, 4)]
    assert len(given_rows(test.test(BUCKET, [told(10, clock="b")]))) == 1, "nobody waits for a"


def test_a_clock_that_wakes_up_does_not_turn_time_back() -> None:
    test = bucket_with(clocks=2)
    test.test(BUCKET, [told(100), told(None, clock="b", idle=True)])
    test.test(BUCKET, [told(5, clock="b")])

    results = test.test(BUCKET, [blob(("x", 50, 1))])
    assert [row.late for row in results] == [1]


def test_what_is_held_back_is_waited_for() -> None:
    test = bucket_with()
    test.test(BUCKET, [blob(("x", 3, 1)), told(15, hold=10)])

    assert len(given_rows(test.test(BUCKET, [told(20, hold=10)]))) == 1


def test_state_of_another_operator_is_refused_and_what_differs_is_named() -> None:
    test = bucket_with(fingerprint={"key 1": "shop (string)", "sum": "of a", "value 1": "int64"})
    test.test(BUCKET, [told(1)])
    header = test.peekValueState("header", BUCKET)
    assert header is not None
    other = bucket_with(fingerprint={"sum": "of b", "value 1": "double"})
    other.updateValueState("header", BUCKET, header)

    with pytest.raises(StateMismatchError, match="value 1: int64 became double") as raised:
        other.test(BUCKET, [told(2)])
    assert "sum: of a became of b; " in str(raised.value)
    assert "key 1: shop (string) became none" in str(raised.value)
    assert "new checkpointLocation" in raised.value.hint


def changed_header(change: Callable[[dict[str, Any]], object]) -> TwsTester:
    """Return a bucket whose state is that of another Headwater."""
    test = bucket_with()
    test.test(BUCKET, [blob(("x", 3, 1)), told(1)])
    kept = test.peekValueState("header", BUCKET)
    assert kept is not None
    header = json.loads(kept[0])
    change(header)
    test.updateValueState("header", BUCKET, (json.dumps(header).encode(),))
    return test


@pytest.mark.parametrize(
    "version, who", [(2, "a newer Headwater"), (0, "an older Headwater"), ("1b", "another")]
)
def test_state_of_another_version_is_refused_whatever_else_has_changed(
    version: object, who: str
) -> None:
    def change(header: dict[str, Any]) -> None:
        header["state"]["version"] = version
        header["made by"] = {"what it is made by": "said in other words"}
        del header["clocks"]

    test = changed_header(change)
    with pytest.raises(StateDamagedError, match=f"state of version {version!r}") as raised:
        test.test(BUCKET, [told(2)])
    assert who in raised.value.hint
    assert "new checkpointLocation" in raised.value.hint


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.pop("state"),
        lambda header: header.pop("clocks"),
        lambda header: header.update(state=None),
        lambda header: header["state"].pop("tables"),
    ],
    ids=["state", "clocks", "nothing", "tables"],
)
def test_a_header_that_lacks_something_is_refused_by_name(
    change: Callable[[dict[str, Any]], object],
) -> None:
    with pytest.raises(StateDamagedError, match="cannot be read") as raised:
        changed_header(change).test(BUCKET, [told(2)])
    assert "new checkpointLocation" in raised.value.hint


def test_bytes_that_are_no_header_are_refused_by_name() -> None:
    test = bucket_with()
    test.updateValueState("header", BUCKET, (b"\x80\x04\x95",))
    with pytest.raises(StateDamagedError, match="cannot be read"):
        test.test(BUCKET, [told(2)])


def test_a_chunk_that_is_missing_is_named() -> None:
    test = bucket_with()
    test.test(BUCKET, [blob(("x", 3, 1)), told(1)])
    test.deleteState("chunks", BUCKET)
    processor._copies.cache_clear()
    with pytest.raises(StateMismatchError, match="missing from the checkpoint"):
        test.test(BUCKET, [told(20)])


def test_the_store_holds_no_chunk_that_the_header_does_not_name() -> None:
    test = bucket_with()
    for offset in range(30):
        test.test(BUCKET, [blob(("x", 10 * offset, offset)), told(10 * offset - 25)])
        kept = test.peekValueState("header", BUCKET)
        assert kept is not None
        header = json.loads(kept[0])
        names = {name for (name,) in test.peekMapState("chunks", BUCKET)}
        assert all(name in json.dumps(header) for name in names)
        assert len(names) <= 4


@given(st.permutations(range(6)))
@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_the_order_of_blobs_changes_nothing(order: list[int]) -> None:
    blobs = [
        blob((f"k{number % 2}", number, number), ("z", 15, 100 + number)) for number in range(6)
    ]

    def run(arranged: list[Row]) -> tuple[Any, ...]:
        test = bucket_with()
        results = test.test(BUCKET, [told(12), *arranged])
        return (
            [each.blob for each in results],
            test.peekValueState("header", BUCKET),
            test.peekMapState("chunks", BUCKET),
        )

    assert run(blobs) == run([blobs[number] for number in order])


def test_rows_of_one_place_stand_alike_in_whatever_order_their_blobs_come() -> None:
    operator = SlidingWindows(10, [aggregation("collect", "c0", pa.int64())], VALUES, passed=["c0"])
    halves = [
        sent(blob=to_bytes(operator.combine(0, rows)).to_pybytes(), input=0)
        for number in (1, 2, 3)
        for rows in [
            pa.table([encode_keys([pa.array(["x"])], 1), [5], [0], [7], [number]], schema=ROWS)
        ]
    ]
    found = []
    for blobs in itertools.permutations(halves):
        test = TwsTester(BucketProcessor(Setting(operator, (ROWS,), {"operator": "one"}, 4, 1)))
        results = given_rows(test.test(BUCKET, [*blobs, told(10)]))
        found.append([(row["c0"], row["c1"]) for row in results])

    assert len(found[0]) == 3
    assert all(each == found[0] for each in found)
