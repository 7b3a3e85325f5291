"""Keys of records, by whoever wrote them: each names the row that it deletes."""

import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from headwater import functions as hf
from headwater.streams.joins.table_keys import hint_of, named_by
from tests import peers

TEXT = "id string"
NUMBER = "number bigint"
BOTH = f"{NUMBER}, {TEXT}"

texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.sampled_from(["abc", '"', '""', "\\", '\\"', "1e5", "7", "null", "{", "{}", '{"id', "a\nb"]),
    # As it looks if it is quoted once too often.
    st.text(max_size=3).map(json.dumps),
)
numbers = st.integers(-(2**63), 2**63 - 1)
some_texts = st.lists(texts, min_size=1, max_size=40)


def fields(schema: str) -> StructType:
    found = DataType.fromDDL(schema)
    assert isinstance(found, StructType)
    return found


def read(spark: SparkSession, schema: str, keys: Sequence[bytes | None]) -> list[tuple[Any, ...]]:
    """Return what keys name."""
    rows = spark.createDataFrame([(bytearray(key) if key else key,) for key in keys], "key binary")
    return read_of(rows, schema)


def read_of(rows: DataFrame, schema: str) -> list[tuple[Any, ...]]:
    named = named_by(F.col("key"), fields(schema).fields)
    return [tuple(row) for row in rows.select(*(c.alias(n) for n, c in named.items())).collect()]


def is_other(text: str) -> bool:
    """Tell whether a text would be something else as JSON, or has what no plain text has."""
    controls = [letter for letter in text if unicodedata.category(letter) == "Cc"]
    if controls and (text[0] in controls or not set(controls) <= set("\t\n\v\f\r\x85")):
        return True
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, str | dict | list)


@given(some_texts)
@settings(max_examples=8, deadline=None)
def test_of_a_plain_producer(spark: SparkSession, listed: list[str]) -> None:
    written = [text for text in listed if not is_other(text)]
    assume(written)
    assert read(spark, TEXT, [text.encode() for text in written]) == [(text,) for text in written]


@given(some_texts, numbers)
@settings(max_examples=8, deadline=None)
def test_of_our_own_sink(spark: SparkSession, listed: list[str], number: int) -> None:
    rows = spark.createDataFrame([(number, text) for text in listed], BOTH)
    both = rows.transform(hf.to_json(key=F.struct("number", "id")))
    assert read_of(both, BOTH) == [(number, text) for text in listed]
    as_object = rows.transform(hf.to_json(key=F.struct("id")))
    assert read_of(as_object, TEXT) == [(text,) for text in listed]
    plain = rows.transform(hf.to_json(key="number"))
    assert read_of(plain, NUMBER) == [(number,)] * len(listed)


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Path:
    peers.require("kafka")
    peers.require("javac")
    source = Path(__file__).with_name("ConnectKeys.java")
    return peers.compile_java(source, tmp_path_factory.mktemp("classes"))


@pytest.mark.peer
@given(some_texts, numbers)
@settings(max_examples=4, deadline=None)
def test_of_kafka_connect(
    spark: SparkSession, connect: Path, listed: list[str], number: int
) -> None:
    lines = "".join(f"{number} {text.encode().hex()}\n" for text in listed)
    said = peers.java("ConnectKeys", more=[connect], stdin=lines).stdout.splitlines()
    by_text = [[bytes.fromhex(key) for key in line.split(" ")] for line in said]
    assert len(by_text) == len(listed)
    for first in (0, 4):
        keys = list(zip(*by_text, strict=True))[first : first + 4]
        assert read(spark, TEXT, keys[0]) == [(text,) for text in listed]
        assert read(spark, NUMBER, keys[1]) == [(number,)] * len(listed)
        assert read(spark, TEXT, keys[2]) == [(text,) for text in listed]
        assert read(spark, BOTH, keys[3]) == [(number, text) for text in listed]


@pytest.mark.parametrize(
    "schema, key, value",
    [
        (TEXT, '"abc"', "abc"),
        (TEXT, '"a\\u0062\\n"', "ab\n"),
        (TEXT, "abc", "abc"),
        (TEXT, "1e5", "1e5"),
        (TEXT, '"a" or "b"', '"a" or "b"'),
        (TEXT, '"a","id":"b"', '"a","id":"b"'),
        (TEXT, '{"id": "a"} and more', '{"id": "a"} and more'),
        (TEXT, '{"other": "a"}', None),
        (TEXT, '{"ID": "a"}', None),
        (TEXT, ' {"other": "a"}\n', None),
        (TEXT, '{\n  "other": "a"\n}\n', None),
        (TEXT, '[\n"a"]', None),
        (TEXT, "{}", None),
        (TEXT, '["a"]', None),
        (TEXT, "[]", None),
        (TEXT, "[a] b [c]", "[a] b [c]"),
        (TEXT, "{3f2504e0-4f89}", "{3f2504e0-4f89}"),
        (TEXT, "a\tb", "a\tb"),
        (TEXT, "a\r\nb\n", "a\r\nb\n"),
        (TEXT, "a\x85b", "a\x85b"),
        (TEXT, "\tb", None),
        (TEXT, "\n\tProtobuf.", None),
        (TEXT, '"\\tb"', "\tb"),
        (TEXT, "a\x7f", None),
        (TEXT, "a\x06b", None),
        (TEXT, "\x00\x00\x00\x00\x01\x06ghi", None),
        (TEXT, "größer ✓", "größer ✓"),
        (NUMBER, "\x00\x00\x00\x00\x017", None),
        (TEXT, '{"schema": {"type": "string"}, "payload": "a"}', "a"),
        (TEXT, '{"schema": {"type": "struct"}, "payload": {"id": "a"}}', "a"),
        (NUMBER, "7", 7),
        (NUMBER, '{"number": 7}', 7),
        (NUMBER, "7,8", None),
        (NUMBER, '"7"', None),
        (NUMBER, "seven", None),
        (NUMBER, '{"schema": {"type": "int64"}, "payload": 7}', 7),
        ("payload bigint", '{"payload": 7}', 7),
        ("day date", "2026-11-16", "2026-11-16"),
        ("day date", '"2026-11-16"', "2026-11-16"),
        ("price decimal(9,2)", "7.50", "7.50"),
        ("flag boolean", "true", "true"),
        ("raw binary", '"AAEC"', "AAEC"),
    ],
)
def test_a_value_is_read_as_in_a_row(
    spark: SparkSession, schema: str, key: str, value: object
) -> None:
    ((found,),) = read(spark, schema, [key.encode()])
    if isinstance(value, str) and not isinstance(found, str):
        name = fields(schema).names[0]
        quoted = value if name in {"price", "flag"} else json.dumps(value)
        text = F.lit(f'{{"{name}": {quoted}}}')
        row = spark.range(1).select(F.from_json(text, fields(schema))[name].alias(name)).collect()
        assert found == row[0][0]
        assert found is not None
    else:
        assert found == value


def test_a_key_that_is_missing_names_nothing(spark: SparkSession) -> None:
    assert read(spark, TEXT, [None]) == [(None,)]
    assert read(spark, BOTH, [b'{"id": "a"}', b"a"]) == [(None, "a"), (None, None)]


def test_bytes_that_are_no_text_name_no_text(spark: SparkSession) -> None:
    assert read(spark, TEXT, [b"\xff\xfe", b"a\xc3"]) == [(None,), (None,)]


def test_a_key_of_bytes_has_a_hint_of_its_own(spark: SparkSession) -> None:
    keys = (b"\x00\x00\x00\x00\x01a", b"\n\x03abc", b"{}", b"a\xc3\x06")
    rows = spark.createDataFrame([(bytearray(key),) for key in keys], "k binary")
    framed, binary, *others = (row[0] for row in rows.select(hint_of(F.col("k"))).collect())
    assert "schema registry" in framed
    assert "write a text with these as a JSON string" in binary
    assert others == ["", ""]


def test_bytes_that_are_no_text_stay_what_they_are(spark: SparkSession) -> None:
    assert read(spark, "raw binary", [b"\xff\x00"]) == [(bytearray(b"\xff\x00"),)]
