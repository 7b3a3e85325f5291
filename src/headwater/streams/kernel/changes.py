"""How a DataFrame says what appears and what is taken back.

This file alone decides which columns that are and what their values mean. A stream of changes, as
operators give it, has `op` and `version`; a table, as topics hold it, has an `op` of its own, and
notes at its columns which of them are the primary key.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.streams.kernel.errors import retracted
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
"""What metadata says: of `op`, that it is a table's, and that rows may be taken back; of a column,
which part of the key it is, and of how many."""


class Kind(Enum):
    """What the rows of a DataFrame are: events, the upserts of a table, or changes."""

    EVENTS = "events"
    TABLE = "a table"
    CHANGES = "changes"


def kind_of(frame: DataFrame) -> Kind:
    """Tell what rows are."""
    if OP not in frame.columns:
        return Kind.EVENTS
    if frame.schema[OP].metadata.get(_IS_TABLE):
        return Kind.TABLE
    is_given = HIDDEN in frame.columns and FAULT not in hidden_names(frame)
    return Kind.CHANGES if is_given and VERSION in frame.columns else Kind.EVENTS


def weight_of(kind: Kind) -> Column | None:
    """Return 1 for rows that appear and -1 for those that are taken back; None for events."""
    if kind is Kind.EVENTS:
        return None
    back = F.col(OP) == F.lit(DELETE if kind is Kind.TABLE else RETRACT)
    return F.when(back, F.lit(-1)).otherwise(F.lit(1))


def change_columns(*, retracts: bool) -> list[Column]:
    """Return the columns `op`, `version` and the hidden one, of what an operator gives.

    Args:
        retracts: Whether it may take rows back; else all that it gives is final.
    """
    op = F.when(F.col(WEIGHT) > 0, F.lit(INSERT)).otherwise(F.lit(RETRACT))
    named = op.alias(OP, metadata={_RETRACTS: True}) if retracts else op.alias(OP)
    return [named, F.col(VERSION), F.col(HIDDEN)]


def refuse_retracted(frame: DataFrame, who: str, *, hint: str = "") -> None:
    """Refuse rows of which it is known that some may be taken back, where none can be.

    Args:
        frame: The rows; those of an operator that does so, as far as they still say it.
        who: Who cannot.
        hint: What to do besides.

    Raises:
        RetractionError: They are such rows.
    """
    if kind_of(frame) is Kind.CHANGES and frame.schema[OP].metadata.get(_RETRACTS):
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
