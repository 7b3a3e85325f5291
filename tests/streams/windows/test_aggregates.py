"""Every aggregate: any pieces in any order give the same bytes, and what DuckDB or Python gives."""

import math
import random
import re
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC
from decimal import Decimal
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.base.errors import HeadwaterError
from headwater.streams.kernel.canonical import canonical
from headwater.streams.windows.aggregates import NAMES, aggregation
from headwater.streams.windows.aggregation import Aggregations
from headwater.streams.windows.errors import AggregateTypeError, SumOverflowError
from tests.streams.kernel.laws import comparable

DUCKDB = duckdb.connect(config={"threads": 1})
DECIMAL = pa.decimal128(9, 3)
any_double = st.one_of(
    st.floats(), st.floats(width=16), st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan])
)
any_long = st.one_of(st.integers(-5, 5), st.integers(-(2**40), 2**40))
any_decimal = st.integers(-(10**9) + 1, 10**9 - 1).map(lambda number: Decimal(number).scaleb(-3))
any_text = st.one_of(st.sampled_from(["", "a", "ab", "b", "é", "z\0"]), st.text(max_size=5))
any_time = st.datetimes().map(lambda when: when.replace(tzinfo=UTC))
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): any_long,
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.float64(): any_double,
    pa.float32(): st.floats(width=32),
    DECIMAL: any_decimal,
    pa.string(): any_text,
    pa.binary(): st.binary(max_size=4),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): any_time,
}
NUMERIC = {pa.int64(), pa.int16(), pa.float64(), pa.float32(), DECIMAL}
NUMBERS_ONLY = {"sum", "avg", "variance", "stddev", "percentile"}
CASES = [
    (name, kind, options)
    for name in NAMES
    for kind in KINDS
    if name not in NUMBERS_ONLY or kind in NUMERIC
    for options in (
        [{"p": 0.9}, {"p": 0.25, "exact": True}]
        if name == "percentile"
        else [{"k": 3}]
        if name == "heavy_hitters"
        else [{}]
    )
]

Values = list[tuple[int, Any]]


def table_of(values: Values, kind: pa.DataType) -> pa.Table:
    """One column with its values, at times that repeat."""
    count = len(values)
    return pa.table(
        {
            "group": pa.array([group for group, _ in values], pa.int64()),
            "c0": pa.array([value for _, value in values], kind),
            "time": pa.array([number // 3 for number in range(count)], pa.int64()),
            "topic": pa.array(["y" if number % 2 else "x" for number in range(count)], pa.string()),
            "partition": pa.array([-number % 3 for number in range(count)], pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
        }
    )


def partials_of(over: Aggregations, table: pa.Table) -> pa.Table:
    codes = table.column("group").to_numpy()
    found = over.update(codes, 3, table)
    return pa.Table.from_arrays(found, schema=over.partials)


def merged(over: Aggregations, pieces: Sequence[pa.Table]) -> pa.Table:
    codes = np.tile(np.arange(3), len(pieces))
    found = over.merge(codes, 3, pa.concat_tables(pieces).combine_chunks())
    return pa.Table.from_arrays(found, schema=over.partials)


def result(name: str, values: Values, kind: pa.DataType, **options: float | bool) -> list[Any]:
    over = Aggregations([aggregation(name, "c0", kind, **options)])
    (found,) = over.finish(partials_of(over, table_of(values, kind)))
    found.validate(full=True)
    assert found.type == over.outputs[0]
    listed: list[Any] = found.to_pylist()
    return listed


def in_bytes(table: pa.Table) -> list[Any]:
    return [
        [buffer and buffer.to_pybytes() for buffer in canonical(column.combine_chunks()).buffers()]
        for column in table.columns
    ]


@pytest.mark.parametrize("name,kind,options", CASES)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_neither_pieces_nor_order_can_be_seen(
    name: str, kind: pa.DataType, options: dict[str, Any], data: st.DataObject
) -> None:
    one = st.tuples(st.integers(0, 2), st.one_of(st.none(), KINDS[kind]))
    table = table_of(data.draw(st.lists(one, max_size=25)), kind)
    chance = random.Random(data.draw(st.integers(0, 99)))
    over = Aggregations([aggregation(name, "c0", kind, **options)])
    together = partials_of(over, table)
    for number, expected in enumerate(together.schema.types):
        assert together.column(number).type == expected

    owners = np.array([chance.randrange(3) for _ in range(table.num_rows)], np.int64)
    pieces = [partials_of(over, table.filter(pa.array(owners == owner))) for owner in range(3)]
    chance.shuffle(pieces)
    left = merged(over, [merged(over, pieces[:2]), pieces[2]])
    right = merged(over, [pieces[0], merged(over, pieces[1:])])

    assert in_bytes(left) == in_bytes(together)
    assert in_bytes(right) == in_bytes(together)


def by_group(answer: Callable[[list[Any]], Any]) -> Callable[[Values], list[Any]]:
    """Compute an answer for each group of values, nulls left out."""

    def answers(values: Values) -> list[Any]:
        return [
            answer([value for owner, value in values if owner == group and value is not None])
            for group in range(3)
        ]

    return answers


def by_duckdb(expression: str, kind: pa.DataType) -> Callable[[Values], list[Any]]:
    """Let DuckDB compute an answer for each group."""

    def answers(values: Values) -> list[Any]:
        DUCKDB.register("events", table_of(values, kind))
        found = DUCKDB.execute(
            f'select {expression} from range(3) as wanted(g) left join events on g = "group" '
            "group by g order by g"
        ).fetchall()
        return [row[0] for row in found]

    return answers


PLACES = 'time, topic, "partition", "offset"'
ORACLES: list[tuple[str, pa.DataType, dict[str, Any], Callable[[Values], list[Any]]]] = [
    *(("count", kind, {}, by_duckdb("count(c0)", kind)) for kind in KINDS),
    *(("min", kind, {}, by_duckdb("min(c0)", kind)) for kind in KINDS if kind != pa.float32()),
    *(("max", kind, {}, by_duckdb("max(c0)", kind)) for kind in KINDS if kind != pa.float32()),
    *(
        (name, kind, {}, by_duckdb(f"{name}(c0 order by {PLACES}) filter (c0 is not null)", kind))
        for kind in KINDS
        for name in ("first", "last")
    ),
    *(
        (
            *("collect", kind, {}),
            by_duckdb(f"coalesce(list(c0 order by {PLACES}) filter (c0 is not null), [])", kind),
        )
        for kind in KINDS
    ),
    *(("distinct", kind, {}, by_duckdb("count(distinct c0)", kind)) for kind in KINDS),
    # So few values never share a register but by bad luck, and then the estimate is one too low.
    ("approx_distinct", pa.bool_(), {}, by_duckdb("count(distinct c0)", pa.bool_())),
    ("sum", pa.int64(), {}, by_duckdb("sum(c0)::bigint", pa.int64())),
    ("sum", pa.int16(), {}, by_duckdb("sum(c0)::bigint", pa.int16())),
    ("sum", DECIMAL, {}, by_duckdb("sum(c0)", DECIMAL)),
    ("avg", pa.int64(), {}, by_group(lambda found: sum(found) / len(found) if found else None)),
    ("avg", pa.int16(), {}, by_duckdb("avg(c0)", pa.int16())),
    (
        *("percentile", pa.int64(), {"p": 0.3, "exact": True}),
        by_duckdb("quantile_cont(c0::double, 0.3)", pa.int64()),
    ),
]


@pytest.mark.parametrize("name,kind,options,oracle", ORACLES)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_results_are_those_of_another_engine(
    name: str,
    kind: pa.DataType,
    options: dict[str, Any],
    oracle: Callable[[Values], list[Any]],
    data: st.DataObject,
) -> None:
    one = st.tuples(st.integers(0, 2), st.one_of(st.none(), KINDS[kind]))
    values = data.draw(st.lists(one, max_size=25))

    found, wanted = result(name, values, kind, **options), oracle(values)

    if name == "percentile":
        assert found == [None if each is None else pytest.approx(each) for each in wanted]
    else:
        assert comparable(found) == comparable(wanted)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_a_sum_of_doubles_is_off_by_no_more_than_the_last_bit_of_the_largest(
    numbers: list[float],
) -> None:
    (found, *_) = result("sum", [(0, number) for number in numbers], pa.float64())

    if not numbers:
        assert found is None
        return
    exact = sum(map(Fraction, numbers), Fraction(0))
    if abs(exact) > Fraction(1.7e308):
        return
    nearest = float(exact)
    largest = max(map(abs, numbers))
    let_go = len(numbers) * Fraction(largest) / 2**90
    assert abs(Fraction(found) - exact) <= Fraction(math.ulp(nearest)) / 2 + let_go


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1e15, 1e15, allow_subnormal=False), min_size=1))
def test_a_sum_of_doubles_alike_is_rounded_once(numbers: list[float]) -> None:
    numbers = [number if abs(number) > 1e-3 else 0.0 for number in numbers]

    (found, *_) = result("sum", [(0, number) for number in numbers], pa.float64())

    assert found == math.fsum(numbers)


@pytest.mark.parametrize(
    "numbers,total",
    [
        ([math.inf, 1.0], math.inf),
        ([-math.inf, 1e308], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, math.inf], math.nan),
        ([1e308, 1e308], math.inf),
        ([1e308, 1e308, -1e308], 1e308),
        ([-0.0], 0.0),
        ([5e-324, 5e-324], 1e-323),
        ([1.0, 2.0**-53, 2.0**-80], 1.0 + 2.0**-52),
        ([1.0, 2.0**-53], 1.0),
        ([-1.0, -(2.0**-53), -(2.0**-80)], -1.0 - 2.0**-52),
    ],
)
def test_sums_at_the_edges(numbers: list[float], total: float) -> None:
    (found, *_) = result("sum", [(0, number) for number in numbers], pa.float64())

    assert comparable(found) == comparable(total)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6).map(lambda number: number + 1e9), min_size=2, max_size=20))
def test_a_variance_far_from_zero_is_as_good_as_pythons(numbers: list[float]) -> None:
    values = [(0, number) for number in numbers]

    assert result("variance", values, pa.float64())[0] == pytest.approx(
        float(statistics.variance(map(Fraction, numbers))), rel=1e-15
    )
    assert result("stddev", values, pa.float64())[0] == pytest.approx(
        math.sqrt(statistics.variance(map(Fraction, numbers))), rel=1e-15
    )


@pytest.mark.parametrize("name", ["variance", "stddev"])
def test_numbers_have_a_variance_from_the_second_on(name: str) -> None:
    # An eighth and a half, so that DuckDB, which computes with doubles, is exact too.
    values: Values = [(1, 1.0), (1, None), (2, 1.0), (2, 1.5)]
    asked = {"variance": "var_samp(c0)", "stddev": "stddev_samp(c0)"}[name]

    assert result(name, values, pa.float64()) == by_duckdb(asked, pa.float64())(values)
    assert result(name, values, pa.float64())[:2] == [None, None]


@pytest.mark.parametrize("name", ["variance", "stddev"])
def test_what_is_no_number_has_no_variance_either(name: str) -> None:
    none, infinite, nan = result(
        name, [(0, math.nan), (1, math.inf), (1, 1.0), (2, math.nan), (2, 1.0)], pa.float64()
    )

    assert none is None
    assert math.isnan(infinite)
    assert math.isnan(nan)


@settings(max_examples=100, deadline=None)
@given(st.lists(any_decimal, min_size=1, max_size=20))
def test_an_average_of_decimals_is_rounded_half_up(numbers: list[Decimal]) -> None:
    (found, *_) = result("avg", [(0, number) for number in numbers], DECIMAL)

    step = Decimal("1e-7")
    expected = (sum(numbers) / Decimal(len(numbers))).quantize(step, "ROUND_HALF_UP")
    assert found == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=50), st.integers(0, 100))
def test_a_percentile_is_near_the_value_at_its_rank(numbers: list[float], percent: int) -> None:
    (found, *_) = result(
        "percentile", [(0, number) for number in numbers], pa.float64(), p=percent / 100
    )

    true = sorted(numbers)[max(1, -(-percent * len(numbers) // 100)) - 1]
    assert found == pytest.approx(true, rel=0.0079, abs=1e-308)


@settings(max_examples=100, deadline=None)
@given(st.floats(allow_nan=False), st.integers(1, 9), st.integers(0, 1000))
def test_the_exact_percentile_of_equal_values_is_that_value(
    value: float, count: int, permille: int
) -> None:
    values = [(0, value)] * count

    (found, *_) = result("percentile", values, pa.float64(), p=permille / 1000, exact=True)

    assert found == value


def test_percentiles_of_what_is_no_number() -> None:
    numbers = [(0, math.nan), (0, 1.0), (1, -math.inf), (2, math.inf), (2, -math.inf)]

    highest = result("percentile", numbers, pa.float64(), p=1.0)
    assert math.isnan(highest[0])
    assert highest[1:] == [-math.inf, math.inf]
    exact = result("percentile", numbers, pa.float64(), p=0.0, exact=True)
    assert exact == [1.0, -math.inf, -math.inf]


@pytest.mark.parametrize("count", [1, 100, 1000, 1366, 5000, 100_000])
def test_an_estimate_of_distinct_values_is_near(count: int) -> None:
    values = [(0, number) for number in range(count)]

    (found, *_) = result("approx_distinct", values, pa.int64())

    # Three times the standard error.
    assert abs(found - count) <= 0.05 * count


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from("abcdefg"), max_size=60))
def test_few_values_are_counted_exactly(letters: list[str]) -> None:
    (found, *_) = result("heavy_hitters", [(0, letter) for letter in letters], pa.string(), k=3)

    counted = sorted(Counter(letters).items(), key=lambda each: (-each[1], each[0]))
    assert [(each["value"], each["count"], each["error"]) for each in found] == [
        (letter, count, 0) for letter, count in counted[:3]
    ]


def test_many_values_are_counted_within_the_bound() -> None:
    chance = random.Random(7)
    over = Aggregations([aggregation("heavy_hitters", "c0", pa.int64(), k=2)])
    counts: Counter[int] = Counter()
    state: pa.Table | None = None
    for _ in range(5):
        batch = [int(chance.paretovariate(0.4)) % 100_000 for _ in range(3000)]
        counts.update(batch)
        fresh = partials_of(over, table_of([(0, value) for value in batch], pa.int64()))
        both = fresh if state is None else merged(over, [state, fresh])
        state = pa.Table.from_arrays(
            over.trim([column.combine_chunks() for column in both.columns]), schema=over.partials
        )

    assert state is not None
    (found,) = over.finish(state)
    hitters = found.to_pylist()[0]
    assert [each["value"] for each in hitters] == [value for value, _ in counts.most_common(2)]
    assert 0 < hitters[0]["error"] <= counts.total() / 1001
    for each in hitters:
        assert each["count"] <= counts[each["value"]] <= each["count"] + each["error"]


def test_a_sum_that_a_long_cannot_hold_is_an_error() -> None:
    with pytest.raises(
        SumOverflowError, match="-9223372036854775809 is larger than a long"
    ) as told:
        result("sum", [(1, -(2**63)), (1, -1), (0, 5)], pa.int64())

    assert told.value.group == 1


def test_a_sum_that_a_decimal_cannot_hold_is_an_error() -> None:
    kind = pa.decimal128(38, 0)
    almost = Decimal("9" * 38)
    minus = almost.copy_negate()

    assert result("sum", [(0, almost), (0, almost), (0, minus)], kind)[0] == almost
    with pytest.raises(SumOverflowError, match=r"decimal\(38,0\)"):
        result("sum", [(0, almost), (0, Decimal(1))], kind)


@pytest.mark.parametrize(
    "name,kind,options",
    [
        ("sum", pa.string(), {}),
        ("avg", pa.bool_(), {}),
        ("stddev", pa.date32(), {}),
        ("min", pa.list_(pa.int64()), {}),
        ("max", pa.struct([("a", pa.int64())]), {}),
        ("distinct", pa.list_(pa.int64()), {}),
        ("approx_distinct", pa.map_(pa.string(), pa.string()), {}),
        ("percentile", pa.string(), {}),
        ("percentile", pa.float64(), {"p": 1.5}),
        ("heavy_hitters", pa.int64(), {"k": 0}),
        ("median", pa.int64(), {}),
    ],
)
def test_what_an_aggregate_cannot_take_is_refused(
    name: str, kind: pa.DataType, options: dict[str, Any]
) -> None:
    with pytest.raises(HeadwaterError):
        aggregation(name, "c0", kind, **options)


def test_all_but_the_count_of_rows_need_a_column() -> None:
    with pytest.raises(AggregateTypeError, match="needs a column"):
        aggregation("sum")


@pytest.mark.parametrize(
    "name,kind,output",
    [
        ("count", pa.string(), pa.int64()),
        ("sum", pa.int8(), pa.int64()),
        ("sum", pa.float32(), pa.float64()),
        ("sum", pa.decimal128(20, 3), pa.decimal128(30, 3)),
        ("sum", pa.decimal128(35, 3), pa.decimal128(38, 3)),
        ("avg", pa.int32(), pa.float64()),
        ("avg", pa.decimal128(20, 3), pa.decimal128(24, 7)),
        ("min", pa.float32(), pa.float32()),
        ("max", pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
        ("collect", pa.date32(), pa.list_(pa.date32())),
    ],
)
def test_results_have_the_types_that_spark_gives_them(
    name: str, kind: pa.DataType, output: pa.DataType
) -> None:
    assert aggregation(name, "c0", kind).aggregate.output == output


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.one_of(st.none(), any_long)), max_size=25),
    st.integers(1, 4),
    st.integers(0, 25),
)
def test_the_first_and_the_last_are_the_ends_of_all(values: Values, rows: int, cut: int) -> None:
    table = table_of(values, pa.int64())
    for name in ("time", "topic", "partition", "offset"):
        # As when each record becomes several rows: these are equal in all that orders them.
        column = table.column(name).take(pa.array(np.arange(len(values)) // rows))
        table = table.set_column(table.column_names.index(name), name, column)
    names = ("first", "last", "collect")
    over = Aggregations([aggregation(name, "c0", pa.int64()) for name in names])
    pieces = [partials_of(over, table.slice(0, cut)), partials_of(over, table.slice(cut))]

    for partials in (partials_of(over, table), merged(over, pieces)):
        firsts, lasts, lists = (column.to_pylist() for column in over.finish(partials))
        places = table.select(["time", "topic", "partition", "offset"]).to_pylist()
        order = sorted(range(len(values)), key=lambda at: list(places[at].values()))
        found = [[values[at][1] for at in order if values[at][0] == group] for group in range(3)]
        wanted = [[value for value in group if value is not None] for group in found]

        assert lists == wanted
        assert firsts == [each[0] if each else None for each in wanted]
        assert lasts == [each[-1] if each else None for each in wanted]


@pytest.mark.parametrize(
    "name,numbers,told",
    [
        ("sum", ["9" * 37, "1.5", "-0.5"], f"the sum 1{'0' * 37}.0 is larger"),
        ("avg", ["9" * 35, "9" * 35], f"the average {'9' * 35}.00000 is larger"),
    ],
)
def test_a_decimal_that_overflows_is_told_with_all_its_digits(
    name: str, numbers: list[str], told: str
) -> None:
    with pytest.raises(SumOverflowError, match=re.escape(told)):
        result(name, [(0, Decimal(number)) for number in numbers], pa.decimal128(38, 1))
