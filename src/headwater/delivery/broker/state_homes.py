"""Records of a state topic that lie in other partitions than their owner's.

This file alone decides which record of a key counts when several partitions have one. That happens
where the topic was given more partitions after it had been written to: what an owner wrote before
lies in its old partition, what it wrote afterwards in the one that its name leads to now, its home.

    live at home only                  the rule; nothing is decided here
    live in another partition          of all partitions' last words the one with the largest
                                       timestamp counts; at equal timestamps home's
    a tombstone in another partition   ends no value at home
    a transaction is open elsewhere    a later tombstone, wherever it lies, ends what it wrote;
                                       otherwise the key stays where it lies until a later start

What is brought home keeps its timestamp, and is buried where it lay by a tombstone one millisecond
older: should the topic grow once more, the tombstone is older than the value. A key for which a
transaction is open is not moved. In one partition the record furthest down counts, so what is moved
would count instead of what the transaction wrote before, and its tombstone would end that, too.

It reads and writes nothing. One thing cannot be known: a tombstone at home that compaction has
taken away. What it ended is then found in the other partition and counts again; an offset too many
expires, an offset too few would read everything anew. And a clock that is put back misleads it as
long as a key lies in two partitions.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple

from headwater.delivery.broker.state_replay import Standing, StateReplay, Stored

_NEVER: Final = -1

HomeOf = Callable[[bytes], int | None]
"""Finds the partition that a key belongs to; None for keys without an owner."""


class Homecoming(NamedTuple):
    """What becomes of a key that is live in other partitions than its home.

    Attributes:
        key: The key.
        winner: What counts; None where its last word is a tombstone.
        at_home: Whether the winner stands at home already.
        astray: The other partitions that have a value for it, and the timestamp of each.
        undone: The open transactions, by partition and producer id, whose value has ended.
        is_open: Whether an open transaction has another value, so that nothing is moved yet.
    """

    key: bytes
    winner: Stored | None
    at_home: bool
    astray: Sequence[tuple[int, int]]
    undone: Sequence[tuple[int, int]]
    is_open: bool


def outranks(one: Standing, other: Standing, home: int) -> bool:
    """Tell whether a record of a key counts where there is this other one, too."""
    if one.partition == other.partition:
        return one.offset > other.offset
    return (one.timestamp, one.partition == home) > (other.timestamp, other.partition == home)


def astray(replays: Sequence[StateReplay], home_of: HomeOf) -> set[bytes]:
    """Return the keys that have a value, if only a pending one, in another partition than home."""
    if len(replays) == 1:
        return set()
    return {
        key
        for index, replay in enumerate(replays)
        for key in chain(replay.newest, *replay.pending.values())
        if home_of(key) not in {index, None}
    }


def decide(
    keys: Iterable[bytes], replays: Sequence[StateReplay], home_of: HomeOf
) -> list[Homecoming]:
    """Decide for each key which partition has the last word; ``replays`` were asked about them."""
    pending: defaultdict[bytes, list[tuple[int, Stored]]] = defaultdict(list)
    for replay in replays:
        for producer_id, written in replay.pending.items():
            for key, stored in written.items():
                pending[key].append((producer_id, stored))
    return [_decide(key, replays, home_of(key), pending.get(key, ())) for key in keys]


def _decide(
    key: bytes,
    replays: Sequence[StateReplay],
    home: int | None,
    pending: Sequence[tuple[int, Stored]],
) -> Homecoming:
    words: list[tuple[int, bool, Stored | None]] = []
    others: dict[int, int] = {}
    undone = []
    is_open = False
    assert home is not None
    home_is_live = key in replays[home].newest
    for index, replay in enumerate(replays):
        stored = replay.newest.get(key)
        if stored is not None:
            words.append((stored.timestamp, index == home, stored))
            if index != home:
                others[index] = stored.timestamp
        elif key in replay.ended and not home_is_live:
            words.append((replay.ended[key], index == home, None))
    for producer_id, stored in pending:
        place = stored.partition
        ends_ms = (each.ended.get(key, _NEVER) for i, each in enumerate(replays) if i != place)
        if place != home and stored.timestamp <= max(ends_ms):
            undone.append((place, producer_id))
            others.setdefault(place, stored.timestamp)
        else:
            is_open = True
    nothing = (_NEVER, True, None)
    _, at_home, winner = max(words, key=lambda word: word[:2], default=nothing)
    return Homecoming(key, winner, at_home, list(others.items()), undone, is_open)
