"""What the key of a record says: which row of a table a record without a value deletes.

This file alone decides how a key is read. A value of it is read as it would be in a row. In turn,
and the first that fits counts, a key is

- a JSON object of the key columns, `{"id": 7}`;
- the same, or the only value, in the envelope that Kafka Connect puts around it:
  `{"schema": ..., "payload": {"id": 7}}`;
- the only value as JSON, `7` or `"abc"`;
- the only value as plain text, `abc`.

So a plain text that is a JSON string, quotes and all, is taken for one. A plain text cannot say
that it is none, and Kafka Connect writes every text in quotes.

Any bytes could be a text. So that a key of another form deletes no row that is called like its
bytes, which there never is, a plain text is valid UTF-8, and no JSON object or array: such a one
has other columns, or other names for them. Nor does it have control characters, as the numbers and
lengths of binary forms are. White space is among these, and texts have that, too; but a text does
not begin with a tab or the end of a line, as a message of Protobuf may. Such a text has to be
written as JSON; the error says so.
"""

import json
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from headwater.streams.formats.json import maybe_object

_ESCAPED: Final = r"\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4})"
_STRING: Final = rf'\A"[^"\\\x00-\x1f]*+(?:{_ESCAPED}[^"\\\x00-\x1f]*+)*+"\z'
"""A JSON string, and nothing before or behind it."""

_WORD: Final = r'\A[^\s,:"\[\]{}]+\z'
"""Whatever other JSON value is no array and no object: a number, `true` or `false`."""

_CONTROL: Final = r"\A\p{Cc}|[\p{Cc}&&[^\t-\r\x85]]"
"""What no plain text has: control characters but for white space, and none of them in front."""

_MAYBE_OBJECT: Final = r"(?s)\A\s*\{.*\}\s*\z"
_MAYBE_ARRAY: Final = r"(?s)\A\s*\[.*\]\s*\z"
"""As JSON objects and arrays begin and end; Spark itself reads no further than to the first end."""

_FRAMED: Final = b"\x00"

_SCHEMA: Final = "schema"
_PAYLOAD: Final = "payload"
_OBJECT: Final = "struct"


def named_by(key: Column, columns: Sequence[StructField]) -> dict[str, Column]:
    """Return the key columns as the key of a record says them; null where it does not.

    Args:
        key: The key of a record, as bytes.
        columns: The key columns.
    """
    text = key.cast("string")
    wanted = StructType([StructField(column.name, column.dataType) for column in columns])
    plain = maybe_object(text, wanted)
    described = StructField(_SCHEMA, StructType([StructField("type", StringType())]))
    envelope = maybe_object(text, StructType([described, StructField(_PAYLOAD, wanted)]))
    is_object = envelope[_SCHEMA]["type"] == F.lit(_OBJECT)
    named = {
        column.name: F.coalesce(
            plain[column.name], F.when(is_object, envelope[_PAYLOAD][column.name])
        )
        for column in columns
    }
    if len(columns) == 1:
        (only,) = columns
        alone = StructField(_PAYLOAD, only.dataType)
        value = maybe_object(text, StructType([described, alone]))
        is_value = value[_SCHEMA]["type"] != F.lit(_OBJECT)
        named[only.name] = F.coalesce(
            named[only.name],
            F.when(is_value, value[_PAYLOAD]),
            _as_json(text, only),
            key
            if isinstance(only.dataType, BinaryType)
            else F.when(_is_plain(text), text.try_cast(only.dataType)),
        )
    return named


def hint_of(key: Column) -> Column:
    """Return what to do about a key that does not say which row, as far as its bytes show it."""
    framed = (
        ": the key begins with a byte 0, as a schema registry frames it; write keys as JSON or as "
        "plain text, with a StringConverter or a JsonConverter"
    )
    binary = (
        ": the key has control characters, as binary forms have them; write a text with these as a "
        "JSON string"
    )
    text = key.cast("string")
    has_control = F.is_valid_utf8(text) & F.rlike(text, F.lit(_CONTROL))
    return (
        F.when(F.startswith(key, F.lit(_FRAMED)), F.lit(framed))
        .when(has_control, F.lit(binary))
        .otherwise(F.lit(""))
    )


def _is_plain(text: Column) -> Column:
    """Return whether the text of a key can be the only value, and nothing but that."""
    is_object = F.rlike(text, F.lit(_MAYBE_OBJECT)) & F.json_object_keys(text).isNotNull()
    is_array = F.rlike(text, F.lit(_MAYBE_ARRAY)) & F.json_array_length(text).isNotNull()
    return F.is_valid_utf8(text) & ~F.rlike(text, F.lit(_CONTROL)) & ~is_object & ~is_array


def _as_json(text: Column, only: StructField) -> Column:
    """Return the only value of a key that is JSON of it, read as if it stood in a row."""
    is_json = F.rlike(text, F.lit(_STRING))
    if not isinstance(only.dataType, StringType):
        # As a text, 1e5 is what it is; as a number it is 100000.0.
        is_json |= F.rlike(text, F.lit(_WORD))
    row = F.concat(F.lit(f"{{{json.dumps(only.name)}:"), text, F.lit("}"))
    return F.when(is_json, maybe_object(row, StructType([only]))[only.name])
