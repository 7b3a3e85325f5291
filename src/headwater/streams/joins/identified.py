"""Tables whose primary keys are columns, joined by the operator that takes them as bytes.

This file alone decides which bytes tell the rows of a table apart: those of the kernel for the
columns of the primary key, as far as they are not part of the join key. They are made by the packer
and not by Spark, whose text of a row has timestamps without their microseconds, and two texts for
zero. The last value of each table is the version of its change, which the join is given as such.
"""

from collections.abc import Sequence

import pyarrow as pa

from headwater.streams.joins.tables import TableJoin
from headwater.streams.kernel.arrays import whole
from headwater.streams.kernel.keys import encode_keys
from headwater.streams.kernel.operator import VERSION, Step, Time, value_name
from headwater.streams.kernel.state import State


class IdentifiedTables:
    """Joins two tables, of which some values are the rest of the primary key."""

    hold_us = 0

    def __init__(
        self,
        left: pa.Schema,
        right: pa.Schema,
        *,
        identities: tuple[Sequence[str], Sequence[str]],
        kind: str,
    ) -> None:
        """Prepare the join.

        Args:
            left: The values of the left table, the version of its changes last.
            right: The same of the right table.
            identities: Of each table, which values tell the rows of one join key apart.
            kind: inner, left, right or full.
        """
        self.inputs = (left, right)
        self.output = _numbered([*left.types[:-1], *right.types[:-1]])
        self._identities = tuple(tuple(names) for names in identities)
        self._join = TableJoin(_identified(left), _identified(right), kind=kind)
        self.parameters = {"kind": kind, "primary keys": [list(each) for each in self._identities]}

    def start(self) -> State:
        """Return two tables without rows."""
        return self._join.start()

    def combine(self, which: int, rows: pa.Table) -> pa.Table:
        """Put the bytes in front that tell rows apart, and call the version by its name."""
        *names, version = self.inputs[which].names
        identity = [whole(rows.column(name)) for name in self._identities[which]]
        others = [name for name in rows.column_names if name not in {*names, version}]
        columns = [rows.column(name) for name in (*others, version)]
        columns += [encode_keys(identity, rows.num_rows), *(rows.column(name) for name in names)]
        numbered = [value_name(number) for number in range(len(names) + 1)]
        return pa.table(columns, names=[*others, VERSION, *numbered])

    def step(self, state: State, inputs: Sequence[pa.Table], time: Time) -> Step:
        """Have the tables joined, and leave the bytes out of what comes of it."""
        step = self._join.step(state, inputs, time)
        names = self._join.output.names
        dropped = {names[0], names[len(self.inputs[0])]}
        rows = step.rows.drop_columns(sorted(dropped))
        kept = [name for name in names if name not in dropped]
        renamed = dict(zip(kept, self.output.names, strict=True))
        rows = rows.rename_columns([renamed.get(name, name) for name in rows.column_names])
        return step._replace(rows=rows)


def _identified(values: pa.Schema) -> pa.Schema:
    return _numbered([pa.binary(), *values.types[:-1]])


def _numbered(types: Sequence[pa.DataType]) -> pa.Schema:
    return pa.schema([(value_name(number), kind) for number, kind in enumerate(types)])
