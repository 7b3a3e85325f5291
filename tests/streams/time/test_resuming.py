"""Which of a checkpoint's clocks a time reader goes on with, by what offsets say."""

import dataclasses
from collections.abc import Callable

import pytest

from headwater.streams.errors import CheckpointError
from headwater.streams.options import Choice
from headwater.streams.time.fold import Decision, Progress
from headwater.streams.time.resuming import Identity, found_again
from headwater.streams.time.time_offset import TimeOffset, parse_time_offset

ORDERS, PAYMENTS = Choice(topics=("orders",)), Choice(topics=("payments",))
HALF, OTHER_HALF = (Choice(partitions={"orders": (number,)}) for number in range(2))
LIKE_O = Choice(pattern="o.*")


def identity(choice: Choice, name: str = "at/any/p01") -> Identity:
    return Identity(name, (choice,))


def offset(clock: str, who: Identity, *topics: str, number: int = 0) -> TimeOffset:
    """Return what a clock has written that has read partitions with this number."""
    fold = {(topic, number): Progress(5, 7) for topic in topics}
    decided = Decision(5 if fold else None, idle=False)
    return who.put_on(TimeOffset(clock, 1, None, decided, fold))


def old(of: TimeOffset, version: int = 2) -> TimeOffset:
    """Return the same as an earlier release wrote it."""
    older = dataclasses.replace(of, choices=None)
    return dataclasses.replace(older, name=None, fold={}) if version == 1 else older


def found(who: Identity, at_place: TimeOffset, *others: TimeOffset) -> str:
    return found_again(who, at_place, lambda: others).clock_id


def test_an_offset_says_whose_it_is() -> None:
    for choice in (ORDERS, HALF, LIKE_O):
        written = offset("c", identity(choice), "orders")
        assert parse_time_offset(written.as_json()) == written
        assert parse_time_offset(old(written).as_json()) == old(written)


def test_nobody_is_asked_where_the_place_is_right() -> None:
    def asked() -> list[TimeOffset]:
        raise AssertionError

    own = offset("c", identity(ORDERS), "orders")
    assert found_again(identity(ORDERS), own, asked) == own


@pytest.mark.parametrize("release", [lambda of: of, old])
def test_clocks_that_have_changed_places_are_found_by_their_topics(
    release: Callable[[TimeOffset], TimeOffset],
) -> None:
    orders = release(offset("o", identity(ORDERS), "orders"))
    payments = release(offset("p", identity(PAYMENTS), "payments"))
    for at_place, other in ((orders, payments), (payments, orders)):
        assert found(identity(ORDERS), at_place, other) == "o"
        assert found(identity(PAYMENTS), at_place, other) == "p"
        assert found(identity(PAYMENTS, "at/mark 5/p77"), at_place, other) == "p", "another plan"


def test_an_old_clock_that_has_read_nothing_is_found_by_what_others_have_read() -> None:
    orders = old(offset("o", identity(ORDERS)))
    payments = old(offset("p", identity(PAYMENTS), "payments"))
    for at_place, other in ((orders, payments), (payments, orders)):
        assert found(identity(ORDERS), at_place, other) == "o"
        assert found(identity(PAYMENTS), at_place, other) == "p"


def test_two_clocks_of_one_topic_are_told_apart_by_partitions_by_names_and_by_their_places() -> (
    None
):
    one, two = (
        offset("1", identity(HALF), "orders"),
        offset("2", identity(OTHER_HALF), "orders", number=1),
    )
    assert found(identity(HALF), two, one) == "1"
    assert found(identity(HALF), old(two), old(one)) == "1"
    first, second = identity(ORDERS, "at/any/p01"), identity(ORDERS, "at/any/p02")
    one, two = offset("1", first, "orders"), offset("2", second, "orders")
    assert found(first, two, one) == "1"
    assert found(first, old(two), old(one)) == "1"
    assert found(identity(ORDERS, "at/any/p03"), two, one) == "2"


def test_where_an_earlier_release_does_not_say_which_it_is_nothing_is_guessed() -> None:
    who = identity(ORDERS)
    for version in (1, 2):
        one, two = (
            old(offset(name, identity(ORDERS, f"at/any/p{name}"), "orders"), version)
            for name in "12"
        )
        assert found(who, one) == "1", "where there is one, it is this"
        with pytest.raises(CheckpointError, match="2 watermarks that may be the one by 'at'") as it:
            found(who, one, two)
        assert "checkpointLocation" in it.value.hint
    nothing = [old(offset(name, identity(ORDERS, "at/any/p9"))) for name in "12"]
    assert found(who, *nothing) == "1", "neither has a time that could be wrong"


def test_topics_more_or_less_make_no_other_clock() -> None:
    both = Choice(topics=("orders", "more"))
    for before, now in ((ORDERS, both), (both, ORDERS), (LIKE_O, both), (both, LIKE_O)):
        assert found(identity(now), offset("c", identity(before))) == "c"


@pytest.mark.parametrize(
    "before, said",
    [
        (offset("c", identity(ORDERS, "expires/any/p01"), "orders"), "by 'expires' of orders"),
        (offset("c", identity(ORDERS, "a/b/any/p01")), "by 'a/b' of orders"),
        (offset("c", identity(PAYMENTS), "payments"), "by 'at' of payments"),
        (old(offset("c", identity(PAYMENTS), "payments")), "by 'at' of payments"),
        (offset("c", identity(Choice(pattern="p.*"))), "by 'at' of p"),
    ],
)
def test_the_time_of_something_else_is_refused(before: TimeOffset, said: str) -> None:
    with pytest.raises(CheckpointError, match="and the query has one by 'at' of orders") as caught:
        found(identity(ORDERS), before)
    assert said in caught.value.message
    assert "headwater pipeline reset" in caught.value.hint
