"""What a format does to a DataFrame, whichever format it is.

This file alone decides which columns a decoded row has, and what becomes of one that cannot be
decoded: by `mode`, or as a dead letter. How it is decoded is the format's affair.

Dead letters leave a pipeline beside its rows, not among them: a filter or an aggregate of the
pipeline must not lose or count what it knows nothing of. So the rows go on without them, and
`dead_letters` reads the same source once more and adds them in front of the sink. Both halves are
one query with one offset, and leave it in one transaction.
"""

from collections.abc import Callable
from typing import Final, Literal, NamedTuple, get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.streams.formats import dead_letters as letters_of
from headwater.streams.formats.batches import DECODED, ERROR
from headwater.streams.formats.errors import FormatError
from headwater.streams.formats.looking import looking
from headwater.streams.formats.types import quoted

Mode = Literal["fail", "drop", "keep"]
MODES: Final = get_args(Mode)
LOG_COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
"""The columns of the source, which describe a record and are no content."""
KEPT_ERROR: Final = "_error"

Transform = Callable[[DataFrame], DataFrame]


class Wish(NamedTuple):
    """What the caller wants done, beside the schema.

    Attributes:
        column: The column to decode.
        mode: What becomes of a row that cannot be decoded: it fails the query, is left out, or is
            kept with nulls and the reason in the column `_error`.
        dead_letters: The topic to which such rows go instead.
        into: The column for all that was decoded; without it each field is a column of its own.
    """

    column: str
    mode: Mode
    dead_letters: str | None
    into: str | None


class Decoding(NamedTuple):
    """A format with its schema.

    Attributes:
        what: Its name, for errors.
        fields: The names of the decoded columns.
        attempt: Adds the columns DECODED and ERROR.
        explain: Makes reasons in ERROR more precise, where that takes longer than finding them.
    """

    what: str
    fields: list[str]
    attempt: Transform
    explain: Transform


def transform(decoding: Decoding, wish: Wish) -> Transform:
    """Return the function for `DataFrame.transform`.

    Raises:
        FormatError: The wishes contradict each other.
    """
    if wish.mode not in MODES:
        raise FormatError(f"mode {wish.mode!r} does not exist", hint=f"there are {MODES}")
    if wish.dead_letters is not None and wish.mode != "fail":
        raise FormatError(
            f"a row is a dead letter, or mode={wish.mode!r}: not both",
            hint="leave mode out, or dead_letters",
        )

    @looking
    def decode(frame: DataFrame) -> DataFrame:
        _check_columns(frame, decoding, wish)
        tried = decoding.attempt(frame)
        if wish.dead_letters is not None:
            dead = decoding.explain(tried.where(F.col(ERROR).isNotNull()))
            good = letters_of.counted(tried, dead, wish.dead_letters).where(F.col(ERROR).isNull())
        else:
            # Counted in every mode: Spark does not push conditions below a counter, where they
            # would have each record decoded twice.
            good = letters_of.counted(tried)
            if wish.mode == "fail":
                good = good.where(_raising(frame, decoding.what))
            elif wish.mode == "drop":
                good = good.where(F.col(ERROR).isNull())
        return good.select(*_carried(frame, wish), *_decoded(decoding, wish))

    return decode


def _check_columns(frame: DataFrame, decoding: Decoding, wish: Wish) -> None:
    if wish.column not in frame.columns:
        raise FormatError(
            f"there is no column {wish.column!r} to decode", hint=f"there are {frame.columns}"
        )
    new = list(decoding.fields) if wish.into is None else [wish.into]
    if wish.mode == "keep":
        new.append(KEPT_ERROR)
    lower = {name.lower() for name in new}
    both = [name for name in frame.columns if name != wish.column and name.lower() in lower]
    if both:
        raise FormatError(
            f"columns {both} are there already", hint='put what is decoded into one: into="data"'
        )


def _carried(frame: DataFrame, wish: Wish) -> list[Column]:
    return [F.col(quoted(name)) for name in frame.columns if name != wish.column]


def _decoded(decoding: Decoding, wish: Wish) -> list[Column]:
    fields = [F.col(f"{DECODED}.{quoted(name)}").alias(name) for name in decoding.fields]
    found = fields if wish.into is None else [F.struct(*fields).alias(wish.into)]
    return [*found, F.col(ERROR).alias(KEPT_ERROR)] if wish.mode == "keep" else found


def _raising(frame: DataFrame, what: str) -> Column:
    """Return a condition that is true, or ends the query."""
    place = [F.lit("a record")]
    if {"topic", "partition", "offset"} <= set(frame.columns):
        place = [
            F.col("topic"),
            F.lit("-"),
            F.col("partition").cast("string"),
            F.lit(" at offset "),
            F.col("offset").cast("string"),
        ]
    hint = "hint: give dead_letters=TOPIC to set such records aside, or mode='drop' or mode='keep'"
    text = F.concat(*place, F.lit(f" is not the {what} it should be: "), F.col(ERROR))
    failed = F.raise_error(F.concat(text, F.lit(f"\n{hint}"))).cast("boolean")
    return F.when(F.col(ERROR).isNull(), F.lit(True)).otherwise(failed)
