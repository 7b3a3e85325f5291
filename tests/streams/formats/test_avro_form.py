"""Avro's values as rows: bytes of the specification, and schemas of every kind."""

import datetime as dt
import decimal
import json
import pickle
import uuid
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.formats.avro_form import AvroForm, schema_text, schema_texts
from headwater.streams.formats.batches import decoded_batches, encoded_batches
from headwater.streams.formats.errors import FormatError
from headwater.streams.formats.letters import Undecodable
from headwater.streams.formats.types import spark_type


def record(*fields: tuple[str, Any], name: str = "Order") -> dict[str, Any]:
    """Make the schema of a record."""
    listed = [{"name": field, "type": kind} for field, kind in fields]
    return {"type": "record", "name": name, "fields": listed}


# The example of the specification, "Binary encoding: complex types: records".
SPECIFIED = json.dumps(record(("a", "long"), ("b", "string"), name="test"))
SPECIFIED_BYTES = bytes.fromhex("3606666f6f")

EVERYTHING = record(
    ("maybe", ["null", "int"]),
    ("flag", "boolean"),
    ("number", "long"),
    ("wide", ["int", "long", "null"]),
    ("real", "double"),
    ("data", "bytes"),
    ("text", "string"),
    ("color", {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}),
    ("four", {"type": "fixed", "name": "Four", "size": 4}),
    ("list", {"type": "array", "items": ["null", "string"]}),
    ("counts", {"type": "map", "values": {"type": "map", "values": "int"}}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("at", {"type": "long", "logicalType": "timestamp-micros"}),
    ("at_ms", ["null", {"type": "long", "logicalType": "timestamp-millis"}]),
    ("wall", {"type": "long", "logicalType": "local-timestamp-micros"}),
    ("clock", {"type": "int", "logicalType": "time-millis"}),
    ("clocks", {"type": "array", "items": {"type": "long", "logicalType": "time-micros"}}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    ("uuid", {"type": "string", "logicalType": "uuid"}),
    ("inner", ["null", record(("x", "int"), ("again", ["null", "Color"]), name="Inner")]),
    ("inners", {"type": "array", "items": "Inner"}),
    ("odd", {"type": "long", "logicalType": "unheard-of"}),
)
DECLARED = (
    "struct<`maybe`: int, `flag`: boolean, `number`: bigint, `wide`: bigint, `real`: double, "
    "`data`: binary, `text`: string, `color`: string, `four`: binary, `list`: array<string>, "
    "`counts`: map<string, map<string, int>>, `day`: date, `at`: timestamp, `at_ms`: timestamp, "
    "`wall`: timestamp_ntz, `clock`: bigint, `clocks`: array<bigint>, `price`: decimal(9,2), "
    "`uuid`: string, `inner`: struct<`x`: int, `again`: string>, "
    "`inners`: array<struct<`x`: int, `again`: string>>, `odd`: bigint>"
)
NOON = dt.datetime(2026, 11, 15, 12, 0, 1, 500_000, tzinfo=dt.UTC)
ROW: dict[str, Any] = {
    "maybe": None,
    "flag": True,
    "number": -(1 << 63),
    "wide": 1 << 40,
    "real": 0.5,
    "data": b"\x00\xff",
    "text": "zoë",
    "color": "BLUE",
    "four": b"1234",
    "list": ["a", None],
    "counts": [("k", [("m", 1)])],
    "day": dt.date(2026, 11, 15),
    "at": NOON,
    "at_ms": NOON,
    "wall": dt.datetime(2026, 11, 15, 12, 0),  # noqa: DTZ001 - a local time has no zone
    "clock": 43_200_500_000,
    "clocks": [1, 86_399_999_999],
    "price": decimal.Decimal("-12.34"),
    "uuid": str(uuid.UUID(int=7)),
    "inner": {"x": 1, "again": "RED"},
    "inners": [{"x": 2, "again": None}],
    "odd": 5,
}


def test_the_example_of_the_specification() -> None:
    form = AvroForm(SPECIFIED)
    assert form.decoder()(SPECIFIED_BYTES) == {"a": 27, "b": "foo"}
    assert form.encoder()({"a": 27, "b": "foo"}) == SPECIFIED_BYTES


def test_every_type_has_its_place() -> None:
    form = AvroForm(schema_text(EVERYTHING))
    assert spark_type(form.arrow_type) == DECLARED
    value = form.encoder()(ROW)
    (batch,) = decoded_batches([pa.record_batch({"value": [value]})], "value", form)
    assert batch.column("__hw_error").to_pylist() == [None]
    assert batch.column("__hw_decoded").to_pylist() == [ROW]
    (back,) = encoded_batches(
        [pa.record_batch({"k": ["x"], "f": batch.column("__hw_decoded")})], ["k"], "f", form
    )
    assert back.to_pydict() == {"k": ["x"], "value": [value]}


@given(
    st.fixed_dictionaries(
        {"a": st.integers(-(1 << 63), (1 << 63) - 1), "b": st.text()},
    )
)
def test_rows_come_back(row: dict[str, Any]) -> None:
    form = AvroForm(SPECIFIED)
    assert form.decoder()(form.encoder()(row)) == row


@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_or_undecodable(value: bytes) -> None:
    form = AvroForm(schema_text(EVERYTHING))
    (batch,) = decoded_batches([pa.record_batch({"value": [value]})], "value", form)
    (row,), (error,) = (batch.column(name).to_pylist() for name in ("__hw_decoded", "__hw_error"))
    assert (row is None) == (error is not None)
    assert error is None or error.startswith(("NOT_AVRO: ", "WRONG_TYPE: "))


@pytest.mark.parametrize("value", [b"", SPECIFIED_BYTES[:-1], SPECIFIED_BYTES + b"\0", b"\x36\x07"])
def test_other_bytes_are_no_avro(value: bytes) -> None:
    with pytest.raises(Undecodable, match="NOT_AVRO"):
        AvroForm(SPECIFIED).decoder()(value)


def test_what_arrow_cannot_hold_is_one_bad_row() -> None:
    form = AvroForm(schema_text(record(("day", {"type": "int", "logicalType": "date"}))))
    good, far = form.encoder()({"day": dt.date(2026, 1, 1)}), b"\xfe\xff\xff\xff\x0f"
    (batch,) = decoded_batches([pa.record_batch({"value": [good, far, None]})], "value", form)
    rows = batch.column("__hw_decoded").to_pylist()
    assert rows == [{"day": dt.date(2026, 1, 1)}, None, None]
    first, second, third = batch.column("__hw_error").to_pylist()
    assert (first, third) == (None, None)
    assert second.startswith(("NOT_AVRO", "WRONG_TYPE"))


def test_schemas_that_changed_are_resolved_by_the_id_before_the_value(tmp_path: Path) -> None:
    old = record(("id", "int"), ("gone", "string"))
    new = record(("id", "long"))
    new["fields"].append({"name": "note", "type": "string", "default": "-"})
    (tmp_path / "3.avsc").write_text(json.dumps(old))
    answer = {"subject": "orders-value", "version": 2, "id": 4, "schema": json.dumps(new)}
    (tmp_path / "4.json").write_text(json.dumps(answer))
    (tmp_path / "README").write_text("not a schema")
    form = AvroForm(schema_text(new), schema_texts(tmp_path))
    decode = form.decoder()
    by_old = AvroForm(schema_text(old), schema_id=3).encoder()({"id": 1, "gone": "x"})
    by_new = AvroForm(schema_text(new), schema_id=4).encoder()({"id": 2, "note": "n"})
    assert decode(by_old) == {"id": 1, "note": "-"}
    assert decode(by_new) == {"id": 2, "note": "n"}
    with pytest.raises(Undecodable, match=r"UNKNOWN_SCHEMA: schema id 5; known: 3, 4"):
        decode(b"\0\0\0\0\5x")
    with pytest.raises(Undecodable, match="NOT_FRAMED"):
        decode(b"x")


def test_a_writer_that_does_not_fit_is_told() -> None:
    texts = schema_texts({1: record(("id", "string"))})
    value = AvroForm(texts[1], schema_id=1).encoder()({"id": "x"})
    with pytest.raises(Undecodable, match="WRONG_TYPE"):
        AvroForm(schema_text(record(("id", "long"))), texts).decoder()(value)


def test_it_travels_to_other_processes() -> None:
    form = AvroForm(schema_text(EVERYTHING), {1: SPECIFIED})
    assert form.arrow_type is not None
    again = pickle.loads(pickle.dumps(form))
    assert again == form
    assert again.arrow_type == form.arrow_type


@pytest.mark.parametrize(
    "schema, told",
    [
        ("{", "no JSON"),
        ("no-such-file.avsc", "cannot be read"),
        ('{"type": "nonsense"}', "not an Avro schema"),
        ('"string"', "no record"),
        (record(("u", ["int", "string"])), "union of int, string"),
        (record(("n", ["null", "Order"])), "Order is in itself"),
        (record(), "no fields"),
        (
            record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 39})),
            "38 digits",
        ),
    ],
)
def test_schemas_that_cannot_be_used(schema: Any, told: str) -> None:  # noqa: ANN401
    with pytest.raises(FormatError, match=told):
        assert AvroForm(schema_text(schema)).arrow_type


def test_folders_without_schemas(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no schema in"):
        schema_texts(tmp_path)
    with pytest.raises(FormatError, match="no folder"):
        schema_texts(tmp_path / "x")


def test_rows_that_do_not_fit_are_told() -> None:
    with pytest.raises(FormatError, match="a row cannot be written as Avro test") as told:
        AvroForm(SPECIFIED).encoder()({"a": None, "b": "x"})
    assert told.value.hint


def test_defaults_may_be_left_out() -> None:
    schema = record(("a", "int"))
    schema["fields"].append({"name": "b", "type": "int", "default": 7})
    form = AvroForm(schema_text(schema))
    assert form.names_without_default == ["a"]
    assert form.decoder()(form.encoder()({"a": 1})) == {"a": 1, "b": 7}


def test_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(SPECIFIED)
    assert json.loads(schema_text(path)) == json.loads(SPECIFIED)
    assert json.loads(schema_text(str(path))) == json.loads(SPECIFIED)
    assert fastavro.parse_schema(json.loads(schema_text(path)))
