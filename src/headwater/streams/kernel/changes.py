"""How a DataFrame says what appears and what is taken back.

This file alone decides which columns that are and what their values mean. A stream of changes, as
operators give it, has `op` and `version`; a table, as topics hold it, has an `op` of its own, and
notes at its columns which of them are the primary key.

Whether rows may be taken back is noted at the hidden column `__hw`, and is looked up in the plan,
where the operator that gave the rows has made it. So it holds whatever was done to columns since:
`op` and `version` may be dropped, renamed or cast, and Spark forgets the note of all but the first
side of a union.
"""

import json
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.streams.kernel.errors import RetractionError, retracted
from headwater.streams.kernel.operator import VERSION, WEIGHT
from headwater.streams.time.clocks import FAULT, HIDDEN, hidden_names

OP: Final = "op"

INSERT: Final = "insert"
RETRACT: Final = "retract"
UPSERT: Final = "upsert"
DELETE: Final = "delete"

_IS_TABLE: Final = "headwater.table"
_KEY_PART: Final = "headwater.key"
_KEY_PARTS: Final = "headwater.keys"
_RETRACTS: Final = "headwater.retracts"
"""What metadata says: of `op`, that it is a table's; of a column, which part of the key it is, and
of how many; of the hidden column, whether rows may be taken back, and of `op` and `version` the
same, for as long as they are as the operator gave them."""


class Kind(Enum):
    """What the rows of a DataFrame are: events, the upserts of a table, or changes."""

    EVENTS = "events"
    TABLE = "a table"
    CHANGES = "changes"


def kind_of(frame: DataFrame) -> Kind:
    """Return what rows are.

    Raises:
        RetractionError: They may be taken back, and do not say any more which of them are; or they
            are those of a table, and some that say that a row is gone may be missing.
    """
    if OP in frame.columns:
        is_table = bool(frame.schema[OP].metadata.get(_IS_TABLE))
        _check_table(frame, is_known=is_table)
        if is_table:
            return Kind.TABLE
    if may_retract(frame):
        for name in (OP, HIDDEN):
            _check_kept(frame, name)
        return Kind.CHANGES
    is_given = HIDDEN in frame.columns and FAULT not in hidden_names(frame)
    is_change = is_given and OP in frame.columns and VERSION in frame.columns
    return Kind.CHANGES if is_change else Kind.EVENTS


def may_retract(frame: DataFrame) -> bool:
    """Return whether rows may be taken back, whatever was done to their columns since."""
    if not hasattr(frame, "_jdf"):
        # Without a plan the columns themselves have to say it.
        return any(field.metadata.get(_RETRACTS) for field in frame.schema)
    notes = [step.notes.get(HIDDEN, {}) for step in _steps(frame)]
    return any(note.get(_RETRACTS) for note in notes)


def _check_table(frame: DataFrame, *, is_known: bool) -> None:
    """Refuse a table whose `op` was made anew, or whose rows were chosen by anything but the key.

    A row that is deleted has nothing but its key, and one that does not fit any more would be left
    out instead of being taken back.

    Args:
        frame: The rows.
        is_known: Whether `op` says that they are those of a table.
    """
    chosen_by: set[str] = set()
    is_table = False
    for step in _steps(frame):
        is_table |= step.makes_table
        if step.node.nodeName() == "Filter":
            named = step.node.condition().references().toSeq()
            columns = [named.apply(number) for number in range(named.size())]
            chosen_by |= {
                each.name() for each in columns if not each.metadata().contains(_KEY_PART)
            }
    if is_table and not is_known:
        raise RetractionError(
            f"the column {OP!r} of a table was made anew, which says what is deleted",
            hint=f'keep it as it is; to take every change for an event: drop("{OP}")',
        )
    if is_table and chosen_by:
        raise RetractionError(
            f"rows of a table were chosen by {', '.join(sorted(chosen_by))}: that a row is gone, "
            "or does not fit any more, would go unnoticed",
            hint="choose rows of what comes out, or by the primary key alone; an aggregate counts "
            "some rows by hf.count(F.when(CONDITION, 1))",
        )


class _Step(NamedTuple):
    """A step of a plan.

    Attributes:
        node: Its node, an object of the JVM.
        notes: What it notes at `op` and at the hidden column, by column.
        makes_table: Whether it makes the `op` of a table.
    """

    node: Any
    notes: dict[str, dict[str, Any]]
    makes_table: bool


def _steps(frame: DataFrame) -> Iterator[_Step]:
    """Return the steps from rows back to their table, or to the operator that gave them.

    Of a union these are the steps of all its sides; Spark itself tells of the first one alone.
    Spark Connect shows no plan, and there are none.
    """
    jvm_frame: Any = getattr(frame, "_jdf", None)
    waiting = [] if jvm_frame is None else [jvm_frame.queryExecution().analyzed()]
    while waiting:
        node = waiting.pop()
        made = node.expressions()
        aliases = [
            each
            for each in (made.apply(number) for number in range(made.size()))
            if each.getClass().getSimpleName() == "Alias" and each.name() in {OP, HIDDEN}
        ]
        notes = {each.name(): json.loads(each.metadata().json()) for each in aliases}
        makes_table = any(_makes_table(each) for each in aliases)
        yield _Step(node, notes, makes_table)
        if not makes_table and _RETRACTS not in notes.get(HIDDEN, {}):
            children = node.children()
            waiting += [children.apply(number) for number in range(children.size())]


def _makes_table(alias: Any) -> bool:  # noqa: ANN401 - an object of the JVM
    """Return whether a column is the `op` of a table, made here and not passed on."""
    child = alias.child()
    is_passed = child.getClass().getSimpleName() == "AttributeReference"
    is_noted = alias.name() == OP and alias.metadata().contains(_IS_TABLE)
    return is_noted and not (is_passed and child.metadata().contains(_IS_TABLE))


def check_versions(frame: DataFrame) -> None:
    """Refuse changes whose versions are not those that their operator gave.

    Raises:
        RetractionError: They are not.
    """
    if may_retract(frame):
        _check_kept(frame, VERSION)


def _check_kept(frame: DataFrame, name: str) -> None:
    is_hidden = name == HIDDEN
    if name in frame.columns and (is_hidden or frame.schema[name].metadata.get(_RETRACTS)):
        return
    raise RetractionError(
        f"these rows may be taken back, but their column {name!r} was dropped or made anew",
        hint=f"keep {name!r} as it is up to here; to take every change for an event, write the "
        "rows to a topic and read that",
    )


def weight_of(kind: Kind) -> Column | None:
    """Return 1 for rows that appear and -1 for those that are taken back; None for events."""
    if kind is Kind.EVENTS:
        return None
    back = F.col(OP) == F.lit(DELETE if kind is Kind.TABLE else RETRACT)
    return F.when(back, F.lit(-1)).otherwise(F.lit(1))


def change_columns(given: DataFrame, *, retracts: bool) -> list[Column]:
    """Return the columns `op`, `version` and the hidden one, of what an operator gives.

    Args:
        given: What it gives.
        retracts: Whether it may take rows back; else all that it gives is final.
    """
    op = F.when(F.col(WEIGHT) > 0, F.lit(INSERT)).otherwise(F.lit(RETRACT))
    note = {_RETRACTS: retracts}
    version = F.col(VERSION).alias(VERSION, metadata=note)
    return [op.alias(OP, metadata=note), version, hidden_column(given, retracts=retracts)]


def hidden_column(given: DataFrame, *, retracts: bool) -> Column:
    """Return the hidden column of what an operator gives, with the note whether rows may go."""
    metadata = given.schema[HIDDEN].metadata | {_RETRACTS: retracts}
    return F.col(HIDDEN).alias(HIDDEN, metadata=metadata)


def refuse_retracted(frame: DataFrame, who: str, *, hint: str = "") -> None:
    """Refuse rows that may be taken back, where none can be.

    Args:
        frame: The rows.
        who: Who cannot.
        hint: What to do besides.

    Raises:
        RetractionError: They are such rows.
    """
    if may_retract(frame):
        raise retracted(who, hint)


def table_op(is_delete: Column) -> Column:
    """Return the column `op` of a table."""
    op = F.when(is_delete, F.lit(DELETE)).otherwise(F.lit(UPSERT))
    return op.alias(OP, metadata={_IS_TABLE: True})


def key_metadata(name: str, key: Sequence[str]) -> dict[str, object]:
    """Return what a column's metadata says of the primary key; nothing if it is no part of it."""
    if name not in key:
        return {}
    return {_KEY_PART: list(key).index(name), _KEY_PARTS: len(key)}


def primary_key(frame: DataFrame) -> tuple[str, ...] | None:
    """Return the columns of the primary key; None where it is not known, or not all are there."""
    parts = {
        int(field.metadata[_KEY_PART]): (field.name, int(field.metadata[_KEY_PARTS]))
        for field in frame.schema
        if _KEY_PART in field.metadata
    }
    wanted = max((count for _, count in parts.values()), default=0)
    if not wanted or sorted(parts) != list(range(wanted)):
        return None
    return tuple(parts[number][0] for number in range(wanted))
