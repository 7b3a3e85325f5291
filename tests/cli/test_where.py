"""`--where`, held against SQLite on random conditions and records."""

import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.where import compile_where
from headwater.delivery.client.consumer import Message

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def message(
    value: object = None,
    *,
    key: str | None = None,
    headers: tuple[tuple[str, bytes | None], ...] = (),
    offset: int = 0,
    partition: int = 0,
    timestamp_ms: int = 0,
) -> Message:
    """Make a record; a value that is no text becomes JSON."""
    data = value if isinstance(value, str | None) else json.dumps(value)
    return Message(
        "orders",
        partition,
        offset,
        timestamp_ms,
        0,
        None if key is None else key.encode(),
        None if data is None else data.encode(),
        list(headers),
    )


# --- beside SQLite ------------------------------------------------------------------------------

# Columns of our side and of SQLite's, numbers and texts apart: how the two convert between them
# is not the same, and not what is tested here.
NUMBERS = [("value.a", "a"), ("value.b.c", "c"), ("offset", '"offset"'), ("partition", '"part"')]
TEXTS = [("key", '"key"'), ("value.s", "s"), ("headers.h", "h")]
Pair = tuple[str, str]


def both(text: str) -> Pair:
    return text, text


numbers = st.one_of(
    st.sampled_from(NUMBERS), st.integers(-5, 5).map(lambda n: both(str(n))), st.just(both("NULL"))
)
sums = st.recursive(
    numbers,
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(
        lambda each: (
            f"({each[0][0]} {each[1]} {each[2][0]})",
            f"({each[0][1]} {each[1]} {each[2][1]})",
        )
    ),
    max_leaves=3,
)
words = st.text("ab", max_size=2)
texts = st.one_of(
    st.sampled_from(TEXTS),
    words.map(lambda word: both(f"'{word}'")),
    st.sampled_from(TEXTS).map(lambda pair: (f"upper({pair[0]})", f"upper({pair[1]})")),
)
compare = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def comparison(operands: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    return st.tuples(operands, compare, operands).map(
        lambda each: (
            f"{each[0][0]} {each[1]} {each[2][0]}",
            f"{each[0][1]} {each[1]} {each[2][1]}",
        )
    )


def template(form: str, *parts: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    return st.tuples(*parts).map(
        lambda pairs: (
            form.format(*(pair[0] for pair in pairs)),
            form.format(*(pair[1] for pair in pairs)),
        )
    )


patterns = st.text("ab%_", max_size=3).map(lambda text: both(f"'{text}'"))
atoms = st.one_of(
    comparison(sums),
    comparison(texts),
    template("{} IS NULL", texts),
    template("{} IS NOT NULL", sums),
    template("{} BETWEEN {} AND {}", sums, sums, sums),
    template("{} IN ({}, {})", texts, texts, texts),
    template("{} NOT IN ({}, {})", sums, sums, sums),
    template("{} LIKE {}", texts, patterns),
    template("coalesce({}, {}) = {}", sums, sums, sums),
    template("length({}) > {}", texts, numbers),
    template("({} || {}) = {}", texts, texts, texts),
)
conditions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        template("({} AND {})", inner, inner),
        template("({} OR {})", inner, inner),
        template("(NOT {})", inner),
    ),
    max_leaves=6,
)
small = st.none() | st.integers(-3, 3)
records = st.fixed_dictionaries(
    {
        "a": small,
        "c": small,
        "s": st.none() | words,
        "key": st.none() | words,
        "h": st.none() | words,
    }
)


@pytest.fixture(scope="module")
def database() -> Iterator[sqlite3.Connection]:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("PRAGMA case_sensitive_like = ON")
        yield connection
    connection.close()


@given(condition=conditions, record=records, offset=st.integers(0, 3), partition=st.integers(0, 3))
def test_conditions_mean_what_sqlite_says(
    database: sqlite3.Connection,
    condition: Pair,
    record: dict[str, object],
    offset: int,
    partition: int,
) -> None:
    ours, theirs = condition
    names = ["a", "c", "s", "key", "h", "offset", "part"]
    row = [record["a"], record["c"], record["s"], record["key"], record["h"], offset, partition]
    columns = ", ".join(f'? AS "{name}"' for name in names)
    (expected,) = database.execute(
        f"SELECT ({theirs}) IS TRUE FROM (SELECT {columns})", row
    ).fetchone()
    h = record["h"]
    found = compile_where(ours)(
        message(
            {"a": record["a"], "b": {"c": record["c"]}, "s": record["s"]},
            key=None if record["key"] is None else str(record["key"]),
            headers=(("h", None if h is None else str(h).encode()),),
            offset=offset,
            partition=partition,
        )
    )
    assert found == bool(expected), f"{ours} of {record}"


# --- what SQLite cannot say ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "where, expected",
    [
        ("value.items[1].name = 'b'", True),
        ("value.items[7].name = 'b'", False),
        ("value.items[7].name is null", True),
        ("value.`odd name` = 1", True),
        ("value['odd name'] = 1", True),
        ("value.deep.a.b.c.d = 2", True),
        ("value.flag", True),
        ("not value.flag", False),
        ("value.flag = true", True),
        ("value.missing", False),
        ("value.number > 2", True),
        ("value.number_as_text > 2", True),
        ("value.number_as_text = 3", True),
        ("value.text > 2", False),
        ("not value.text > 2", False),
        ("cast(value.number_as_text as int) + 1 = 4", True),
        ("cast(value.flag as string) = 'true'", True),
        ("value.number / 0 = 1", False),
        ("value.number % 2 = 1", True),
        ("-value.number = -3", True),
        ("abs(-3) = value.number", True),
        ("value rlike 'na.e'", True),
        ("key ilike 'ORDER%'", True),
        ("key like 'order_17'", True),
        ("lower('ABC') = 'abc'", True),
        ("topic = 'orders' and partition = 0", True),
        ("headers.`content-type` = 'json'", True),
        ("headers['content-type'] = 'json'", True),
        ("headers.none is null", True),
        ("headers.twice = 'second'", True),
        ("timestamp >= '2026-11-15T10:00:00Z'", True),
        ("timestamp < '2026-11-15T10:00:00Z'", False),
        ("timestamp between '2026-11-15T09:00:00Z' and '2026-11-15T11:00:00Z'", True),
        ("timestamp = 1794736800000", True),
        ("KEY = 'order-17'", True),
        ("key.a = 1", False),
        ("length(value.items) > 0", True),
        ("true", True),
        ("null", False),
        ("1", False),
    ],
)
def test_fields_of_a_record(where: str, expected: bool) -> None:
    record = message(
        {
            "items": [{"name": "a"}, {"name": "b"}],
            "odd name": 1,
            "deep": {"a": {"b": {"c": {"d": 2}}}},
            "flag": True,
            "number": 3,
            "number_as_text": "3",
            "text": "three",
        },
        key="order-17",
        headers=(
            ("content-type", b"json"),
            ("none", None),
            ("twice", b"first"),
            ("twice", b"second"),
        ),
        timestamp_ms=1_794_736_800_000,
    )
    assert compile_where(where)(record) is expected


@pytest.mark.parametrize("value", [None, "", "plain text", "[1, 2]", "3", "nan", '{"a": '])
def test_values_that_are_no_objects_have_no_fields(value: str | None) -> None:
    assert not compile_where("value.a = 1")(message(value))
    assert compile_where("value.a is null")(message(value))


def test_bytes_that_are_no_text_can_be_searched() -> None:
    record = Message("orders", 0, 0, 0, 0, b"\xff\xfe", b"\xffabc\x00", [("h", b"\xff")])
    assert compile_where("value like '%abc%'")(record)
    assert not compile_where("key = 'x'")(record)


@pytest.mark.parametrize(
    "where, complaint",
    [
        ("value.a = ", "cannot be read: something is missing"),
        ("(value.a = 1", "cannot be read"),
        ("vlue = 1", "no 'vlue'"),
        ("topic.x = 1", "no 'topic.x'"),
        ("headers = 'x'", "no 'headers'"),
        ("headers.x-error = 'x'", "or headers['a-name']"),
        ("select 1", "not supported"),
        ("value.a = 1; drop table x", "not supported"),
        ("exists (select 1)", "not supported"),
        ("sum(value.a) > 1", "not supported"),
        ("value rlike '('", "regular expression"),
        ("key like value", "LIKE wants"),
        ("timestamp > 'noon'", "no time"),
        ("cast(value.a as date) = 1", "cannot cast"),
        ("value.items[offset] = 1", "no field"),
    ],
)
def test_what_cannot_be_understood_is_refused(where: str, complaint: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        compile_where(where)
    assert complaint in refused.value.message
    assert "\x1b" not in refused.value.message
    assert "class" not in refused.value.message, "the parser's own words are not the user's"


def test_what_the_reference_shows_can_be_read() -> None:
    shown = re.findall(r"""--where (["'])(.+?)\1""", REFERENCE.read_text())
    assert len(shown) > 2
    for _, where in shown:
        compile_where(where)
