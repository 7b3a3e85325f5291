"""Avro: `hf.avro` and `hf.to_avro`.

This file alone decides how they are called. Values are decoded in Python, batch by batch; what
an Avro type becomes stands in `avro_form`.
"""

from pyspark.sql import Column

from headwater.streams.formats.avro_form import (
    AvroForm,
    AvroSchema,
    Schemas,
    schema_text,
    schema_texts,
)
from headwater.streams.formats.decoding import Mode, Transform, Wish
from headwater.streams.formats.in_python import decoding_transform, encoding_transform
from headwater.streams.formats.writing import Target


def avro(
    schema: AvroSchema,
    *,
    schemas: Schemas | None = None,
    column: str = "value",
    mode: Mode = "fail",
    dead_letters: str | None = None,
    into: str | None = None,
) -> Transform:
    """Return a function that decodes Avro records, for `DataFrame.transform`.

    Args:
        schema: The schema that rows are to have: JSON, a mapping, or a file (order.avsc).
        schemas: For values that begin with Confluent's magic byte and a schema id: the schemas
            they were written with, by id, as a mapping or as a folder with files like 17.avsc.
            They are read once, when the query is defined.
        column: The column to decode; it is replaced by the fields.
        mode: What becomes of a record that cannot be decoded: "fail", "drop" or "keep", as in
            `json`.
        dead_letters: The topic to which such records go instead.
        into: One column for the record, instead of one per field.

    Raises:
        FormatError: A schema cannot be read, or has types that Spark does not have.
    """
    writers = None if schemas is None else schema_texts(schemas)
    form = AvroForm(schema_text(schema), writers)
    return decoding_transform("Avro", form, Wish(column, mode, dead_letters, into))


def to_avro(
    schema: AvroSchema,
    *,
    schema_id: int | None = None,
    key: str | Column | None = None,
    topic: str | Column | None = None,
    headers: str | Column | None = None,
    timestamp: str | Column | None = None,
) -> Transform:
    """Return a function that makes records for the sink of rows, with Avro as values.

    Args:
        schema: The schema to write with; each of its fields that has no default is a column.
        schema_id: Its id, if values are to begin with Confluent's magic byte and that id.
        key: The key, as it is if it is binary, else as text; without it the column `key`.
        topic: The topic of each record, for rows that go to several.
        headers: The column with headers, if records are to have some.
        timestamp: The column with the time, if it is not that of writing.

    Raises:
        FormatError: The schema cannot be read, or has types that Spark does not have.
    """
    form = AvroForm(schema_text(schema), schema_id=schema_id)
    return encoding_transform(
        form, form.names_without_default, Target(key, topic, headers, timestamp)
    )
