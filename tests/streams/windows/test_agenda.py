"""What waits comes when it is due, once, and never before."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.kernel.keys import encode_keys
from headwater.streams.kernel.table import Table
from headwater.streams.windows.agenda import DUE, Agenda

SCHEMA = pa.schema([("number", pa.int64()), (DUE, pa.int64())])
SECOND = 1 << 20

dues = st.one_of(
    st.integers(-5 * SECOND, 5 * SECOND),
    st.integers(0, 10**6).map(lambda number: number * SECOND),
    st.integers(-(2**58), 2**58),
)


def entries(numbered: list[tuple[int, int]]) -> pa.Table:
    keys = encode_keys(
        [pa.array([str(number % 3) for number, _ in numbered], pa.string())], len(numbered)
    )
    columns = [[number for number, _ in numbered], [due for _, due in numbered]]
    return pa.table(
        [keys, *(pa.array(column, pa.int64()) for column in columns)], names=["key", "number", DUE]
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.lists(dues, max_size=6), st.one_of(st.none(), dues)), max_size=6),
)
def test_rows_come_with_the_first_step_that_reaches_them(
    steps: list[tuple[list[int], int | None]],
) -> None:
    agenda = Agenda("x", SCHEMA, ("number",))
    tables: dict[str, Table] = {"other": Table.empty(SCHEMA)}
    waiting: dict[int, int] = {}
    now: int | None = None
    count = 0
    for added, mark in [*steps, ([], 2**60)]:
        numbered = list(enumerate(added, start=count))
        count += len(added)
        waiting |= dict(numbered)
        if mark is not None:
            now = mark if now is None else max(now, mark)

        found = agenda.advance(tables, entries(numbered), now)

        given_now = {row["number"]: row[DUE] for table in found for row in table.to_pylist()}
        due = {number: time for number, time in waiting.items() if now is not None and time <= now}
        assert given_now == due
        waiting = {number: time for number, time in waiting.items() if number not in due}
        assert sum(len(table) for table in tables.values()) == len(waiting)
    assert list(tables) == ["other"]


def test_a_far_future_takes_few_tables() -> None:
    agenda = Agenda("x", SCHEMA, ("number",))
    tables: dict[str, Table] = {}
    year = 365 * 24 * 3600 * SECOND
    spread = [(number, number * year // 20_000) for number in range(20_000)]

    agenda.advance(tables, entries(spread), 0)

    assert len(tables) <= 80
