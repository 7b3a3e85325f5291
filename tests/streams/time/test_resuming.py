"""Which of a checkpoint's clocks a time reader goes on with, by what offsets say."""

import dataclasses

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


def old(of: TimeOffset) -> TimeOffset:
    """Return the same as an earlier release wrote it."""
    return dataclasses.replace(of, name=None, choices=None, fold={})


def found(who: Identity, at_place: TimeOffset, *others: TimeOffset) -> str:
    return found_again(who, at_place, lambda: others).clock_id


def test_an_offset_says_whose_it_is() -> None:
    for choice in (ORDERS, HALF, LIKE_O):
        written = offset("c", identity(choice), "orders")
        assert parse_time_offset(written.as_json()) == written
    nobodys = TimeOffset("c")
    assert parse_time_offset(nobodys.as_json()) == nobodys


def test_nobody_is_asked_where_the_place_is_right() -> None:
    def asked() -> list[TimeOffset]:
        raise AssertionError

    own = offset("c", identity(ORDERS), "orders")
    assert found_again(identity(ORDERS), own, asked) == own


def test_clocks_that_have_changed_places_are_found_by_their_topics() -> None:
    orders = offset("o", identity(ORDERS), "orders")
    payments = offset("p", identity(PAYMENTS), "payments")
    for at_place, other in ((orders, payments), (payments, orders)):
        assert found(identity(ORDERS), at_place, other) == "o"
        assert found(identity(PAYMENTS), at_place, other) == "p"
        assert found(identity(PAYMENTS, "at/mark 5/p77"), at_place, other) == "p", "another plan"


def test_two_clocks_of_one_topic_are_told_apart_by_partitions_by_names_and_by_their_places() -> (
    None
):
    one, two = (
        offset("1", identity(HALF), "orders"),
        offset("2", identity(OTHER_HALF), "orders", number=1),
    )
    assert found(identity(HALF), two, one) == "1"
    first, second = identity(ORDERS, "at/any/p01"), identity(ORDERS, "at/any/p02")
    one, two = offset("1", first, "orders"), offset("2", second, "orders")
    assert found(first, two, one) == "1"
    assert found(identity(ORDERS, "at/any/p03"), two, one) == "2"


def test_where_an_earlier_release_does_not_say_which_it_is_nothing_is_guessed() -> None:
    who = identity(ORDERS)
    one, two = (old(offset(name, who, "orders")) for name in "12")
    assert found(who, one) == "1", "where there is one, it is this"
    with pytest.raises(CheckpointError, match="2 watermarks that may be the one by 'at'") as it:
        found(who, one, two)
    assert "checkpointLocation" in it.value.hint
    nothing = [old(offset(name, who)) for name in "12"]
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
        (offset("c", identity(Choice(pattern="p.*"))), "by 'at' of p"),
    ],
)
def test_the_time_of_something_else_is_refused(before: TimeOffset, said: str) -> None:
    with pytest.raises(CheckpointError, match="and the query has one by 'at' of orders") as caught:
        found(identity(ORDERS), before)
    assert said in caught.value.message
    assert "headwater pipeline reset" in caught.value.hint
