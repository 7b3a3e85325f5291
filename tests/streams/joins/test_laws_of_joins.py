"""The laws of operators, held by every join: restored states, other pieces, many buckets."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.joins.asof import AsofJoin
from headwater.streams.joins.interval import IntervalJoin
from headwater.streams.joins.latest import LatestJoin
from headwater.streams.joins.rows import KINDS, LEFT, RIGHT, late_rows
from headwater.streams.kernel.arrays import Bools, Int64s
from headwater.streams.kernel.operator import Operator
from tests.streams.joins import test_tables
from tests.streams.joins.histories import VALUES, Batch, histories, rows_of
from tests.streams.kernel import laws


def none_late(rows: pa.Table, _: int | None) -> tuple[Bools, Int64s]:
    return np.zeros(rows.num_rows, np.bool_), np.zeros(rows.num_rows, np.int64)


def check(
    operator: Operator,
    batches: Sequence[Batch],
    identity: Sequence[str],
    late_by: Callable[[pa.Table, int | None], tuple[Bools, Int64s]] = none_late,
) -> None:
    laid_out = [
        laws.Batch(
            tuple(rows_of(batch.events, side, operator.inputs[side]) for side in (LEFT, RIGHT)),
            batch.watermark,
        )
        for batch in batches
    ]
    left = laws.check_laws(operator, laid_out, identity=identity)
    watermarks = [None, *(batch.watermark for batch in laid_out)]
    for batch, previous, late in zip(laid_out, watermarks, left.played.late, strict=False):
        told = [late_by(rows, previous) for rows in batch.inputs]
        assert sum(int(mask.sum()) for mask, _ in told) == late
        assert all(((by > 0) == mask).all() for mask, by in told)


@given(histories(events_max=20), st.sampled_from(KINDS), st.integers(-5, 5))
@settings(max_examples=20, deadline=None)
def test_of_streams_by_interval(batches: list[Batch], kind: str, lower_us: int) -> None:
    operator = IntervalJoin(VALUES, VALUES, kind=kind, lower_us=lower_us, upper_us=lower_us + 5)
    check(operator, batches, ("c0", "c2"), late_rows)


@given(
    histories(events_max=20, deletes=True),
    st.sampled_from(("inner", "left")),
    st.sampled_from((0, 9)),
)
@settings(max_examples=20, deadline=None)
def test_of_streams_and_tables_as_of_a_time(batches: list[Batch], kind: str, until_us: int) -> None:
    check(AsofJoin(VALUES, VALUES, kind=kind, until_us=until_us), batches, ("c0",), late_rows)


@given(histories(events_max=20, deletes=True))
@settings(max_examples=15, deadline=None)
def test_of_streams_and_tables_as_they_are(batches: list[Batch]) -> None:
    check(LatestJoin(VALUES, VALUES, kind="left"), batches, ("c0",))


@given(test_tables.changelogs(), st.sampled_from(KINDS))
@settings(max_examples=20, deadline=None)
def test_of_tables(batches: list[Batch], kind: str) -> None:
    check(test_tables.join(kind), batches, ("c0", "c2"))
