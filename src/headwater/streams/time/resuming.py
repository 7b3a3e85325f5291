"""Which of a checkpoint's clocks a time reader goes on with.

This file alone decides that. Spark hands a source what lies at its place among the offsets, and
says nothing of whose it is. It is another's where an earlier release had put time readers in
another order, or somebody has exchanged the inputs of a join; and it is nobody's any more where
time goes by another column. To go on with it would call rows late that are not, and say nothing.

A clock is known by its column and by what its sources read. It stays the same with another delay,
another `idle`, another rule for the future, another plan, and with a topic more or less: people
change these, and go on. Where several may be meant, that one is which reads exactly the same; then
the one whose tasks report under the same name, which has a digest of the plan; then the one that
has read the same topics; then the one at the place. Before version 2 a place says nothing.

Two clocks never continue from the same offset: the one that is left over would hold the watermark
of operators back for ever. The clock that matches an offset best gets it. All readers of the query
decide alike, because all are given the same facts: what lies at each place, and which clock the
query has there now.

Nobody is asked: what else the checkpoint has is handed in where it has to be known.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from headwater.streams.errors import CheckpointError
from headwater.streams.options import Choice
from headwater.streams.time.reader_options import Read
from headwater.streams.time.time_offset import TimeOffset

_BEGIN_ANEW: Final = "begin anew with another checkpointLocation, or headwater pipeline reset"


@dataclasses.dataclass(frozen=True)
class Identity:
    """By what a clock is known.

    Attributes:
        name: Under which name its tasks report: its column, its rule, and a digest of the plan.
        choices: What its sources read.
    """

    name: str
    choices: tuple[Choice, ...]

    @classmethod
    def of(cls, name: str, reads: Iterable[Read]) -> "Identity":
        """Return that of a clock with this name, whose sources read these."""
        return cls(name, tuple(read.choice for read in reads))

    def put_on(self, offset: TimeOffset) -> TimeOffset:
        """Return an offset that says whose it is."""
        return dataclasses.replace(offset, name=self.name, choices=self.choices)

    def is_on(self, offset: TimeOffset) -> bool:
        """Tell whether an offset says that it is this clock's, in every respect."""
        return offset.name == self.name and offset.choices == self.choices

    def may_be_of(self, offset: TimeOffset) -> bool:
        """Tell whether an offset can be this clock's."""
        if offset.name is not None and column_in(offset.name) != column_in(self.name):
            return False
        if offset.choices is None:
            return True
        return self.has_read(offset) or any(
            _meet(one, other) for one in self.choices for other in offset.choices
        )

    def has_read(self, offset: TimeOffset) -> bool:
        """Tell whether an offset has a time of what this clock's sources read."""
        return any(choice.takes(*place) for choice in self.choices for place in offset.fold)

    def nearness(self, offset: TimeOffset) -> tuple[bool, bool, bool]:
        """Return how much speaks for an offset that may be this clock's."""
        return (
            offset.choices == self.choices,
            offset.name == self.name,
            self.has_read(offset),
        )


class ClockAt(NamedTuple):
    """A place of a checkpoint.

    Attributes:
        offset: What the checkpoint has of a clock there.
        identity: The clock that the query has there now; None: it is not known.
    """

    offset: TimeOffset
    identity: Identity | None = None


def column_in(name: str) -> str:
    """Return the column in a name under which tasks report; the column may have any letter."""
    return name.rsplit("/", 2)[0]


def found_again(
    identity: Identity, offset: TimeOffset, clocks: Callable[[], Sequence[ClockAt]]
) -> TimeOffset:
    """Return what a checkpoint has of a clock.

    Args:
        identity: The clock.
        offset: What lies at its place.
        clocks: Gives all places with clocks in the checkpoint.

    Raises:
        CheckpointError: It has nothing of this clock, or does not say what.
    """
    if identity.is_on(offset):
        return offset
    own = ClockAt(offset, identity)
    places = [own]
    for place in clocks():
        if place not in places:
            places.append(place)
    known = {each.offset.clock_id: each.offset for each in places if each.offset.asked}
    claimed = _claimed(places, known)
    possible = [
        each
        for name, each in known.items()
        if identity.may_be_of(each) and claimed.get(name, own) is own
    ]
    if not possible:
        raise _another(identity, offset)
    best = max(identity.nearness(each) for each in possible)
    nearest = [each for each in possible if identity.nearness(each) == best]
    if len(nearest) == 1:
        return nearest[0]
    is_known = all(each.choices is not None for each in nearest)
    has_time = any(each.decision.watermark_us is not None for each in nearest)
    if offset in nearest and (is_known or not has_time):
        return offset
    raise CheckpointError(
        f"the checkpoint has {len(nearest)} watermarks that may be the one by "
        f"{_told(identity.name, _topics(identity.choices))}, and does not say which it is",
        hint="an earlier release has written it: finish with that one what is to be finished, "
        f"or {_BEGIN_ANEW}",
    )


def _claimed(places: Sequence[ClockAt], known: Mapping[str, TimeOffset]) -> dict[str, ClockAt]:
    """Return which place's clock goes on with which offset, as far as that is beyond doubt."""
    claims = [
        (_claim(place.identity, offset, is_there=name == place.offset.clock_id), index, name)
        for index, place in enumerate(places)
        if place.identity is not None
        for name, offset in known.items()
        if place.identity.may_be_of(offset)
    ]
    claimed: dict[str, int] = {}
    for strength in sorted({strength for strength, _, _ in claims}, reverse=True):
        equal = [
            (index, name)
            for each, index, name in claims
            if each == strength and index not in claimed.values() and name not in claimed
        ]
        claimed |= {
            name: index
            for index, name in equal
            if sum(index == other or name == wanted for other, wanted in equal) == 1
        }
    return {name: places[index] for name, index in claimed.items()}


def _claim(identity: Identity, offset: TimeOffset, *, is_there: bool) -> tuple[bool, ...]:
    """Return how strong a clock's claim on an offset is, which may lie at its place."""
    is_own = is_there and identity.is_on(offset)
    return (is_own, *identity.nearness(offset), is_there and offset.choices is not None)


def _meet(one: Choice, other: Choice) -> bool:
    """Tell whether two choices may have a topic in common."""
    if one.pattern is not None:
        return other.pattern is not None or any(one.matches(name) for name in other.names())
    if other.pattern is not None:
        return any(other.matches(name) for name in one.names())
    return bool(set(one.names()) & set(other.names()))


def _another(identity: Identity, offset: TimeOffset) -> CheckpointError:
    topics = _topics(offset.choices or ())
    hint = "change hf.watermark, or the inputs of a join, back to what they were"
    if offset.name is not None and column_in(offset.name) == column_in(identity.name):
        hint += (
            '. To replace the topics of a source, read both for one run (subscribe = "old,new") '
            "and leave the old ones out after that. Or "
        ) + _BEGIN_ANEW
    else:
        hint += f", or {_BEGIN_ANEW}"
    return CheckpointError(
        f"the checkpoint has a watermark by {_told(offset.name, topics)}, and the query has one by "
        f"{_told(identity.name, _topics(identity.choices))}: judged by the old one, rows of the "
        "new one would count as late",
        hint=hint,
    )


def _topics(choices: Iterable[Choice]) -> list[str]:
    return [name for each in choices for name in ([each.pattern] if each.pattern else each.names())]


def _told(name: str | None, topics: Iterable[str]) -> str:
    column = "an unknown column" if name is None else repr(column_in(name))
    named = ", ".join(dict.fromkeys(topics))
    return f"{column} of {named}" if named else column
