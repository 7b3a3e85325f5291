"""The rows that another operator calls late, as they came.

This file alone decides how late rows leave a query: by a second way through the kernel, whose state
is nothing but the time, so that the operator itself need not carry rows that it has no use for.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from headwater.streams.kernel.arrays import Bools, Int64s
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


class Judge(Protocol):
    """Says what is late: an operator, or the rule that it goes by."""

    @property
    def parameters(self) -> Mapping[str, object]:
        """What must stay the same for as long as a state lives."""

    def late(self, which: int, rows: pa.Table, previous: int | None) -> tuple[Bools, Int64s]:
        """Tell which rows of an input are lost, and by how many microseconds: in its own way.

        Rows without a time are late by nothing, where the operator cannot do without.
        """


class LateRows:
    """The operator that lets nothing pass but late rows; its last value is how late they are."""

    hold_us = 0

    def __init__(self, of: Judge, values: pa.Schema, *, which: int = 0) -> None:
        """Take who judges, the values that rows carry past it, and of which input they are."""
        self._of = of
        self._which = which
        self.inputs = (values,)
        late = pa.field(value_name(len(values)), pa.int64())
        self.output = pa.schema([*values, late])

    @property
    def parameters(self) -> Mapping[str, object]:
        """What the judge goes by."""
        return self._of.parameters

    def start(self) -> State:
        """Return a state that stays empty."""
        return State()

    def combine(self, which: int, rows: pa.Table) -> pa.Table:  # noqa: ARG002 - there is but one
        """Keep all rows."""
        return rows

    def step(self, state: State, inputs: Sequence[pa.Table], time: Time) -> Step:
        """Let late rows pass; the operator itself counts them."""
        mask, late_us = self._of.late(self._which, inputs[0], time.previous)
        rows = inputs[0].filter(pa.array(mask))
        count = rows.num_rows
        given = {
            KEY: rows.column(KEY),
            TIME: rows.column(TIME),
            WEIGHT: pa.array(np.ones(count, np.int8)),
            VERSION: pa.array(np.zeros(count, np.int32)),
        }
        given |= {field.name: rows.column(field.name) for field in self.inputs[0]}
        given[self.output.names[-1]] = pa.array(late_us[mask])
        return Step(state, pa.table(given).combine_chunks())
