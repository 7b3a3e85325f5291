"""Operators that people write themselves, with the names that they gave their columns.

This file alone decides what such an operator is given and what is asked of it. It is a class with
two schemas and one function:

    class Latest:
        state = pa.schema([("device", pa.string()), ("value", pa.float64())])
        output = state

        def step(self, state, rows, watermark_us):
            ...
            return new_state, output_rows

`state` is one table for all keys of a bucket, `rows` are the batch's, in the order of where they
come from. All rows of a key come to the same bucket; nothing else may be made of which keys share
one. The function must be pure: no clock, no dice, nothing kept elsewhere.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from headwater.streams.kernel.errors import OwnOperatorError
from headwater.streams.kernel.operator import (
    KEY,
    TIME,
    VERSION,
    WEIGHT,
    Step,
    Time,
    value_name,
)
from headwater.streams.kernel.state import State
from headwater.streams.kernel.table import Table

_ROWS: Final = "rows"
_NUMBER: Final = "number"


class OwnOperator(Protocol):
    """What people write.

    Attributes:
        state: The columns of its state.
        output: The columns of what it gives.
    """

    state: pa.Schema
    output: pa.Schema

    def step(
        self, state: pa.Table, rows: pa.Table, watermark_us: int | None
    ) -> tuple[pa.Table, pa.Table]:
        """Take a batch in: return the next state, and the rows that come out."""


def check_own(operator: object) -> None:
    """Refuse what is no operator.

    Raises:
        OwnOperatorError: It lacks what an operator has.
    """
    if isinstance(operator, type):
        raise OwnOperatorError(
            f"{operator.__name__} is a class, and an object of it is wanted",
            hint=f"make one: {operator.__name__}()",
        )
    for wanted in ("state", "output", "step"):
        found = getattr(operator, wanted, None)
        is_right = callable(found) if wanted == "step" else isinstance(found, pa.Schema)
        if not is_right:
            what = "no" if found is None else f"{found!r} as its"
            raise OwnOperatorError(
                f"{type(operator).__name__} has {what} `{wanted}`",
                hint="it needs two Arrow schemas, state and output, and a function step",
            )


class Adapted:
    """An operator of one's own as the kernel runs it."""

    def __init__(
        self,
        own: OwnOperator,
        names: Sequence[str],
        values: pa.Schema,
        *,
        time: str | None = None,
        hold_us: int = 0,
    ) -> None:
        """Take the operator and what it is given.

        Args:
            own: The operator.
            names: What its columns are called.
            values: The same columns as the kernel calls them.
            time: The column of its output that says when rows were, if there is one.
            hold_us: By how much these may be older than the watermark.
        """
        self._own = own
        self._names = list(names)
        self._time = time
        self.inputs = (values,)
        self.output = pa.schema(
            [pa.field(value_name(number), field.type) for number, field in enumerate(own.output)]
        )
        self.hold_us = hold_us

    @property
    def parameters(self) -> dict[str, object]:
        """What must stay the same for as long as a state lives."""
        return {"class": type(self._own).__name__, "columns of its state": _listed(self._own.state)}

    def start(self) -> State:
        """Return a state without rows."""
        return self._kept(self._own.state.empty_table())

    def combine(self, which: int, rows: pa.Table) -> pa.Table:  # noqa: ARG002 - there is but one
        """Keep all rows."""
        return rows

    def step(self, state: State, inputs: Sequence[pa.Table], time: Time) -> Step:
        """Let the operator take its step, with its own names."""
        rows = inputs[0].select(self.inputs[0].names).rename_columns(self._names)
        held = state.tables[_ROWS].scan()
        held = held.select(held.column_names[2:]).rename_columns(self._own.state.names)
        stepped: object = self._own.step(held, rows, time.now)
        if not isinstance(stepped, tuple | list) or len(stepped) != 2:
            raise OwnOperatorError(
                f"{type(self._own).__name__}.step gave a {type(stepped).__name__}, not two tables",
                hint="return the next state and what comes out, as in `return state, rows`",
            )
        new_state, given = stepped
        new_state = self._checked(new_state, self._own.state, "state")
        given = self._checked(given, self._own.output, "output")
        return Step(self._kept(new_state), self._given(given))

    def _checked(self, given: pa.Table, wanted: pa.Schema, what: str) -> pa.Table:
        if not isinstance(given, pa.Table) or given.column_names != wanted.names:
            found = given.column_names if isinstance(given, pa.Table) else type(given).__name__
            raise OwnOperatorError(
                f"{type(self._own).__name__}.step gave as its {what} {found}, not {wanted.names}",
                hint="return two pyarrow Tables, with the columns that `state` and `output` name",
            )
        try:
            return given.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise OwnOperatorError(
                f"{type(self._own).__name__}.step gave as its {what} other types: {error}",
                hint=f"it should be: {_listed(wanted)}",
            ) from error

    def _kept(self, rows: pa.Table) -> State:
        """Keep a state as it is: in its order, under one key."""
        named = {f"s{number}": rows.column(number) for number in range(rows.num_columns)}
        schema = pa.schema(
            [(_NUMBER, pa.int64())]
            + [(name, rows.schema.types[number]) for number, name in enumerate(named)]
        )
        table = Table.empty(schema, (_NUMBER,))
        if rows.num_rows:
            keys = pa.array([b""] * rows.num_rows, pa.binary())
            numbers = pa.array(np.arange(rows.num_rows))
            table = table.put(pa.table({KEY: keys, _NUMBER: numbers} | named).combine_chunks())
        return State({_ROWS: table})

    def _given(self, rows: pa.Table) -> pa.Table:
        count = rows.num_rows
        times = pa.nulls(count, pa.int64())
        if self._time is not None:
            times = rows.column(self._time).cast(pa.timestamp("us")).cast(pa.int64())
        head = {
            KEY: pa.array([b""] * count, pa.binary()),
            TIME: times,
            WEIGHT: pa.array(np.ones(count, np.int8)),
            VERSION: pa.array(np.zeros(count, np.int32)),
        }
        values = dict(zip(self.output.names, rows.columns, strict=True))
        return pa.table(head | values).combine_chunks()


def _listed(columns: pa.Schema) -> str:
    return ", ".join(f"{each.name} {each.type}" for each in columns)
