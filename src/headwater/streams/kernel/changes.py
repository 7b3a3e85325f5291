"""How a DataFrame says what appears and what is taken back.

This file alone decides which columns that are and what their values mean. A stream of changes, as
operators give it, has `op` and `version`; a table, as topics hold it, has an `op` of its own, and
notes at its columns which of them are the primary key.

Whether rows may be taken back is noted at the hidden column `__hw`, and is looked up in the plan,
where the operator that gave the rows has made it: see `ways`. So it holds whatever was done to
columns since: `op` and `version` may be dropped, renamed or cast, and Spark forgets the note of all
but the first side of a union. What may be done to rows on the way, `whole` decides.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.streams.kernel.errors import RetractionError, retracted
from headwater.streams.kernel.operator import VERSION, WEIGHT
from headwater.streams.kernel.ways import IS_TABLE, OP, RETRACTS, Origin, Way, listed, ways
from headwater.streams.kernel.whole import KEY_PART, check_whole
from headwater.streams.time.clocks import FAULT, HIDDEN, hidden_names

INSERT: Final = "insert"
RETRACT: Final = "retract"
UPSERT: Final = "upsert"
DELETE: Final = "delete"

_SUBSET: Final = "na.fill and na.replace change it unless subset= names other columns"

_KEY_PARTS: Final = "headwater.keys"
"""What metadata says of a column of the primary key: how many there are."""


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
    found = ways(frame)
    if _is_table(frame, _begun(found, Origin.TABLE)):
        return Kind.TABLE
    changes = _begun(found, Origin.CHANGES)
    if _may_retract(frame, changes):
        check_whole(frame, changes)
        for name in (OP, HIDDEN):
            _check_kept(frame, name, changes)
        return Kind.CHANGES
    is_given = HIDDEN in frame.columns and FAULT not in hidden_names(frame)
    is_change = is_given and OP in frame.columns and VERSION in frame.columns
    return Kind.CHANGES if is_change else Kind.EVENTS


def may_retract(frame: DataFrame) -> bool:
    """Return whether rows may be taken back, whatever was done to their columns since."""
    return _may_retract(frame, _begun(ways(frame), Origin.CHANGES))


def _begun(found: Iterable[Way], origin: Origin) -> list[Way]:
    """Return the ways that begin with such rows."""
    return [way for way in found if way.origin is origin]


def _may_retract(frame: DataFrame, changes: Sequence[Way]) -> bool:
    if not hasattr(frame, "_jdf"):
        # Without a plan the columns themselves have to say it.
        return any(field.metadata.get(RETRACTS) for field in frame.schema)
    return bool(changes)


def _is_table(frame: DataFrame, found: Sequence[Way]) -> bool:
    """Return whether rows are those of a table, whose ways were found.

    Raises:
        RetractionError: They are, and their `op` was made anew or has another name, or some of them
            may be missing.
    """
    if hasattr(frame, "_jdf"):
        names = {name for way in found for name in way.kept(OP)}
    else:
        names = {field.name for field in frame.schema if field.metadata.get(IS_TABLE)}
    if OP not in frame.columns and names:
        (name,) = sorted(names)[:1]
        raise RetractionError(
            f"the column {OP!r} of a table, which says what is deleted, is called {name!r} here",
            hint=f'keep its name; to take every change for an event: drop("{name}")',
        )
    if OP not in frame.columns or not (found or names):
        return False
    check_whole(frame, found)
    if not all(OP in way.kept(OP) for way in found):
        raise RetractionError(
            f"the column {OP!r} of a table was made anew, which says what is deleted",
            hint=f'keep it as it is ({_SUBSET}); to take every change for an event: drop("{OP}")',
        )
    return True


def check_versions(frame: DataFrame) -> None:
    """Refuse changes whose versions are not those that their operator gave.

    Raises:
        RetractionError: They are not.
    """
    changes = _begun(ways(frame), Origin.CHANGES)
    if _may_retract(frame, changes):
        _check_kept(frame, VERSION, changes)


def _check_kept(frame: DataFrame, name: str, changes: Sequence[Way]) -> None:
    if name in frame.columns and (
        name == HIDDEN
        or (changes and all(name in way.kept(name) for way in changes))
        or (not changes and frame.schema[name].metadata.get(RETRACTS))
    ):
        return
    raise RetractionError(
        f"these rows may be taken back, but their column {name!r} was dropped or made anew",
        hint=f"keep {name!r} as it is up to here ({_SUBSET}); to take every change for an event, "
        "write the rows to a topic and read that",
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
    note = {RETRACTS: retracts}
    version = F.col(VERSION).alias(VERSION, metadata=note)
    return [op.alias(OP, metadata=note), version, hidden_column(given, retracts=retracts)]


def hidden_column(given: DataFrame, *, retracts: bool) -> Column:
    """Return the hidden column of what an operator gives, with the note whether rows may go."""
    metadata = given.schema[HIDDEN].metadata | {RETRACTS: retracts}
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
    return op.alias(OP, metadata={IS_TABLE: True})


def key_metadata(name: str, key: Sequence[str]) -> dict[str, object]:
    """Return what a column's metadata says of the primary key; nothing if it is no part of it."""
    if name not in key:
        return {}
    return {KEY_PART: list(key).index(name), _KEY_PARTS: len(key)}


def primary_key(frame: DataFrame) -> tuple[str, ...] | None:
    """Return the columns of the primary key; None where it is not known, or not all are there.

    It is not known of changes that were put together: both may have a row of the same key.
    """
    parts = {
        int(field.metadata[KEY_PART]): (field.name, int(field.metadata[_KEY_PARTS]))
        for field in frame.schema
        if KEY_PART in field.metadata
    }
    found = ways(frame)
    if any(step.nodeName() == "Union" for way in found for step in way.steps):
        return None
    wanted = max((count for _, count in parts.values()), default=0)
    if not wanted or len(parts) < wanted:
        for way in found:
            key = way.said(KEY_PART)
            for column in listed((*way.steps, way.begin)[0].output()):
                said = key.get(column.exprId().id())
                if said is not None:
                    wanted = int(said.getLong(_KEY_PARTS))
                    parts.setdefault(int(said.getLong(KEY_PART)), (column.name(), wanted))
    if not wanted or sorted(parts) != list(range(wanted)):
        return None
    return tuple(parts[number][0] for number in range(wanted))
