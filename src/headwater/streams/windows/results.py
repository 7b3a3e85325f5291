"""The rows that windows give.

This file alone decides their columns and their order, and how a sum that overflowed is named.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import Int64s
from headwater.streams.kernel.errors import retracted
from headwater.streams.kernel.grouping import hashes
from headwater.streams.kernel.operator import KEY, TIME, VERSION, WEIGHT
from headwater.streams.time.moments import maybe_moment
from headwater.streams.windows.errors import SumOverflowError

INSERT: Final = 1
RETRACT: Final = -1

_HEAD: Final = (
    (KEY, pa.binary()),
    (TIME, pa.int64()),
    (WEIGHT, pa.int8()),
    (VERSION, pa.int32()),
)


def result_schema(output: pa.Schema) -> pa.Schema:
    """Return all columns of rows with these values."""
    return pa.schema([pa.field(name, kind) for name, kind in _HEAD] + list(output))


def result_rows(
    output: pa.Schema,
    keys: pa.Array,
    *,
    times: npt.NDArray[Any],
    weight: int,
    versions: npt.NDArray[Any],
    values: Sequence[pa.Array | Int64s],
) -> pa.Table:
    """Return rows that all appear, or that all are taken back."""
    columns = [
        keys,
        pa.array(times, pa.int64()),
        pa.array(np.full(len(keys), weight, np.int8)),
        pa.array(versions.astype(np.int32)),
        *(value if isinstance(value, pa.Array) else pa.array(value) for value in values),
    ]
    schema = result_schema(output)
    return pa.Table.from_arrays(
        [column.cast(kind) for column, kind in zip(columns, schema.types, strict=True)],
        schema=schema,
    )


def together(output: pa.Schema, tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of tables one behind the other, if there are any."""
    if not tables:
        return result_schema(output).empty_table()
    return pa.concat_tables(tables).combine_chunks()


def canonical_order(keys: pa.Array) -> Int64s:
    """Return the order of distinct keys that state has too: by hash, then by their bytes."""
    hashed = hashes(keys)
    order = np.argsort(hashed, kind="stable")
    hashed = hashed[order]
    if (hashed[1:] == hashed[:-1]).any():
        found = keys.to_pylist()
        marks = hashes(keys)
        order = np.array(sorted(range(len(found)), key=lambda row: (marks[row], found[row])))
    return order


def refuse_retractions(rows: pa.Table, who: str) -> None:
    """Refuse rows that take others back: aggregates cannot forget.

    Args:
        rows: All rows.
        who: To whom they are given, as people call it.

    Raises:
        RetractionError: There is one.
    """
    if WEIGHT not in rows.column_names:
        return
    weights = arrays.numbers(arrays.whole(rows.column(WEIGHT)), np.int8)
    if (weights != INSERT).any():
        raise retracted(who)


@contextmanager
def overflow_named(keys: pa.Array, starts: Int64s) -> Iterator[None]:
    """Name the key and the window of a sum that overflows."""
    try:
        yield
    except SumOverflowError as error:
        start = int(starts[error.group])
        raise SumOverflowError(
            f"{error.message}, in the window from {_as_text(start)} of the key "
            f"{keys[error.group].as_py().hex() or 'of all rows'}",
            error.group,
            hint=error.hint,
        ) from error


def _as_text(time_us: int) -> str:
    """Return a time as people read it; as a number where the calendar ends."""
    moment = maybe_moment(time_us)
    return f"{time_us} us" if moment is None else moment.isoformat()
