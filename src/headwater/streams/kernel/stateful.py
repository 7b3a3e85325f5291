"""Operators of one's own in DataFrames: `hf.stateful`.

This file alone decides how such an operator is put behind rows.
"""

from collections.abc import Callable, Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.streams.errors import hints_shown
from headwater.streams.formats.types import quoted
from headwater.streams.kernel.buckets import DEFAULT_BUCKETS
from headwater.streams.kernel.changes import (
    Kind,
    hidden_column,
    kind_of,
    refuse_retracted,
)
from headwater.streams.kernel.errors import OwnOperatorError, retracted
from headwater.streams.kernel.operator import value_name
from headwater.streams.kernel.own import Adapted, OwnOperator, check_own
from headwater.streams.kernel.plan import apply, prepare
from headwater.streams.kernel.ways import OP
from headwater.streams.naming import no_column
from headwater.streams.time.clocks import HIDDEN
from headwater.streams.time.durations import Duration, duration_us

_OP_HINT: Final = (
    f"keep the column {OP!r} and name it in columns=: it says what is taken back, and the operator "
    "has to go by it"
)


def stateful(
    operator: OwnOperator,
    *,
    by: str | Sequence[str],
    columns: Sequence[str] | None = None,
    time: str | None = None,
    hold: Duration = "0 seconds",
    buckets: int = DEFAULT_BUCKETS,
) -> Callable[[DataFrame], DataFrame]:
    """Run an operator of one's own over rows, with state, by key.

    Args:
        operator: An object with `state` and `output`, which are Arrow schemas, and `step(state,
            rows, watermark_us)`, which returns the next state and rows; see the guide.
        by: The columns of the key: rows with the same values are given to the same state.
        columns: The columns that the operator is given; all, if none are named.
        time: The column of its output that says when rows were, for windows behind it.
        hold: By how much these may be older than the watermark.
        buckets: Into how many parts the state is cut; for as long as the checkpoint lives.

    Raises:
        OwnOperatorError: It lacks what an operator has; from the function: a column is not there.
        RetractionError: From the function: rows may be taken back, and the operator is not given
            the column that says which are.
    """
    with hints_shown():
        check_own(operator)
        if time is not None and time not in operator.output.names:
            raise no_column(
                OwnOperatorError,
                time,
                operator.output.names,
                where="the output has",
                why=" for the time",
            )
        hold_us = duration_us(hold, "hold")

    def add(rows: DataFrame) -> DataFrame:
        with hints_shown():
            given = [name for name in rows.columns if name != HIDDEN]
            names = list(given if columns is None else columns)
            key = [by] if isinstance(by, str) else by
            for name in (*key, *names):
                if name not in given:
                    raise no_column(OwnOperatorError, name, given)
            if OP not in names:
                refuse_retracted(rows, "hf.stateful", hint=_OP_HINT)
                if kind_of(rows) is Kind.TABLE:
                    raise retracted("hf.stateful", _OP_HINT)
            keys = {name: F.col(quoted(name)) for name in key}
            values = [F.col(quoted(name)) for name in names]
            prepared = prepare(rows, keys, values, needs_time=time is not None)
            adapted = Adapted(operator, names, prepared.values, time=time, hold_us=hold_us)
            stepped = apply(adapted, [prepared], buckets=buckets, gives_keys=False)
            metadata = stepped.schema[HIDDEN].metadata
            own = [
                F.col(value_name(number)).alias(name, metadata=metadata if name == time else {})
                for number, name in enumerate(operator.output.names)
            ]
            return stepped.select(*own, hidden_column(stepped, retracts=False))

    return add
