"""What is told of records that are not the JSON they should be."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark

from headwater.streams.formats.json_reasons import why

_WHO = spark.StructType().add("name", spark.StringType()).add("age", spark.ShortType())
SCHEMA = (
    spark.StructType()
    .add("id", spark.LongType(), nullable=False)
    .add("qty", spark.IntegerType())
    .add("ok", spark.BooleanType())
    .add("price", spark.DoubleType())
    .add("at", spark.TimestampType())
    .add("tags", spark.ArrayType(spark.IntegerType()))
    .add("who", _WHO)
    .add("by_day", spark.MapType(spark.StringType(), spark.IntegerType()))
    .jsonValue()
)


@pytest.mark.parametrize(
    "value, told",
    [
        (b"\xff\xfe", "NOT_UTF8: byte 0xff at 0"),
        (b"", "NOT_JSON: Expecting value at character 0"),
        (b'{"id": 1', "NOT_JSON: Expecting ',' delimiter at character 8"),
        (b'{"id": 1} and more', "NOT_JSON: Extra data at character 10"),
        (b'{"price": NaN}', "NOT_JSON: NaN is no JSON"),
        (b"[1]", "WRONG_TYPE: the value should be an object: '[1]'"),
        (b"null", "WRONG_TYPE: the value should be an object: 'null'"),
        (b'{"qty": "many"}', "WRONG_TYPE: qty should be integer: '\"many\"'"),
        (b'{"qty": 2147483648}', "WRONG_TYPE: qty should be integer: '2147483648'"),
        (b'{"qty": true}', "WRONG_TYPE: qty should be integer: 'true'"),
        (b'{"qty": 1.5}', "WRONG_TYPE: qty should be integer: '1.5'"),
        (b'{"ok": 1}', "WRONG_TYPE: ok should be boolean: '1'"),
        (b'{"price": "x"}', "WRONG_TYPE: price should be double"),
        (b'{"price": {"amount": 1}}', "WRONG_TYPE: price should be double"),
        (b'{"price": [1]}', "WRONG_TYPE: price should be double"),
        (b'{"at": "noon"}', "WRONG_TYPE: at should be timestamp"),
        (b'{"at": "2026-01-01", "qty": []}', "WRONG_TYPE: qty should be integer"),
        (b'{"tags": [1, 2, "c"]}', "WRONG_TYPE: tags[2] should be integer"),
        (b'{"tags": {}}', "WRONG_TYPE: tags should be an array"),
        (b'{"who": {"age": 99999}}', "WRONG_TYPE: who.age should be short"),
        (b'{"who": 7}', "WRONG_TYPE: who should be an object"),
        (b'{"by_day": {"mon": "x"}}', "WRONG_TYPE: by_day.mon should be integer"),
    ],
)
def test_the_place_is_named(value: bytes, told: str) -> None:
    assert why(value, SCHEMA, "WRONG_TYPE").startswith(told)


def test_missing_fields_are_named() -> None:
    assert why(b'{"qty": 1}', SCHEMA, "MISSING_FIELD") == "MISSING_FIELD: id is missing or null"


def test_long_values_are_cut() -> None:
    assert len(why(b'"' + b"x" * 10_000 + b'"', SCHEMA, "WRONG_TYPE")) < 200


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_anything_gets_a_reason(value: bytes) -> None:
    assert why(value, SCHEMA, "WRONG_TYPE").partition(":")[0] in {
        "NOT_UTF8",
        "NOT_JSON",
        "WRONG_TYPE",
    }


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(
    st.dictionaries(st.sampled_from([field["name"] for field in SCHEMA["fields"]]), DOCUMENTS),
    st.sampled_from(["WRONG_TYPE", "MISSING_FIELD"]),
)
def test_any_document_gets_a_reason(document: dict[str, object], kind: str) -> None:
    assert why(json.dumps(document).encode(), SCHEMA, kind)


@pytest.mark.parametrize("kind", ["NOT_JSON", "WRONG_TYPE", "MISSING_FIELD"])
@pytest.mark.parametrize(
    "value",
    [
        b"[" * 200_000,
        b'{"tags": ' + b"[" * 990 + b"]" * 990 + b"}",
        b'{"qty": 1%s}' % (b"0" * 5_000),
    ],
)
def test_neither_depth_nor_length_is_any_harm(value: bytes, kind: str) -> None:
    assert why(value, SCHEMA, kind).partition(":")[0] in {kind, "NOT_JSON"}
