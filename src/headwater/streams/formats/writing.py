"""What a row has to become before the sink can write it.

This file alone decides which columns of a row are content and which describe the record, and that
nothing of the record it came from goes out by accident: neither its topic nor its partition.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

from headwater.streams.formats.decoding import LOG_COLUMNS
from headwater.streams.formats.errors import FormatError
from headwater.streams.formats.types import quoted

FIELDS: Final = "__hw_fields"
_RECORD: Final = ("key", "headers", "topic", "timestamp")
_PREFIX: Final = "__hw_"
# What operators know a row's time by.
_HIDDEN: Final = "__hw"
# A null is written: a reader who finds no field cannot tell it from one that is new. Times have all
# their digits: by itself Spark leaves out those behind the millisecond.
_WHOLE: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class Target(NamedTuple):
    """What a record has besides its value: a column, its name, or nothing."""

    key: str | Column | None
    topic: str | Column | None
    headers: str | Column | None
    timestamp: str | Column | None

    def prepared(self, frame: DataFrame, columns: Sequence[str]) -> tuple[DataFrame, list[str]]:
        """Add what a record has under names of our own; say which columns are content.

        Raises:
            FormatError: A column is not there, or there is no content.
        """
        names = list(columns) or [
            name for name in frame.columns if name not in LOG_COLUMNS and name != _HIDDEN
        ]
        given = {name: getattr(self, name) for name in _RECORD}
        asked = [*names, *(each for each in given.values() if isinstance(each, str))]
        missing = [name for name in asked if name not in frame.columns]
        if missing:
            raise FormatError(
                f"there are no columns {missing} to write", hint=f"there are {frame.columns}"
            )
        if not names:
            raise FormatError("there is nothing to write but the columns of the log itself")
        if given["key"] is None and "key" in frame.columns:
            given["key"] = "key"
        for name, each in given.items():
            if each is not None:
                column = F.col(quoted(each)) if isinstance(each, str) else each
                frame = frame.withColumn(f"{_PREFIX}{name}", column)
        if f"{_PREFIX}key" in frame.columns:
            frame = frame.withColumn(f"{_PREFIX}key", _key(frame))
        return frame, names


def record_of(frame: DataFrame) -> DataFrame:
    """Return the columns of the sink, of what was prepared and a column `value`."""
    return frame.select(
        *(F.col(f"{_PREFIX}{name}").alias(name) for name in carried(frame)), F.col("value")
    )


def carried(frame: DataFrame) -> list[str]:
    """Return what a record has besides its value."""
    return [name for name in _RECORD if f"{_PREFIX}{name}" in frame.columns]


def prefixed(name: str) -> str:
    """Return the name under which something stands beside the content."""
    return f"{_PREFIX}{name}"


def json_text(column: Column) -> Column:
    """Return JSON of a column from which it can be read back as it was."""
    return F.to_json(column, _WHOLE)


def _key(frame: DataFrame) -> Column:
    column = F.col(f"{_PREFIX}key")
    match frame.schema[f"{_PREFIX}key"].dataType:
        case BinaryType():
            return column
        case StructType() | ArrayType() | MapType():
            return json_text(column).cast("binary")
    return column.cast("string").cast("binary")
