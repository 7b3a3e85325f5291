"""Whose the offsets of a checkpoint are, of two sources of one query that were swapped or not."""

import dataclasses
from collections.abc import Iterable

import pytest

from headwater.streams.errors import SourcesChangedError
from headwater.streams.options import Choice
from headwater.streams.source.offsets import Offsets, Place, make_offsets
from headwater.streams.source.ownership import refuse_anothers

PLACES = [(topic, number) for topic in ("aa", "ab", "bc") for number in range(2)]
BEGINNING_WITH_A = Choice(pattern="a.*")


def by_name(*topics: str) -> Choice:
    return Choice(topics=topics)


def assigned(*numbers: int) -> Choice:
    return Choice(partitions={"aa": numbers})


def read_by(choice: Choice) -> Offsets:
    """Return the offsets of a source that has read all that it chooses."""
    return make_offsets(dict.fromkeys(existing(choice), 7), {}, choice=choice)


def existing(choice: Choice) -> list[Place]:
    return [place for place in PLACES if choice.takes(*place)]


def go_on(now: Choice, offsets: Offsets, there: Iterable[Place] = ()) -> None:
    refuse_anothers(now, offsets, lambda: [*existing(now), *there])


def nobody() -> Iterable[Place]:
    raise AssertionError


SWAPPED = [
    (by_name("aa"), by_name("bc")),
    (by_name("aa", "ab"), by_name("ab", "bc")),
    (assigned(0), assigned(1)),
    (BEGINNING_WITH_A, Choice(pattern=".*b.*")),
    (by_name("aa"), BEGINNING_WITH_A),
    (by_name("aa"), assigned(0)),
    (assigned(0), BEGINNING_WITH_A),
]


@pytest.mark.parametrize("one,other", SWAPPED)
def test_two_sources_that_were_swapped_are_noticed_by_one_of_them(
    one: Choice, other: Choice
) -> None:
    refused = []
    for now, before in ((one, other), (other, one)):
        try:
            go_on(now, read_by(before))
        except SourcesChangedError as error:
            refused.append(error)
    assert refused
    for each in refused:
        assert "put in another order or replaced" in each.message
        assert 'subscribe = "old,new"' in each.hint
        assert "new checkpointLocation" in each.hint


@pytest.mark.parametrize("one,other", SWAPPED[:4])
def test_they_are_noticed_in_offsets_that_do_not_say_who_wrote_them(
    one: Choice, other: Choice
) -> None:
    for now, before in ((one, other), (other, one)):
        with pytest.raises(SourcesChangedError, match="another order or replaced"):
            go_on(now, dataclasses.replace(read_by(before), choice=None))


@pytest.mark.parametrize(
    "before,now",
    [
        (by_name("aa"), by_name("aa", "bc")),
        (by_name("aa", "bc"), by_name("bc")),
        (BEGINNING_WITH_A, Choice(pattern=".*")),
        (Choice(pattern=".*"), BEGINNING_WITH_A),
        (assigned(0), assigned(0, 1)),
        (assigned(0, 1), assigned(1)),
        (by_name("aa", "ab"), BEGINNING_WITH_A),
        (Choice(pattern=".*"), assigned(1)),
    ],
)
def test_a_source_may_be_given_more_or_less_to_read(before: Choice, now: Choice) -> None:
    go_on(now, read_by(before))
    go_on(now, dataclasses.replace(read_by(before), choice=None))


def test_what_appears_among_what_was_chosen_before_is_no_reason() -> None:
    go_on(by_name("aa"), read_by(by_name("aa", "ab")), there=[("aa", 2)])
    go_on(BEGINNING_WITH_A, read_by(Choice(pattern=".*")), there=[("ad", 0)])


def test_nobody_is_asked_where_nothing_was_dropped() -> None:
    for choice in (by_name("aa"), BEGINNING_WITH_A, assigned(1)):
        refuse_anothers(choice, read_by(choice), nobody)
        refuse_anothers(choice, Offsets({}), nobody)
    refuse_anothers(by_name("aa", "ab"), read_by(by_name("aa")), nobody)


def test_a_topic_that_was_deleted_is_no_reason() -> None:
    offsets = make_offsets({("aa", 0): 7, ("az", 0): 7}, {}, choice=by_name("aa", "az"))
    go_on(by_name("aa", "az", "bc"), offsets)
