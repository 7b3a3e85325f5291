"""Whose the offsets are that a source finds in its checkpoint.

This file alone decides that. Spark knows the sources of a query by their order, and hands each what
lies at its place. Where the sides of a union were swapped, or one was replaced, that is another's:
to go on would be to read partitions from their start, into results that have had them.

What is held against it is the choice of the source that wrote the offsets. A source may be given
more to read, or less, and goes on. It may not drop some and take up others in one step, nor take up
others and say what it reads by another option: of two sources that were swapped, one would do that.

It cannot be seen where one of them reads all that the other does by the same option, or exactly the
same: there it looks like a source that was given more, and one that was given less.
"""

from collections.abc import Callable, Iterable, Sequence

from headwater.streams.errors import SourcesChangedError
from headwater.streams.options import Choice
from headwater.streams.source.offsets import Offsets, Place

# Enough to know whose offsets they are.
_PLACES_SHOWN = 3


def refuse_anothers(
    choice: Choice, offsets: Offsets, existing: Callable[[], Iterable[Place]]
) -> None:
    """Refuse the offsets of another source.

    Args:
        choice: What this source reads.
        offsets: What lies at its place.
        existing: Gives the partitions that this source reads now. A topic that was deleted is not
            among them, but stays chosen.

    Raises:
        SourcesChangedError: They are another's.
    """
    known = offsets.positions()
    gone = sorted(place for place in known if not choice.takes(*place))
    if known and len(gone) == len(known):
        raise SourcesChangedError(
            f"this source reads {choice.told()}, but the checkpoint holds offsets of "
            f"{_shown(gone)} for it: the sources of the query were put in another order or "
            "replaced",
            hint=_HINT,
        )
    before = offsets.choice
    if before == choice or not known:
        return
    has_other_option = before is not None and before.option() != choice.option()
    if not gone and not has_other_option:
        return
    came = sorted(each for each in existing() if each not in known and not _had(offsets, each))
    if came:
        read = (
            "" if before is None else f", and the checkpoint is of one that reads {before.told()}"
        )
        raise SourcesChangedError(
            f"this source reads {choice.told()}{read}: the sources of the query were put in "
            f"another order or replaced, and {_shown(came)} would be read from the start",
            hint=_HINT,
        )


_HINT = (
    "put the sources back as they were, because Spark tells them apart by their order alone. To "
    'replace the topics of one, read both with it for one run (subscribe = "old,new") and leave '
    "the old ones out after that: what the query knows stays, and the new ones are read from their "
    "beginning. Or use a new checkpointLocation to read everything from its start"
)


def _had(offsets: Offsets, place: Place) -> bool:
    """Tell whether the source that wrote offsets would have read a partition."""
    if offsets.choice is None:
        return place[0] in offsets.topics
    return offsets.choice.takes(*place)


def _shown(places: Sequence[Place]) -> str:
    named = ", ".join(f"{topic}-{number}" for topic, number in places[:_PLACES_SHOWN])
    return named + ", ..." * (len(places) > _PLACES_SHOWN)
