"""Which quota holds for a client, and who shares it."""

import time
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.delivery.broker.quotas.entities import entity_key
from headwater.delivery.broker.quotas.limits import Limit, Limits

KEY = "producer_byte_rate"
# In Kafka's order of precedence, with those who share the quota of user u and client c.
LEVELS: list[tuple[dict[str, str | None], tuple[str, str]]] = [
    ({"user": "u", "client-id": "c"}, ("u", "c")),
    ({"user": "u", "client-id": None}, ("u", "c")),
    ({"user": "u"}, ("u", "")),
    ({"user": None, "client-id": "c"}, ("u", "c")),
    ({"user": None, "client-id": None}, ("u", "c")),
    ({"user": None}, ("u", "")),
    ({"client-id": "c"}, ("", "c")),
    ({"client-id": None}, ("", "c")),
]
OTHERS: list[dict[str, str | None]] = [
    {"user": "v", "client-id": "c"},
    {"user": "u", "client-id": "d"},
    {"user": "v"},
    {"client-id": "d"},
]


@pytest.mark.parametrize("count", range(1, len(LEVELS) + 1))
def test_the_first_level_that_is_set_holds(count: int) -> None:
    for levels in combinations(range(len(LEVELS)), count):
        limits = Limits()
        for other in OTHERS:
            limits.replace(entity_key(other), {}, {KEY: 999})
        for level in levels:
            limits.replace(entity_key(LEVELS[level][0]), {}, {KEY: level + 1})
        assert limits.of_client(KEY, "u", "c") == Limit(levels[0] + 1, *LEVELS[levels[0]][1])


def test_nothing_holds_for_others() -> None:
    limits = Limits()
    for other in OTHERS:
        limits.replace(entity_key(other), {}, {KEY: 999})
    assert limits.of_client(KEY, "u", "c") is None
    assert limits.of_client("consumer_byte_rate", "u", "d") is None


@pytest.mark.parametrize("nameless", [None, ""])
def test_a_client_without_a_name_is_limited_by_its_user_alone(nameless: str | None) -> None:
    limits = Limits()
    for level, (entity, _) in enumerate(LEVELS):
        limits.replace(entity_key(entity), {}, {KEY: level})
    assert limits.of_client(KEY, "u", nameless) == Limit(2, "u", "")
    assert limits.of_client(KEY, "w", nameless) == Limit(5, "w", "")
    limits.replace(entity_key({"user": None}), {KEY: 5}, {})
    assert limits.of_client(KEY, "w", nameless) is None


def test_what_is_taken_away_holds_no_more() -> None:
    limits = Limits()
    client = entity_key({"client-id": "c"})
    limits.replace(client, {}, {KEY: 1, "request_percentage": 2})
    limits.replace(client, {KEY: 1, "request_percentage": 2}, {"request_percentage": 3})
    assert limits.of_client(KEY, "u", "c") is None
    assert limits.of_client("request_percentage", "u", "c") == Limit(3, "", "c")
    assert not limits.limits(KEY)
    assert limits.limits(KEY, "request_percentage")


def test_addresses_in_every_spelling() -> None:
    limits = Limits()
    key = "connection_creation_rate"
    assert limits.of_address(key, "::1") is None
    limits.replace(entity_key({"ip": "0:0:0:0:0:0:0:1"}), {}, {key: 4})
    assert limits.of_address(key, "::1") == 4
    assert limits.of_address(key, "127.0.0.1") is None
    limits.replace(entity_key({"ip": None}), {}, {key: 9})
    assert limits.of_address(key, "127.0.0.1") == 9
    assert limits.of_address(key, "::1") == 4


@given(
    st.lists(st.tuples(st.integers(0, len(LEVELS) - 1), st.one_of(st.none(), st.integers(1, 9))))
)
def test_after_any_changes_the_first_level_that_is_left_holds(
    changes: list[tuple[int, int | None]],
) -> None:
    limits = Limits()
    kept: dict[int, int] = {}
    for level, value in changes:
        old = {KEY: float(kept[level])} if level in kept else {}
        limits.replace(entity_key(LEVELS[level][0]), old, {} if value is None else {KEY: value})
        kept.pop(level, None)
        if value is not None:
            kept[level] = value
        found = limits.of_client(KEY, "u", "c")
        first = min(kept, default=None)
        assert found == (None if first is None else Limit(kept[first], *LEVELS[first][1]))
        assert limits.limits(KEY) == bool(kept)


def test_very_many_limits_are_set_in_time() -> None:
    limits = Limits()
    begun_s = time.process_time()
    for index in range(50_000):
        limits.replace(entity_key({"client-id": f"c{index}"}), {}, {KEY: index + 1})
    # Under a second; looking at all of them each time would take minutes.
    assert time.process_time() - begun_s < 10
    assert limits.of_client(KEY, "u", "c49999") == Limit(50_000, "", "c49999")
