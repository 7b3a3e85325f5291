"""Arrow's types in Spark's words.

This file alone decides how a type that a format has is declared to Spark. It imports no Spark:
what it gives is text that Spark reads as a schema.
"""

import pyarrow as pa

from headwater.streams.formats.errors import FormatError

_PLAIN = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}
DECIMAL_DIGITS_MAX = 38
"""More than this neither Spark nor Arrow's 128 bits can hold."""


def spark_type(arrow: pa.DataType) -> str:
    """Return a type as Spark's DDL spells it.

    Raises:
        FormatError: Spark has no such type.
    """
    if arrow in _PLAIN:
        return _PLAIN[arrow]
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_struct(arrow):
        return f"struct<{', '.join(_field(field, ': ') for field in arrow)}>"
    if pa.types.is_map(arrow):
        return f"map<{spark_type(arrow.key_type)}, {spark_type(arrow.item_type)}>"
    if pa.types.is_list(arrow):
        return f"array<{spark_type(arrow.value_type)}>"
    raise FormatError(f"Spark has no type for {arrow}")


def quoted(name: str) -> str:
    """Return a name that Spark takes as it is, dots and all."""
    return "`" + name.replace("`", "``") + "`"


def _field(field: pa.Field, between: str) -> str:
    return f"{quoted(field.name)}{between}{spark_type(field.type)}"
