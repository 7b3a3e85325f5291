"""Which of a checkpoint's clocks a time reader goes on with, by what offsets say."""

import dataclasses

import pytest

from headwater.streams.errors import CheckpointError
from headwater.streams.options import Choice
from headwater.streams.time.fold import Decision, Progress
from headwater.streams.time.resuming import ClockAt, Identity, found_again
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
    return found_again(who, at_place, lambda: list(map(ClockAt, others))).clock_id


def all_found(*places: tuple[TimeOffset, Identity]) -> list[str | None]:
    """Return what each clock of a query goes on with, or None where it is refused."""
    clocks = [ClockAt(*place) for place in places]
    names: list[str | None] = []
    for offset, identity in places:
        try:
            names.append(found_again(identity, offset, lambda: clocks).clock_id)
        except CheckpointError:
            names.append(None)
    return names


def test_an_offset_says_whose_it_is() -> None:
    for choice in (ORDERS, HALF, LIKE_O):
        written = offset("c", identity(choice), "orders")
        assert parse_time_offset(written.as_json()) == written
    nobodys = TimeOffset("c")
    assert parse_time_offset(nobodys.as_json()) == nobodys


def test_nobody_is_asked_where_the_place_is_right() -> None:
    def asked() -> list[ClockAt]:
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


def test_no_clock_goes_on_with_that_of_another() -> None:
    """As where one side of a join has another column, and the other side has its new one."""
    first, second = identity(ORDERS, "at/any/p01"), identity(ORDERS, "bt/any/p02")
    one, two = offset("1", first, "orders"), offset("2", second, "orders")
    moved = identity(ORDERS, "at/any/p03")
    assert all_found((one, first), (two, moved)) == ["1", None]
    assert all_found((two, moved), (one, first)) == [None, "1"]
    # Though the plan of the side that keeps its column is another, too, and nothing is exact.
    changed = identity(ORDERS, "at/any/p04")
    assert all_found((one, changed), (two, moved)) == ["1", None]
    with pytest.raises(CheckpointError, match="by 'bt' of orders, and the query has one by 'at'"):
        found_again(moved, two, lambda: [ClockAt(one, changed), ClockAt(two, moved)])
    # Each has the other's column now.
    exchanged = identity(ORDERS, "bt/any/p05")
    assert all_found((one, exchanged), (two, moved)) == ["2", "1"]


def test_each_of_two_clocks_that_are_another_plans_finds_its_own() -> None:
    """They are at each other's places, and a digest is another in another release of Spark."""
    first, second = identity(HALF, "at/any/p01"), identity(OTHER_HALF, "at/any/p02")
    one, two = offset("1", first, "orders"), offset("2", second, "orders", number=1)
    now = identity(HALF, "at/any/p03"), identity(OTHER_HALF, "at/any/p04")
    assert all_found((two, now[0]), (one, now[1])) == ["1", "2"]
    assert all_found((one, now[0]), (two, now[1])) == ["1", "2"]


def test_where_two_clocks_have_the_same_right_neither_is_preferred() -> None:
    who = identity(ORDERS, "at/any/p01")
    old_ones = [old(offset(name, who, "orders")) for name in "12"]
    now = identity(ORDERS, "at/any/p02"), identity(ORDERS, "at/any/p03")
    assert all_found((old_ones[0], now[0]), (old_ones[1], now[1])) == [None, None]


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
    # So a clock's topics are all replaced in two steps.
    for before, now in (
        (ORDERS, both),
        (both, Choice(topics=("more",))),
        (both, ORDERS),
        (LIKE_O, both),
        (both, LIKE_O),
    ):
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
    is_moved = "by 'at'" in said
    assert ('subscribe = "old,new"' in caught.value.hint) is is_moved
    assert "headwater pipeline reset" in caught.value.hint
