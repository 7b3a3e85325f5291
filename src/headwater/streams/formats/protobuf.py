"""Protobuf: `hf.protobuf` and `hf.to_protobuf`.

This file alone decides how they are called. Values are decoded in Python, batch by batch; what
a field becomes stands in `protobuf_form`.
"""

from pathlib import Path

from pyspark.sql import Column

from headwater.streams.formats.decoding import Mode, Transform, Wish
from headwater.streams.formats.in_python import decoding_transform, encoding_transform
from headwater.streams.formats.protobuf_form import ProtobufForm, descriptor_bytes
from headwater.streams.formats.writing import Target


def protobuf(
    descriptors: str | Path | bytes,
    message: str,
    *,
    framed: bool = False,
    column: str = "value",
    mode: Mode = "fail",
    dead_letters: str | None = None,
    into: str | None = None,
) -> Transform:
    """Return a function that decodes Protobuf messages, for `DataFrame.transform`.

    Args:
        descriptors: What `protoc --include_imports --descriptor_set_out=FILE` has written.
        message: The full name of the message: "shop.Order".
        framed: Whether values begin with Confluent's magic byte, a schema id and message indexes.
            Messages tell their fields by number, so any version of the schema will do.
        column: The column to decode; it is replaced by the fields.
        mode: What becomes of a record that cannot be decoded: "fail", "drop" or "keep", as in
            `json`.
        dead_letters: The topic to which such records go instead.
        into: One column for the message, instead of one per field.

    Raises:
        FormatError: There is no such message, or it has types that Spark does not have.
    """
    form = ProtobufForm(descriptor_bytes(descriptors), message, is_framed=framed)
    return decoding_transform("Protobuf", form, Wish(column, mode, dead_letters, into))


def to_protobuf(
    descriptors: str | Path | bytes,
    message: str,
    *,
    schema_id: int | None = None,
    key: str | Column | None = None,
    topic: str | Column | None = None,
    headers: str | Column | None = None,
    timestamp: str | Column | None = None,
) -> Transform:
    """Return a function that makes records for the sink of rows, with messages as values.

    Args:
        descriptors: What `protoc --include_imports --descriptor_set_out=FILE` has written.
        message: The full name of the message; those of its fields that are columns are set.
        schema_id: Its id, if values are to begin with Confluent's magic byte and that id.
        key: The key, as it is if it is binary, else as text; without it the column `key`.
        topic: The topic of each record, for rows that go to several.
        headers: The column with headers, if records are to have some.
        timestamp: The column with the time, if it is not that of writing.

    Raises:
        FormatError: There is no such message, or it has types that Spark does not have.
    """
    form = ProtobufForm(descriptor_bytes(descriptors), message, schema_id=schema_id)
    return encoding_transform(form, [], Target(key, topic, headers, timestamp))
