"""How joins read the rows of an input, and how they lay out what they give.

This file alone decides which columns of an input a join looks at, which rows are late, and in what
layout the two sides stand beside each other. It knows nothing of who belongs to whom.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.streams.joins.errors import JoinOptionError, JoinTooLargeError
from headwater.streams.joins.pairs import spread
from headwater.streams.kernel.arrays import Bools, Int64s, frozen, whole
from headwater.streams.kernel.errors import retracted
from headwater.streams.kernel.operator import KEY, TIME, VERSION, WEIGHT, value_name
from headwater.streams.kernel.packing import NULL_KEY
from headwater.streams.time.durations import duration_text

LEFT: Final = 0
RIGHT: Final = 1
"""Which input is which side."""

KINDS: Final = ("inner", "left", "right", "full")

NO_TIME: Final = np.iinfo(np.int64).min
"""What stands for the time of a row that has none."""

PAIRS_MAX: Final = 8_388_608
"""Pairs that one step of one bucket may give: about what a worker of 1 GB holds, at 100 bytes."""

_BLOCK_ROWS: Final = 131_072
"""Rows that are taken at once: a column of text has at most 2 GB in one piece."""

Condition = Callable[[pa.Table], Any]
"""Given pairs (columns l0, l1, ... and r0, r1, ...), which of them belong together: booleans."""


class Input(NamedTuple):
    """Rows of one side.

    Attributes:
        keys: The bytes of the keys.
        times: NO_TIME where there is none.
        has_key: Whether the row may have partners at all: there is no null in its key.
        values: c0, c1, ...
    """

    keys: pa.BinaryArray
    times: Int64s
    has_key: Bools
    values: pa.Table

    @property
    def matchable(self) -> Bools:
        """Return which rows may have partners where times decide: those with a key and a time."""
        matchable: Bools = self.has_key & (self.times != NO_TIME)
        return matchable

    def where(self, mask: Bools) -> "Input":
        """Return some of the rows."""
        if mask.all():
            return self
        chosen = np.flatnonzero(mask)
        return Input(
            self.keys.take(pa.array(chosen)),
            frozen(self.times[chosen]),
            frozen(self.has_key[chosen]),
            taken(self.values, chosen),
        )

    def __len__(self) -> int:
        return len(self.times)


class Part(NamedTuple):
    """Some of the rows that come out.

    Attributes:
        keys: The bytes of the keys.
        times: NO_TIME where there is none.
        left: The values of the left side; None where it has no partner.
        right: The values of the right side; None where it has no partner.
        weight: 1 for rows that appear, -1 for rows that are taken back.
        versions: By row, or 0 for all.
    """

    keys: pa.BinaryArray
    times: Int64s
    left: pa.Table | None
    right: pa.Table | None
    weight: int = 1
    versions: Int64s | None = None


class Layout:
    """Where the columns of what comes out stand.

    Attributes:
        values: The left's values, then the right's.
    """

    def __init__(self, left: pa.Schema, right: pa.Schema) -> None:
        types = [*left.types, *right.types]
        self.values = pa.schema([(value_name(at), type_) for at, type_ in enumerate(types)])
        self._types = (left.types, right.types)
        weight, version = (WEIGHT, pa.int8()), (VERSION, pa.int32())
        self._schema = pa.schema(
            [(KEY, pa.binary()), (TIME, pa.int64()), weight, version, *self.values]
        )
        self._nothing = self._schema.empty_table()

    def assembled(self, parts: Sequence[Part]) -> pa.Table:
        """Lay out what comes out, part by part."""
        tables = [self._laid_out(part) for part in parts if len(part.times)]
        return pa.concat_tables(tables) if tables else self._nothing

    def _laid_out(self, part: Part) -> pa.Table:
        rows = len(part.times)
        versions = np.zeros(rows, np.int32) if part.versions is None else part.versions
        columns: list[Any] = [
            part.keys,
            times_column(part.times),
            pa.array(np.full(rows, part.weight, np.int8)),
            pa.array(versions.astype(np.int32)),
        ]
        for types, values in zip(self._types, (part.left, part.right), strict=True):
            if values is None:
                columns += [pa.nulls(rows, type_) for type_ in types]
            else:
                columns += values.columns
        return pa.table(columns, schema=self._schema)


def check_kind(kind: str, allowed: Sequence[str] = KINDS) -> None:
    """Refuse a kind that the join does not have."""
    if kind not in allowed:
        raise JoinOptionError(
            f"this join cannot be {kind!r}", hint=f"take how= one of: {', '.join(allowed)}"
        )


def outer_sides(kind: str) -> tuple[bool, bool]:
    """Tell of which sides a join gives rows that have no partner."""
    return kind in {"left", "full"}, kind in {"right", "full"}


def late_rows(rows: pa.Table, previous: int | None) -> tuple[Bools, Int64s]:
    """Tell which rows are older than the watermark of the last batch, and by how much."""
    if previous is None or not rows.num_rows:
        return np.zeros(rows.num_rows, np.bool_), np.zeros(rows.num_rows, np.int64)
    times = times_of(rows)
    mask = (times < previous) & (times != NO_TIME)
    return mask, np.where(mask, previous - np.where(mask, times, previous), 0)


class TooLate(NamedTuple):
    """The rule by which rows of a stream are dropped: those that nothing can be made of any more.

    Attributes:
        until_us: How far behind the watermark rows may be.
        outer: Of which sides rows come out that belong to nothing, as those without a time do.
    """

    until_us: int
    outer: tuple[bool, bool]

    @property
    def parameters(self) -> dict[str, object]:
        """What must stay the same for as long as a state lives."""
        return {"results are corrected for": duration_text(self.until_us)}

    def late(self, which: int, rows: pa.Table, previous: int | None) -> tuple[Bools, Int64s]:
        """Tell which rows are dropped, and by how much they are behind the watermark."""
        mask, _ = late_rows(rows, None if previous is None else previous - self.until_us)
        if rows.num_rows and not self.outer[which]:
            mask |= times_of(rows) == NO_TIME
        return mask, np.where(mask, late_rows(rows, previous)[1], 0)


def times_of(rows: pa.Table) -> Int64s:
    """Return the times of rows, NO_TIME where there is none."""
    column = pc.fill_null(whole(rows.column(TIME)), NO_TIME)
    return frozen(column.to_numpy(zero_copy_only=False))


def times_column(times: Int64s) -> pa.Array:
    """Return times as a column, null where there is none."""
    return pa.array(times, pa.int64(), mask=times == NO_TIME)


def read(rows: pa.Table, schema: pa.Schema) -> Input:
    """Read the rows of an input; one without rows may be without columns, too."""
    if not rows.num_rows:
        nothing = frozen(np.empty(0, np.int64))
        keys = pa.array([], pa.binary())
        none = pa.table([pa.array([], type_) for type_ in schema.types], names=schema.names)
        return Input(keys, nothing, frozen(np.empty(0, np.bool_)), none)
    has_key = np.ones(rows.num_rows, np.bool_)
    # Some part of the key is null, so nothing equals it.
    if NULL_KEY in rows.column_names:
        nulls = whole(rows.column(NULL_KEY)).cast(pa.bool_())
        has_key = ~nulls.to_numpy(zero_copy_only=False)
    # Made anew, so that nothing but names and types decides whether two tables are alike.
    values = pa.table([rows.column(name) for name in schema.names], names=schema.names)
    return Input(whole(rows.column(KEY)), times_of(rows), frozen(has_key), values)


def weights_of(rows: pa.Table) -> Int64s:
    """Return the weights of rows: 1 where they have none."""
    if not rows.num_rows or WEIGHT not in rows.column_names:
        return frozen(np.ones(rows.num_rows, np.int64))
    return frozen(whole(rows.column(WEIGHT)).to_numpy(zero_copy_only=False).astype(np.int64))


def check_plain(rows: pa.Table, side: str) -> None:
    """Refuse rows that take others back: a stream of events has none."""
    if (weights_of(rows) < 0).any():
        raise retracted(f"the {side} side of a join of streams")


def taken(table: pa.Table, rows: Int64s) -> pa.Table:
    """Return some rows, in pieces that no column of text can overflow; nulls for row -1."""
    pieces = []
    for start in range(0, max(1, len(rows)), _BLOCK_ROWS):
        block = rows[start : start + _BLOCK_ROWS]
        pieces.append(table.take(pa.array(block, mask=block < 0)))
    return pa.concat_tables(pieces)


def equal_rows(some: pa.Table, others: pa.Table) -> Bools:
    """Tell which rows have the same values, nulls, NaN, and what is in lists and structs included.

    What Arrow cannot compare counts as different: to take a row back and give the same one again is
    right, if more than is needed.
    """
    same = np.ones(some.num_rows, np.bool_)
    for one, other in zip(some.columns, others.columns, strict=True):
        try:
            same &= _equal(whole(one), whole(other))
        except pa.ArrowNotImplementedError:
            same[:] = False
    return same


def _equal(one: pa.Array, other: pa.Array) -> Bools:
    if pa.types.is_nested(one.type):
        return _equal_nested(one, other)
    if pa.types.is_floating(one.type):
        # By their bits: NaN equals itself, and 0.0 and -0.0 can be told apart.
        bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[one.type.bit_width]
        one, other = one.view(bits), other.view(bits)
    if pa.types.is_null(one.type):
        return np.ones(len(one), np.bool_)
    values = pc.fill_null(pc.equal(one, other), fill_value=False)
    nulls = pc.and_(pc.is_null(one), pc.is_null(other))
    return np.asarray(pc.or_(values, nulls).to_numpy(zero_copy_only=False), np.bool_)


def _equal_nested(one: pa.Array, other: pa.Array) -> Bools:
    """Compare what is in lists, maps and structs, wherever both have something."""
    there = [np.asarray(pc.is_valid(each).to_numpy(zero_copy_only=False)) for each in (one, other)]
    same: Bools = there[0] == there[1]
    rows = np.flatnonzero(there[0] & there[1])
    pair = [each.take(pa.array(rows)) for each in (one, other)]
    if pa.types.is_struct(one.type):
        for mine, yours in zip(*(each.flatten() for each in pair), strict=True):
            same[rows] &= _equal(mine, yours)
        return same
    if pa.types.is_map(one.type):
        # The same entries in another order count as different.
        entries = pa.list_(pa.struct([("key", one.type.key_type), ("value", one.type.item_type)]))
        pair = [each.cast(entries) for each in pair]
    counts = [pc.list_value_length(each).to_numpy(zero_copy_only=False) for each in pair]
    alike = counts[0] == counts[1]
    same[rows[~alike]] = False
    items = [each.filter(pa.array(alike)).flatten() for each in pair]
    owners = np.repeat(rows[alike], counts[0][alike])
    same[owners[~_equal(*items)]] = False
    return same


def pairs_of(starts: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
    """Return a pair (row, partner) for each partner that was counted."""
    total = int(counts.sum())
    rows, partners = np.empty(total, np.int64), np.empty(total, np.int64)
    spread(frozen(starts), frozen(counts), rows, partners)
    return rows, partners


def check_pairs(
    keys: pa.BinaryArray, counted: Sequence[tuple[Int64s, Int64s]], pairs_max: int
) -> None:
    """Refuse to give more pairs than can be held, and name the key that has the most.

    Args:
        keys: By code.
        counted: Codes, and how many pairs each of them has.
        pairs_max: How many pairs there may be.
    """
    pairs = sum(int(counts.sum()) for _, counts in counted)
    if pairs <= pairs_max:
        return
    by_code = np.zeros(len(keys), np.int64)
    for codes, counts in counted:
        np.add.at(by_code, codes, counts)
    worst = int(by_code.argmax())
    raise JoinTooLargeError(
        keys[worst].as_py(), key_pairs=int(by_code[worst]), pairs=pairs, pairs_max=pairs_max
    )


def belonging(
    condition: Condition, left: tuple[pa.Table, Int64s], right: tuple[pa.Table, Int64s]
) -> Bools:
    """Ask the condition which pairs belong together, some at a time; unknown means no."""
    answers = [np.empty(0, np.bool_)]
    for start in range(0, len(left[1]), _BLOCK_ROWS):
        columns: list[Any] = []
        names: list[str] = []
        for letter, (values, rows) in (("l", left), ("r", right)):
            part = values.take(pa.array(rows[start : start + _BLOCK_ROWS]))
            columns += part.columns
            names += [f"{letter}{number}" for number in range(part.num_columns)]
        answer = condition(pa.table(columns, names=names))
        if isinstance(answer, pa.Array | pa.ChunkedArray):
            answer = pc.fill_null(whole(answer), fill_value=False).to_numpy(zero_copy_only=False)
        answers.append(np.asarray(answer, np.bool_))
    return np.concatenate(answers)
