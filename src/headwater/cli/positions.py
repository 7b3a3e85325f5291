"""Where in a topic: words for offsets.

This file alone decides how people name a place in a log, and which offset that is per partition:

    beginning, end      the first record there is; behind the last one
    1042                this offset, in every partition
    -100                100 records before the end of each partition
    -10m, -1h30m, -2d   so long ago; also s and w
    2026-11-15T10:00    that moment, in local time unless it ends with Z or +02:00
    @1763200000000      that moment, in milliseconds since 1970

An offset outside a partition is moved to its nearest edge, and the move is reported: nobody is
shown less than was asked for without being told.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

import click

from headwater.delivery.client import admin
from headwater.delivery.client.admin import EARLIEST, LATEST
from headwater.delivery.client.cluster import Cluster, Place, TopicInfo

FORMS = "beginning, end, an offset, -100 (records), -10m (ago), 2026-11-15T10:00 or @MILLISECONDS"

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = re.compile(r"-(?:\d+(?:ms|[smhdw]))+")
_AGO_PART = re.compile(r"(\d+)(ms|[smhdw])")
_NUMBER = re.compile(r"-?\d+")


class Kind(Enum):
    """What the number of a position counts."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    BEFORE_END = "before end"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in every partition of a topic."""

    kind: Kind
    number: int = 0


@dataclass(slots=True)
class Resolved:
    """Offsets, and where they are not what was asked for."""

    offsets: dict[Place, int]
    moved: list[str] = field(default_factory=list)


def parse(text: str) -> Position:
    """Read a position.

    Raises:
        click.UsageError: The text is none of the forms.
    """
    word = text.strip()
    if word in {"beginning", "earliest", "start"}:
        return Position(Kind.EARLIEST)
    if word in {"end", "latest"}:
        return Position(Kind.LATEST)
    if _NUMBER.fullmatch(word):
        number = int(word)
        if word.startswith("-"):
            return Position(Kind.BEFORE_END, -number)
        return Position(Kind.OFFSET, number)
    if _AGO.fullmatch(word):
        return Position(Kind.TIME, time.time_ns() // 1_000_000 - duration_ms(word[1:]))
    if word.startswith("@") and word[1:].isdecimal():
        return Position(Kind.TIME, int(word[1:]))
    try:
        return Position(Kind.TIME, int(datetime.fromisoformat(word).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise click.UsageError(f"{text!r} is no position: use {FORMS}") from None


def duration_ms(text: str) -> int:
    """Read "10m" or "1h30m".

    Raises:
        click.UsageError: The text is no time span.
    """
    parts = _AGO_PART.findall(text)
    if not parts or "".join(amount + unit for amount, unit in parts) != text:
        raise click.UsageError(f"{text!r} is no time span: use 20s, 10m, 1h30m or 2d")
    return sum(int(amount) * _UNITS_MS.get(unit, 1) for amount, unit in parts)


def places_of(topic: TopicInfo, partition: int | None = None) -> list[Place]:
    """Return a topic's partitions, or the one that is wanted."""
    numbers = [each.number for each in topic.partitions]
    if partition is not None and partition not in numbers:
        raise click.UsageError(
            f"topic {topic.name!r} has no partition {partition}, only 0 to {max(numbers)}"
        )
    return [(topic.name, number) for number in numbers if partition in {None, number}]


def resolve(
    cluster: Cluster,
    places: Sequence[Place],
    position: Position,
    *,
    read_committed: bool = False,
) -> Resolved:
    """Return the offset that a position means in each partition.

    For readers of committed data the end is the last stable offset, as for Kafka's consumers.
    """
    if not places:
        return Resolved({})
    if position.kind is Kind.EARLIEST:
        return Resolved(admin.list_offsets(cluster, dict.fromkeys(places, EARLIEST)))
    if position.kind is Kind.LATEST:
        return Resolved(_end(cluster, places, read_committed=read_committed))
    if position.kind is Kind.TIME:
        return Resolved(admin.list_offsets(cluster, dict.fromkeys(places, position.number)))
    if position.kind is Kind.BEFORE_END:
        first = admin.list_offsets(cluster, dict.fromkeys(places, EARLIEST))
        end = _end(cluster, places, read_committed=read_committed)
        return Resolved({at: max(first[at], end[at] - position.number) for at in places})
    return _within(cluster, dict.fromkeys(places, position.number))


def resolve_end(
    cluster: Cluster, places: Sequence[Place], position: Position, *, read_committed: bool
) -> Resolved:
    """Return where a range ends, for readers of committed data before what is still open.

    Only what an open transaction holds back is reported: it will be there later, and no reader
    could tell that it is missing.
    """
    if not read_committed:
        return Resolved(resolve(cluster, places, position).offsets)
    if position.kind is Kind.BEFORE_END:
        return Resolved(resolve(cluster, places, position, read_committed=True).offsets)
    # In this order: all that was there at first is stable by then, unless a transaction is open.
    wanted = resolve(cluster, places, position).offsets
    stable = _end(cluster, places, read_committed=True)
    return Resolved(
        {at: min(offset, stable[at]) for at, offset in wanted.items()},
        [
            f"{topic}-{number} is read to offset {stable[topic, number]}, not {offset}: a "
            "transaction is open there"
            for (topic, number), offset in wanted.items()
            if stable[topic, number] < offset
        ],
    )


def shift(
    cluster: Cluster, places: Sequence[Place], offsets: Mapping[Place, int], by: int
) -> Resolved:
    """Return offsets moved by so many records, at most to the edges of their partitions.

    Raises:
        click.UsageError: A partition has no offset that could be moved.
    """
    for topic, number in places:
        if (topic, number) not in offsets:
            raise click.UsageError(
                f"nothing was ever committed in {topic}-{number}: say where to begin with --to"
            )
    return _within(cluster, {place: offsets[place] + by for place in places})


def _end(cluster: Cluster, places: Sequence[Place], *, read_committed: bool) -> dict[Place, int]:
    latest = dict.fromkeys(places, LATEST)
    return admin.list_offsets(cluster, latest, read_committed=read_committed)


def _within(cluster: Cluster, wanted: Mapping[Place, int]) -> Resolved:
    first = admin.list_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
    end = admin.list_offsets(cluster, dict.fromkeys(wanted, LATEST))
    resolved = Resolved({})
    for place, asked in wanted.items():
        offset = min(max(asked, first[place]), end[place])
        resolved.offsets[place] = offset
        if offset != asked:
            resolved.moved.append(
                f"{place[0]}-{place[1]} has offsets {first[place]} to {end[place]}: "
                f"{asked} became {offset}"
            )
    return resolved
