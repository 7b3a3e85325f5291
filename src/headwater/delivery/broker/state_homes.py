"""Records of a state topic that lie in other partitions than their owner's.

This file alone decides which record of a key counts when several partitions have one. That happens
where the topic was given more partitions after it had been written to: what an owner wrote before
lies in its old partition, what it wrote afterwards in the one that its name leads to now, its home.

    live at home only                  the rule; nothing is decided here
    live in another partition          of all partitions' last words the one with the largest
                                       timestamp counts; at equal timestamps home's
    a tombstone in another partition   ends no value at home

What is brought home is then buried where it lay, by a tombstone that has the timestamp of what it
buries: should the topic grow once more, the tombstone is older than the value.

It reads and writes nothing. One thing cannot be known: a tombstone at home that compaction has
taken away. What it ended is then found in the other partition and counts again; an offset too many
expires, an offset too few would read everything anew.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from headwater.delivery.broker.state_replay import StateReplay, Stored

HomeOf = Callable[[bytes], int | None]
"""Finds the partition that a key belongs to; None for keys without an owner."""


class Homecoming(NamedTuple):
    """What becomes of a key that is live in other partitions than its home.

    Attributes:
        key: The key.
        winner: What counts; None where its last word is a tombstone.
        at_home: Whether the winner stands at home already.
        astray: The other partitions that have a value for it, and the timestamp of each.
    """

    key: bytes
    winner: Stored | None
    at_home: bool
    astray: Sequence[tuple[int, int]]


def astray(replays: Sequence[StateReplay], home_of: HomeOf) -> set[bytes]:
    """Return the keys that have a value in another partition than their home."""
    if len(replays) == 1:
        return set()
    return {
        key
        for index, replay in enumerate(replays)
        for key in replay.newest
        if home_of(key) not in {index, None}
    }


def decide(
    keys: Iterable[bytes], replays: Sequence[StateReplay], home_of: HomeOf
) -> list[Homecoming]:
    """Decide for each key which partition has the last word; ``replays`` were asked about them."""
    return [_decide(key, replays, home_of(key)) for key in keys]


def _decide(key: bytes, replays: Sequence[StateReplay], home: int | None) -> Homecoming:
    words: list[tuple[int, bool, Stored | None]] = []
    others = []
    assert home is not None
    home_is_live = key in replays[home].newest
    for index, replay in enumerate(replays):
        stored = replay.newest.get(key)
        if stored is not None:
            words.append((stored.timestamp, index == home, stored))
            if index != home:
                others.append((index, stored.timestamp))
        elif key in replay.ended and not home_is_live:
            words.append((replay.ended[key], index == home, None))
    _, at_home, winner = max(words, key=lambda word: word[:2])
    return Homecoming(key, winner, at_home, others)
