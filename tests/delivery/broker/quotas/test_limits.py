"""Which quota holds for a client, and who shares it."""

from itertools import combinations

import pytest

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
            limits.replace(entity_key(LEVELS[level][0]), {}, {KEY: level})
        assert limits.of_client(KEY, "u", "c") == Limit(levels[0], *LEVELS[levels[0]][1])


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
