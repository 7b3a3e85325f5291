"""JSON: `hf.json` and `hf.to_json`.

This file alone decides which texts are JSON of a schema. Spark decodes, natively; only records
that it refuses are looked at by Python, to say why.

Spark by itself takes more than JSON, and less than all of a record: it reads `{"a": 1} and more` as
`{"a": 1}`, and an empty text as nothing. Here a record is one JSON document, in UTF-8, or it is
refused.
"""

import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    StringType,
    StructField,
    StructType,
)

from headwater.streams.formats.batches import DECODED, ERROR
from headwater.streams.formats.decoding import Decoding, Mode, Transform, Wish, transform
from headwater.streams.formats.errors import FormatError
from headwater.streams.formats.framing import HEAD_BYTES, MAGIC, why_not_framed
from headwater.streams.formats.framing import framed as frame_of
from headwater.streams.formats.json_reasons import why
from headwater.streams.formats.letters import (
    MISSING_FIELD,
    NOT_FRAMED,
    NOT_JSON,
    NOT_UTF8,
    WRONG_TYPE,
)
from headwater.streams.formats.looking import looking
from headwater.streams.formats.types import quoted
from headwater.streams.formats.writing import Target, json_text, record_of

END_PREFIX = "__hw_end_"
END_DIGITS = 32
"""How the name of the mark begins that stands behind each object, and how many digits follow."""

_CORRUPT = "__hw_corrupt"
# No record can have it: whoever writes one does not know this process.
_END = f"{END_PREFIX}{uuid.uuid4().hex}"
_OWN_FIELDS = [
    StructField(_CORRUPT, StringType()),
    StructField(_END, BooleanType()),
]
_END_MARK = f',"{_END}":true}}'.encode()
_SPACES = " \t\r\n"
# Not `$`, which in Java lets other ends of lines follow.
_EMPTY_OBJECT = rf"\A[{_SPACES}]*\{{[{_SPACES}]*\}}[{_SPACES}]*\z"
_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


def json(
    schema: str | StructType,
    *,
    framed: bool = False,
    column: str = "value",
    mode: Mode = "fail",
    dead_letters: str | None = None,
    into: str | None = None,
) -> Transform:
    """Return a function that decodes JSON objects, for `DataFrame.transform`.

    Fields that the schema does not name are ignored; those that a record does not have are null,
    unless the schema says NOT NULL: then the record is refused. A null value (a tombstone) has
    nulls in all columns.

    Args:
        schema: Names and types, as DDL text ("id bigint not null, qty int") or StructType.
        framed: Whether values begin with Confluent's magic byte and a schema id. Objects name their
            fields, so any version of the schema will do.
        column: The column to decode; it is replaced by the fields.
        mode: What becomes of a record that cannot be decoded: "fail" ends the query and says
            which record it was, "drop" leaves it out, "keep" gives nulls and says why in `_error`.
        dead_letters: The topic to which such records go instead, with the reason and where they
            were; the source must read headers, `.option("includeHeaders", "true")`.
        into: One column for the object, instead of one per field.

    Raises:
        FormatError: The schema cannot be used.
    """

    @looking
    def decode(frame: DataFrame) -> DataFrame:
        wanted = _struct(schema)
        form = Decoding(
            "JSON",
            [field.name for field in wanted.fields],
            partial(_attempt, column, framed, wanted),
            partial(_explain, column, framed, wanted),
        )
        return transform(form, Wish(column, mode, dead_letters, into))(frame)

    return decode


def to_json(
    *columns: str,
    schema_id: int | None = None,
    key: str | Column | None = None,
    topic: str | Column | None = None,
    headers: str | Column | None = None,
    timestamp: str | Column | None = None,
) -> Transform:
    """Return a function that makes records for the sink of rows, with JSON objects as values.

    Args:
        columns: What goes into the object; without any, all but the columns of the log itself.
        schema_id: An id, if values are to begin with Confluent's magic byte and that id.
        key: The key, as it is if it is binary, else as text; without it the column `key`.
        topic: The topic of each record, for rows that go to several.
        headers: The column with headers, if records are to have some.
        timestamp: The column with the time, if it is not that of writing.
    """
    target = Target(key, topic, headers, timestamp)

    @looking
    def encode(frame: DataFrame) -> DataFrame:
        given, names = target.prepared(frame, columns)
        fields = F.struct(*(F.col(quoted(name)) for name in names))
        value = json_text(fields).cast("binary")
        if schema_id is not None:
            value = F.concat(F.lit(frame_of(schema_id, b"")), value)
        return record_of(given.withColumn("value", value))

    return encode


def maybe_object(text: Column, schema: StructType) -> Column:
    """Return the fields of a text that is one JSON object; null for any other text."""
    fields = [StructField(field.name, field.dataType) for field in schema.fields]
    marked = _with_end_marked(text.cast("binary")).cast("string")
    found = F.from_json(marked, StructType([*fields, *_OWN_FIELDS]), _OPTIONS)
    return F.when(found[_CORRUPT].isNull() & found[_END], found)


def _struct(schema: str | StructType) -> StructType:
    try:
        found = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    except Exception as error:
        raise FormatError(f"not a schema: {schema!r}", hint=str(error).split("\n", 1)[0]) from error
    if not isinstance(found, StructType) or not found.fields:
        raise FormatError(
            f"a schema has columns: {schema!r}", hint='write "id bigint, name string"'
        )
    return found


def _attempt(column: str, framed: bool, schema: StructType, frame: DataFrame) -> DataFrame:
    kind = frame.schema[column].dataType
    if not isinstance(kind, StringType | BinaryType):
        raise FormatError(
            f"column {column!r} is {kind.simpleString()}, neither text nor binary",
            hint="cast it to string",
        )
    value = F.col(quoted(column)).cast("binary")
    is_framed = F.lit(True)
    if framed:
        is_framed = F.startswith(value, F.lit(MAGIC)) & (F.length(value) >= HEAD_BYTES)
        value = F.substring(value, HEAD_BYTES + 1, 1 << 30)
    text = value.cast("string")
    fields = [StructField(field.name, field.dataType) for field in schema.fields]
    wanted = StructType([*fields, *_OWN_FIELDS])
    decoded = F.col(DECODED)
    documents = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
    # Takes more than JSON; it only chooses the word for what is refused anyway.
    is_one_document = F.coalesce(documents, F.lit(0)) == 1
    error = (
        F.when(text.isNull(), F.lit(None).cast("string"))
        .when(~is_framed, NOT_FRAMED)
        .when(~F.is_valid_utf8(text), NOT_UTF8)
        .when(
            decoded.isNull() | decoded[_CORRUPT].isNotNull(),
            F.when(is_one_document, WRONG_TYPE).otherwise(NOT_JSON),
        )
        .when(decoded[_END].isNull() & ~F.rlike(text, F.lit(_EMPTY_OBJECT)), NOT_JSON)
    )
    for field in schema.fields:
        if not field.nullable:
            error = error.when(decoded[field.name].isNull(), MISSING_FIELD)
    marked = _with_end_marked(value).cast("string")
    return frame.withColumn(DECODED, F.from_json(marked, wanted, _OPTIONS)).withColumn(ERROR, error)


def _with_end_marked(value: Column) -> Column:
    """Put one more field where the last brace closes; only an object that ends there will have it.

    Spark stops reading where the object ends, and does not say whether that was the end of the
    record. To ask it by a second parse would take half as long again.
    """
    is_ended = F.endswith(value, F.lit(b"}"))
    trimmed = F.rtrim(value.cast("string"), F.lit(_SPACES)).cast("binary")
    ended = F.when(is_ended, value).otherwise(trimmed)
    marked = F.concat(F.substring(ended, 1, F.length(ended) - 1), F.lit(_END_MARK))
    # Where nothing is quoted, no field stands before the mark and its comma.
    return F.when(
        F.endswith(ended, F.lit(b"}")) & F.contains(ended, F.lit(b'"')), marked
    ).otherwise(value)


def _explain(column: str, framed: bool, schema: StructType, dead: DataFrame) -> DataFrame:
    plain = dead.drop(DECODED)
    described: dict[str, Any] = schema.jsonValue()
    # Spark's stubs know batches by a protocol of their own.
    explain = cast("Any", partial(_explained, column=column, framed=framed, schema=described))
    return plain.mapInArrow(explain, plain.schema)


def _explained(
    batches: Iterable[pa.RecordBatch], *, column: str, framed: bool, schema: dict[str, Any]
) -> Iterator[pa.RecordBatch]:
    head_bytes = HEAD_BYTES if framed else 0
    for batch in batches:
        at = batch.schema.get_field_index(ERROR)
        # Texts are decoded as bytes are.
        values = batch.column(column).cast(pa.binary()).to_pylist()
        reasons = [
            why_not_framed(value) if kind == NOT_FRAMED else why(value[head_bytes:], schema, kind)
            for value, kind in zip(values, batch.column(at).to_pylist(), strict=True)
        ]
        yield batch.set_column(at, batch.schema.field(at), pa.array(reasons, pa.string()))
