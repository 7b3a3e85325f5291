"""The generator's streams have the published shape, and any part of them can be made alone."""

import hashlib
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.nexmark.generator import Generator, generate, side_input
from examples.nexmark.model import AUCTION, BID, PERSON, Events, Settings

COUNT = 100_000
DIGESTS = ["fb7819de4f7219f4", "a55954d6a558a295", "e743ed36e53fb407"]


@pytest.fixture(scope="module")
def events() -> Events:
    return generate(Settings(), 0, COUNT)


def numbers(column: pa.ChunkedArray) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.asarray(column.cast(pa.int64()))


def joined(parts: list[Events]) -> Events:
    return Events(*(pa.concat_tables(tables) for tables in zip(*parts, strict=True)))


def digest(table: pa.Table) -> str:
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    content = repr([column.to_pylist() for column in columns])
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def test_of_fifty_events_one_is_a_person_and_three_are_auctions(events: Events) -> None:
    assert [table.num_rows for table in events] == [COUNT // 50, COUNT // 50 * 3, COUNT // 50 * 46]
    assert [table.schema for table in events] == [PERSON, AUCTION, BID]
    offsets = {name: numbers(table["offset"]) for name, table in events._asdict().items()}
    assert set(offsets["person"] % 50) == {0}
    assert set(offsets["auction"] % 50) == {1, 2, 3}
    assert set(offsets["bid"] % 50) == set(range(4, 50))


def test_columns_have_no_nulls(events: Events) -> None:
    for table in events:
        table.validate(full=True)
        assert not any(column.null_count for column in table.columns)


def test_ids_are_consecutive(events: Events) -> None:
    for table in (events.person, events.auction):
        assert np.array_equal(numbers(table["id"]), 1000 + np.arange(table.num_rows))


def test_the_same_seed_gives_the_same_and_another_seed_others(events: Events) -> None:
    again = generate(Settings(), 0, COUNT)
    assert events == again
    other = generate(Settings(seed=1), 0, COUNT)
    for table, another in zip(events, other, strict=True):
        assert table["date_time"] == another["date_time"]
        assert table["extra"] != another["extra"]
    assert events.bid["price"] != other.bid["price"]


def test_streams_stay_what_they_are() -> None:
    """Whoever has kept an answer can compare it with one of today, on any machine."""
    parts = generate(Settings(seed=42, run=10), 1_000_000_000_000, 500)
    assert [digest(table) for table in parts] == DIGESTS


@settings(max_examples=30, deadline=None)
@given(
    first=st.integers(0, 10_000),
    cuts=st.lists(st.integers(0, 400), max_size=6),
    run=st.sampled_from([1, 10, 50, 100, 1000]),
)
def test_parts_do_not_depend_on_how_a_stream_is_cut(first: int, cuts: list[int], run: int) -> None:
    generator = Generator(Settings(seed=5, run=run))
    bounds = [0, *sorted(cuts), 400]
    parts = [generator.events(first + begin, end - begin) for begin, end in pairwise(bounds)]
    assert joined(parts) == generator.events(first, 400)


def test_times_follow_the_delay_and_never_go_back(events: Events) -> None:
    for table in events:
        time_us = numbers(table["date_time"])
        begin_us = int(datetime(2015, 7, 15, tzinfo=UTC).timestamp()) * 1_000_000
        assert np.array_equal(time_us, begin_us + numbers(table["offset"]) // 10 * 1000)
        assert np.array_equal(numbers(table["append_time"]), time_us + 1_000_000)


@pytest.mark.parametrize("run", [3, 50, 1000])
def test_disorder_is_bounded_and_only_moves_events(run: int) -> None:
    straight, shuffled = (generate(Settings(run=each), 0, 3000) for each in (1, run))
    place = ["offset", "append_time"]
    for table, moved in zip(straight, shuffled, strict=True):
        same = [name for name in table.column_names if name not in place]
        assert Counter(map(repr, table.select(same).to_pylist())) == Counter(
            map(repr, moved.select(same).to_pylist())
        )
    arrivals = pa.concat_tables([table.select(["offset", "date_time"]) for table in shuffled])
    time_us = numbers(arrivals.sort_by("offset")["date_time"])
    behind_us = np.maximum.accumulate(time_us) - time_us
    assert 0 < behind_us.max() <= Settings(run=run).disorder_us
    assert Settings().disorder_us == 0
    for table in shuffled:
        assert np.all(np.diff(numbers(table["append_time"])) >= 0)


def test_bids_and_auctions_refer_to_recent_ids_and_a_few_to_come(events: Events) -> None:
    for table, column in ((events.auction, "seller"), (events.bid, "bidder")):
        people = numbers(table["offset"]) // 50 + 1
        ahead = numbers(table[column]) - 1000 - people
        assert ahead.min() >= -1000
        assert 0 < ahead.max() < 10
    round_, within = np.divmod(numbers(events.bid["offset"]), 50)
    assert within.min() > 3
    ahead = numbers(events.bid["auction"]) - 1000 - (round_ * 3 + 3)
    # The hot auction can be older than those in flight, but only by a moment.
    assert ahead.min() >= -102
    assert 0 < ahead.max() < 10
    # A stranger is rare, and comes soon.
    known = np.isin(numbers(events.bid["bidder"]), numbers(events.person["id"]))
    assert known.mean() > 0.999


def share(mask: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> float:
    return float(mask.mean())


def test_hot_ones_get_their_share() -> None:
    events = generate(Settings(), 5_000_000, COUNT)
    latest_person = numbers(events.bid["offset"]) // 50
    latest_auction = latest_person * 3 + 2
    auction = numbers(events.bid["auction"]) - 1000
    bidder = numbers(events.bid["bidder"]) - 1000
    assert share(auction == latest_auction // 100 * 100) == pytest.approx(1 / 2, abs=0.02)
    assert share(bidder == latest_person // 100 * 100 + 1) == pytest.approx(3 / 4, abs=0.02)
    latest_person = numbers(events.auction["offset"]) // 50
    seller = numbers(events.auction["seller"]) - 1000
    assert share(seller == latest_person // 100 * 100) == pytest.approx(3 / 4, abs=0.03)
    rare = pc.starts_with(events.bid["channel"], "channel-")
    assert share(np.asarray(rare)) == pytest.approx(1 / 2, abs=0.02)


def test_ratios_are_settings() -> None:
    cold = generate(Settings(hot_auction_ratio=1, hot_channel_ratio=1), 5_000_000, 10_000)
    latest = numbers(cold.bid["offset"]) // 50 * 3 + 2
    assert share(numbers(cold.bid["auction"]) - 1000 == latest // 100 * 100) < 0.05
    assert all(name.startswith("channel-") for name in cold.bid["channel"].to_pylist())


def test_auctions_are_open_as_long_as_the_wanted_number_is_in_flight(events: Events) -> None:
    open_ms = (numbers(events.auction["expires"]) - numbers(events.auction["date_time"])) // 1000
    # A hundred auctions come in 1,666 events, which take 166.6 ms.
    assert open_ms.min() >= 1
    assert open_ms.max() <= 2 * 167
    assert open_ms.mean() == pytest.approx(166.6, rel=0.03)


def test_prices_are_as_many_in_each_power_of_ten(events: Events) -> None:
    price = numbers(events.bid["price"])
    assert price.min() >= 100
    assert price.max() <= 100_000_000
    counts, _ = np.histogram(np.log10(price), bins=[2, 3, 4, 5, 6, 7, 8.01])
    assert counts / len(price) == pytest.approx([1 / 6] * 6, abs=0.01)
    assert np.all(numbers(events.auction["reserve"]) > numbers(events.auction["initial_bid"]))
    categories = Counter(events.auction["category"].to_pylist())
    assert sorted(categories) == [10, 11, 12, 13, 14]
    assert min(categories.values()) > 0.9 * events.auction.num_rows / 5


def test_texts_look_as_published(events: Events) -> None:
    patterns = {
        "person": {
            "name": "[A-Z][a-z]+ [A-Z][a-z]+",
            "email_address": "[a-z ]{0,6}@[a-z ]{0,4}.com",
            "credit_card": "[0-9]{4} [0-9]{4} [0-9]{4} [0-9]{4}",
            "city": "[A-Z][a-z]+( [A-Z][a-z]+)?",
            "state": "AZ|CA|ID|OR|WA|WY",
            "extra": "[a-z]*",
        },
        "auction": {
            "item_name": "([a-z]([a-z ]{0,17}[a-z])?)?",
            "description": "([a-z]([a-z ]{0,97}[a-z])?)?",
            "extra": "[a-z]+",
        },
        "bid": {
            "channel": "Google|Facebook|Baidu|Apple|channel-[0-9]{1,4}",
            "url": r"https://www\.nexmark\.com(/[a-z_]{0,4}){3}/item\.htm\?query=1"
            "(&channel_id=[0-9]+)?",
            "extra": "[a-z]{54,81}",
        },
    }
    for name, columns in patterns.items():
        for column, pattern in columns.items():
            values = getattr(events, name)[column]
            matches = pc.match_substring_regex(values, f"^({pattern})$")
            assert pc.all(matches).as_py(), (name, column)


def test_extra_makes_rows_as_large_as_asked_for() -> None:
    asked = Settings(person_bytes=300, auction_bytes=700, bid_bytes=60)
    sizes = {"person": 300 - 8, "auction": 700 - 48, "bid": 60 - 32}
    for name, table in generate(asked, 0, 20_000)._asdict().items():
        texts = [
            column
            for field, column in zip(table.schema, table.columns, strict=True)
            if pa.types.is_string(field.type) and field.name not in {"channel", "url"}
        ]
        average = sum(pc.sum(pc.binary_length(column)).as_py() for column in texts) / len(table)
        assert average == pytest.approx(sizes[name], rel=0.03), name
    tiny = generate(Settings(bid_bytes=1), 0, 100)
    assert set(tiny.bid["extra"].to_pylist()) == {""}


def test_a_channel_has_one_url_and_nine_of_ten_rare_ones_say_their_id(events: Events) -> None:
    pairs = set(zip(events.bid["channel"].to_pylist(), events.bid["url"].to_pylist(), strict=True))
    urls = dict(pairs)
    assert len(urls) == len(pairs)
    rare = [url for channel, url in urls.items() if channel.startswith("channel-")]
    says_id = sum("channel_id=" in url for url in rare) / len(rare)
    assert says_id == pytest.approx(9 / 10, abs=0.02)
    assert not any("channel_id=" in urls[name] for name in ("Apple", "Google", "Facebook", "Baidu"))
    ids = [url.rsplit("=", 1)[1] for url in rare if "channel_id=" in url]
    assert len(set(ids)) == len(ids)


def test_the_side_input_names_ten_thousand_numbers() -> None:
    table = side_input()
    assert table["key"].to_pylist() == list(range(10_000))
    assert table["value"].to_pylist() == [str(key) for key in range(10_000)]


def test_far_ahead_is_as_quick_and_as_sound_as_the_beginning() -> None:
    events = generate(Settings(), 10**15, 100)
    assert [table.num_rows for table in events] == [2, 6, 92]
    passed = events.person["date_time"].to_pylist()[0] - Settings().first_time
    assert passed == timedelta(microseconds=10**15 * 100)


@pytest.mark.parametrize(
    "wrong",
    [{"run": 0}, {"run": 953}, {"run": 1906}, {"run": 7}, {"delay_us": -1}, {"active_people": 0}],
)
def test_settings_that_make_no_stream_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"must|negative"):
        Settings(**wrong)  # type: ignore[arg-type]


def test_negative_parts_are_refused() -> None:
    for first, count in ((-1, 1), (0, -1)):
        with pytest.raises(ValueError, match="negative"):
            generate(Settings(), first, count)
    assert [table.num_rows for table in generate(Settings(), 3, 0)] == [0, 0, 0]
