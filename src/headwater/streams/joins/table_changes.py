"""Tables in DataFrames as changes: what their upserts take back, and what they give.

This file alone decides how the operator that knows what a row was before is put behind a table. It
knows no join and no aggregate.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.streams.formats.types import quoted
from headwater.streams.joins.changelog import Upserts
from headwater.streams.kernel.changes import change_columns, kind_of, weight_of
from headwater.streams.kernel.operator import value_name
from headwater.streams.kernel.packing import key_name
from headwater.streams.kernel.plan import apply, prepare


def table_changes(
    table: DataFrame, key: Sequence[str], values: Mapping[str, Column], *, buckets: int
) -> DataFrame:
    """Return the rows of a table as changes.

    Args:
        table: What `hw.table` gives, or rows of which each replaces the one before it.
        key: The columns that tell its rows apart.
        values: What else is wanted of its rows, by name: nothing more is kept in state.
        buckets: Into how many parts the state is cut.

    Returns:
        The key, as far as no value has its name, the values, `op`, `version` and the hidden column.
    """
    keys = {name: F.col(quoted(name)) for name in key}
    weight = weight_of(kind_of(table))
    prepared = prepare(table, keys, list(values.values()), weight=weight, needs_time=False)
    given = apply(Upserts(prepared.values), [prepared], buckets=buckets, names=list(values))
    inner = {name: key_name(number) for number, name in enumerate(keys)}
    inner |= {name: value_name(number) for number, name in enumerate(values)}
    named = [F.col(column).alias(name) for name, column in inner.items()]
    return given.select(*named, *change_columns(given, retracts=True))
