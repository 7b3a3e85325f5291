"""Batches of rows through a format that Python decodes.

This file alone decides how values become a column of structs beside a column of reasons, and how
rows become values. It knows no format and no Spark.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

import pyarrow as pa

from headwater.streams.formats.errors import FormatError
from headwater.streams.formats.letters import WRONG_TYPE, Undecodable

DECODED: Final = "__hw_decoded"
ERROR: Final = "__hw_error"
"""The two columns that decoding adds; a row has something in one of them, or had no value."""

Row = Mapping[str, Any]


class Form(Protocol):
    """A format with its schema; it travels to the processes that do the work."""

    @property
    def arrow_type(self) -> pa.StructType:
        """The columns that a value becomes."""

    def decoder(self) -> Callable[[bytes], Row]:
        """Return what makes a row of a value, or raises Undecodable."""

    def encoder(self) -> Callable[[Row], bytes]:
        """Return what makes a value of a row, or raises FormatError."""


def decoded_batches(
    batches: Iterable[pa.RecordBatch], column: str, form: Form
) -> Iterator[pa.RecordBatch]:
    """Yield the batches with two columns more; a missing value is neither decoded nor wrong."""
    decode = form.decoder()
    for batch in batches:
        rows: list[Row | None] = []
        reasons: list[str | None] = []
        for value in batch.column(column).to_pylist():
            row, error = _tried(decode, value)
            rows.append(row)
            reasons.append(error)
        structs = _structs(rows, reasons, form.arrow_type)
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, structs, pa.array(reasons, pa.string())],
            [*batch.schema.names, DECODED, ERROR],
        )


def encoded_batches(
    batches: Iterable[pa.RecordBatch], carried: list[str], fields: str, form: Form
) -> Iterator[pa.RecordBatch]:
    """Yield the carried columns, and a value made of the struct in the column `fields`."""
    encode = form.encoder()
    for batch in batches:
        values = [None if row is None else encode(row) for row in batch.column(fields).to_pylist()]
        yield pa.RecordBatch.from_arrays(
            [*(batch.column(name) for name in carried), pa.array(values, pa.binary())],
            [*carried, "value"],
        )


def _tried(decode: Callable[[bytes], Row], value: bytes | None) -> tuple[Row | None, str | None]:
    if value is None:
        return None, None
    try:
        return decode(value), None
    except Undecodable as verdict:
        return None, verdict.reason


def _structs(
    rows: list[Row | None], reasons: list[str | None], arrow_type: pa.StructType
) -> pa.Array:
    try:
        return pa.array(rows, arrow_type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        # One value that Arrow cannot hold, such as a year beyond 9999: find out which.
        for index, row in enumerate(rows):
            try:
                pa.array([row], arrow_type)
            except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
                rows[index] = None
                reasons[index] = Undecodable(WRONG_TYPE, str(error)).reason
        return pa.array(rows, arrow_type)


def unwritable(what: str, error: Exception) -> FormatError:
    """Name a row that does not fit the schema it is to be written with."""
    return FormatError(
        f"a row cannot be written as {what}: {type(error).__name__}: {error}",
        hint="cast the columns to the schema's types, and fill or filter what may not be null",
    )
