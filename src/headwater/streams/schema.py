"""The columns that a topic has in Spark.

This file alone decides their names, types and order: those of Spark's own Kafka source. It is
written in Spark's DDL, because a process that only plans needs no more.
"""

from headwater.streams.errors import OptionError

COLUMNS = (
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
)
HEADERS = ("headers", "array<struct<key:string,value:binary>>")


def source_schema(*, headers: bool) -> str:
    """Return the columns of a source as Spark's DDL."""
    columns = (*COLUMNS, HEADERS) if headers else COLUMNS
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def check_columns(found: list[tuple[str, str]], *, headers: bool) -> None:
    """Refuse columns that somebody has given with `.schema(...)`, unless they are ours.

    Raises:
        OptionError: They are others.
    """
    columns = (*COLUMNS, HEADERS) if headers else COLUMNS
    if found != list(columns):
        raise OptionError(
            "a topic has its own columns: " + ", ".join(f"{name} {kind}" for name, kind in columns),
            hint="leave .schema(...) out, and take `value` apart with hf.json or from_json",
        )
