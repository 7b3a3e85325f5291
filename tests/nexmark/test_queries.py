"""The SQL of the queries says what it means: DuckDB agrees with loops that anybody can read."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from examples.nexmark.generator import generate
from examples.nexmark.model import BID, Events, Settings
from examples.nexmark.queries import QUERIES, Emits
from examples.nexmark.topics import place
from tests.nexmark.brute_force import ANSWERS, Rows
from tests.nexmark.oracle import ask, ask_all, bag
from tests.nexmark.tied_streams import tied_stream

# A second between events, few auctions and people: windows hold a handful, sellers repeat.
SMALL = Settings(
    seed=7,
    first_time=datetime(2015, 7, 15, 23, 50, tzinfo=UTC),
    delay_us=1_000_000,
    run=10,
    in_flight_auctions=5,
    active_people=3,
)

SEEDS = 60
SEEDS_AT_ONCE = 20


@pytest.fixture(scope="module")
def events() -> Events:
    return place(generate(SMALL, 0, 2500), 3)


@pytest.fixture(scope="module")
def found(events: Events) -> dict[str, pa.Table]:
    return ask_all(QUERIES.values(), events)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_small_stream(name: str, events: Events, found: dict[str, pa.Table]) -> None:
    assert bag(found[name]) == bag(ANSWERS[name](Rows(events)))


@pytest.mark.parametrize("first_seed", range(0, SEEDS, SEEDS_AT_ONCE))
def test_streams_full_of_ties(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + SEEDS_AT_ONCE):
        stream = tied_stream(seed)
        found = ask_all([QUERIES[name] for name in ANSWERS], stream)
        rows = Rows(stream)
        for name, answer in ANSWERS.items():
            assert bag(found[name]) == bag(answer(rows)), f"{name}, seed {seed}"


@pytest.mark.parametrize("name", QUERIES)
def test_an_answer_has_the_columns_that_are_promised(name: str, found: dict[str, pa.Table]) -> None:
    query, answer = QUERIES[name], found[name]
    assert answer.schema == query.answer
    assert answer.num_rows > 0, "a query with nothing to say tests nothing"
    assert not any(column.null_count for column in answer.columns)
    identities = bag(answer.select(list(query.identity)))
    assert not query.identity or max(identities.values()) == 1


def test_the_order_of_rows_does_not_change_an_answer(
    events: Events, found: dict[str, pa.Table]
) -> None:
    """An oracle that needed its rows in some order would be none: SQL promises none."""
    turned = Events(*(table.take(np.arange(len(table))[::-1]) for table in events))
    for name, answer in ask_all(QUERIES.values(), turned).items():
        assert bag(answer) == bag(found[name]), name


def test_all_queries_are_there_and_say_what_they_mean() -> None:
    assert list(QUERIES) == [f"q{number}" for number in range(23)]
    for query in QUERIES.values():
        assert query.title.endswith("."), query.name
        assert set(query.reads) <= {"person", "auction", "bid", "side_input"}
        assert all(re.search(rf"\b{name}\b", query.sql) for name in query.reads)
        assert set(query.identity) <= set(query.answer.names)
        assert query.identity or query.emits is not Emits.CHANGES, "changes need an identity"


def test_the_page_names_every_query() -> None:
    page = (Path(__file__).parents[2] / "docs" / "nexmark.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (q\d+) \| (.+?) \| (.+?) \| .+ \|$", page, re.MULTILINE)
    assert rows[: len(QUERIES)] == [
        (query.name, query.title, query.emits.value) for query in QUERIES.values()
    ]


def bid(**fields: object) -> Events:
    """One bid, and the rest of the stream empty."""
    row = {
        "auction": 1230,
        "bidder": 1,
        "price": 100,
        "channel": "channel-5",
        "url": "https://www.nexmark.com/a/b_c/d/item.htm?query=1",
        "date_time": datetime(2015, 7, 15, 19, 59, 59, 999_000, tzinfo=UTC),
        "extra": "cbcac",
        "append_time": datetime(2015, 7, 15, 20, tzinfo=UTC),
        "partition": 0,
        "offset": 0,
        **fields,
    }
    none = generate(Settings(), 0, 0)
    return none._replace(bid=pa.Table.from_pylist([row], BID))


def answers(name: str, **fields: object) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = ask(QUERIES[name], bid(**fields)).to_pylist()
    return rows


def test_rows_one_by_one() -> None:
    assert answers("q1")[0]["price"] == Decimal("90.800")
    assert answers("q2") == [{"auction": 1230, "price": 100}]
    assert answers("q2", auction=1231) == []
    assert (answers("q10")[0]["dt"], answers("q10")[0]["hm"]) == ("2015-07-15", "19:59")
    assert answers("q13", auction=20_007)[0]["value"] == "7"
    folders = answers("q22")[0]
    assert [folders[f"dir{n}"] for n in (1, 2, 3)] == ["a", "b_c", "d"]


@pytest.mark.parametrize(
    "hour,kind",
    [
        (0, "nightTime"),
        (6, "nightTime"),
        (7, "otherTime"),
        (8, "dayTime"),
        (18, "dayTime"),
        (19, "otherTime"),
        (20, "nightTime"),
    ],
)
def test_q14(hour: int, kind: str) -> None:
    at = datetime(2015, 7, 15, hour, 59, tzinfo=UTC)
    (row,) = answers("q14", price=2_000_000, date_time=at)
    assert (row["price"], row["bid_time_type"], row["c_counts"]) == (Decimal(1_816_000), kind, 3)
    # 0.908 * 1101321 is below a million, 0.908 * 1101322 above.
    assert [len(answers("q14", price=price)) for price in (1_101_321, 1_101_322)] == [0, 1]
    assert [len(answers("q14", price=price)) for price in (55_066_079, 55_066_080)] == [1, 0]


@pytest.mark.parametrize(
    "channel,query,number",
    [
        ("Apple", "", "0"),
        ("GOOGLE", "", "1"),
        ("facebook", "&channel_id=9", "2"),
        ("Baidu", "", "3"),
        ("channel-5", "&channel_id=77", "77"),
        ("channel-5", "&channel_id=77&x=1", "77"),
        ("channel-5", "", None),
    ],
)
def test_q21(channel: str, query: str, number: str | None) -> None:
    url = f"https://www.nexmark.com/a/b/c/item.htm?query=1{query}"
    rows = answers("q21", channel=channel, url=url)
    assert [row["channel_id"] for row in rows] == ([] if number is None else [number])
