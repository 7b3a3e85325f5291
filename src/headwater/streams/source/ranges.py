"""Which records make up a batch, and which task reads them.

This file alone decides how far a batch goes and how it is cut into tasks. It asks no broker: what
is available is handed in, and the same offsets always give the same ranges, so that a batch which
Spark repeats has the same rows.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headwater.streams.errors import CheckpointError, DataLossError, TopicRecreatedError
from headwater.streams.options import Choice
from headwater.streams.source.offsets import Offsets, Place, make_offsets

# Of all partitions together: above so many the driver plans longer than the tasks run.
_RANGES_MAX = 100_000


class Range(NamedTuple):
    """Records of one partition that one task reads: from `start` up to, not including, `end`."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int

    @property
    def span(self) -> int:
        """How many offsets it spans; records may be fewer."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Available:
    """What the brokers have at one moment.

    Attributes:
        ids: The id of each topic, in text; empty where the broker has none.
        starts: The first offset of each partition.
        ends: Behind the last record that may be read now.
        log_ends: Behind the last record that is there, open transactions included.
    """

    ids: Mapping[str, str]
    starts: Mapping[Place, int]
    ends: Mapping[Place, int]
    log_ends: Mapping[Place, int]


class Located(NamedTuple):
    """Where a batch begins, as far as its start and the brokers together tell.

    Attributes:
        positions: The first offset to read of each partition that is there.
        moved: Those positions that the start does not have, and the end has to write down.
        losses: What cannot be read any more, in sentences; the end has it behind itself.
        kept: The positions of partitions that are not there. They stay in the offsets: a partition
            that comes back is gone on with, and never read twice.
        absences: What is not there, in sentences.
    """

    positions: dict[Place, int]
    moved: dict[Place, int]
    losses: list[DataLossError]
    kept: dict[Place, int]
    absences: list[DataLossError]


def absent(start: Offsets, available: Available) -> list[Place]:
    """Return the partitions of a checkpoint that the brokers do not name.

    Those of a topic that was created again are not among them: it has none of the old partitions.
    """
    return [
        place
        for place in start.positions()
        if place not in available.starts and not _is_recreated(place[0], start, available)
    ]


def _is_recreated(topic: str, start: Offsets, available: Available) -> bool:
    kept, current = start.topics[topic].topic_id, available.ids.get(topic)
    return bool(kept and current and kept != current)


def locate(start: Offsets, available: Available) -> Located:
    """Hold the offsets of a checkpoint against what the brokers have now."""
    positions: dict[Place, int] = {}
    moved: dict[Place, int] = {}
    recreated = [topic for topic in start.topics if _is_recreated(topic, start, available)]
    losses: list[DataLossError] = [
        _topic_recreated(topic, start.topics[topic].topic_id, available.ids[topic])
        for topic in recreated
    ]
    known = start.positions()
    for place, first in available.starts.items():
        if place not in known or place[0] in recreated:
            positions[place] = moved[place] = first
            continue
        offset = known[place]
        if offset < first:
            losses.append(fell_off(place, offset, first))
            positions[place] = moved[place] = first
        elif offset > available.log_ends[place]:
            losses.append(log_shrank(place, offset, available.log_ends[place]))
            positions[place] = moved[place] = available.log_ends[place]
        else:
            positions[place] = offset
    kept = {place: known[place] for place in absent(start, available)}
    if start.initial:
        moved = positions | kept
    absences = [_topic_gone(topic) for topic in start.topics if topic not in available.ids]
    absences += [_partition_gone(place) for place in kept if place[0] in available.ids]
    return Located(positions, moved, losses, kept, absences)


def backlog(located: Located, ends: Mapping[Place, int]) -> dict[Place, int]:
    """Return how many offsets of each partition are to be read still."""
    return {
        place: max(ends.get(place, 0) - position, 0)
        for place, position in located.positions.items()
    }


def share(backlogs: Mapping[Place, int], limit: int | None) -> dict[Place, int]:
    """Divide a limit among partitions in proportion to what each has waiting.

    Nobody gets more than it has, and all of the limit is used. Whoever waits gets at least one, or
    a busy partition beside it would keep a quiet one waiting for ever; only where the limit is
    below the number of those who wait, those with the longest queues come first.
    """
    waiting = {place: count for place, count in backlogs.items() if count > 0}
    total = sum(waiting.values())
    if limit is None or total <= limit:
        return dict(backlogs)
    shares = dict.fromkeys(backlogs, 0)
    first = sorted(waiting, key=lambda place: (-waiting[place], place))[:limit]
    for place in first:
        shares[place] = 1
    left, rest = limit - len(first), total - len(first)
    if left == 0:
        return shares
    exact = {place: left * (count - 1) for place, count in waiting.items()}
    for place, product in exact.items():
        shares[place] += product // rest
    over = limit - sum(shares.values())
    for place in sorted(exact, key=lambda place: (-(exact[place] % rest), place))[:over]:
        shares[place] += 1
    return shares


def batch_end(
    start: Offsets,
    located: Located,
    available: Available,
    limit: int | None,
    choice: Choice | None = None,
) -> Offsets | None:
    """Decide where the next batch ends; None when there is nothing to read and to write down.

    A choice that has changed is written down even where there is nothing to read: what changes next
    is held against it.
    """
    shares = share(backlog(located, available.ends), limit)
    ends = {place: position + shares[place] for place, position in located.positions.items()}
    ends |= located.kept
    is_known = start.choice is None or start.choice == choice
    if ends == start.positions() and not located.losses and is_known:
        return None
    ids = {topic: each.topic_id for topic, each in start.topics.items()} | dict(available.ids)
    return make_offsets(ends, ids, began=located.moved, group=start.group, choice=choice)


def planned(start: Offsets, end: Offsets) -> list[Range]:
    """Return the ranges of a batch, one per partition; empty ones are left out.

    Raises:
        CheckpointError: The end goes on from another start than this one.
    """
    if end.initial:
        return []
    known, began = start.positions(), end.began()
    ranges = []
    for topic, each in end.topics.items():
        for number, stop in each.partitions.items():
            first = began.get((topic, number), known.get((topic, number)))
            if first is None or stop < first:
                raise CheckpointError(
                    f"{topic}-{number}: a batch cannot end at {stop} and begin at {first}",
                    hint="the checkpoint was changed by hand, or holds files of two queries; "
                    "restore it, or give the query a new checkpointLocation",
                )
            if stop > first:
                ranges.append(Range(topic, each.topic_id, number, first, stop))
    return sorted(ranges)


def split(
    ranges: Iterable[Range], *, partitions_min: int | None = None, records_max: int | None = None
) -> list[Range]:
    """Cut ranges so that there are enough of them, and none has more offsets than it may.

    The larger a range, the more often it is cut; offsets, order and gaplessness stay. Where that
    would make too many of them, they are fewer and larger than asked for.
    """
    whole = sorted(ranges)
    total = sum(each.span for each in whole)
    wanted: dict[Place, int] = {}
    for each in whole:
        parts = 1
        if partitions_min is not None and partitions_min > len(whole):
            parts = max(parts, -(-each.span * partitions_min // total))
        if records_max is not None:
            parts = max(parts, -(-each.span // records_max))
        # At least one offset each, or there would be empty tasks.
        wanted[each.topic, each.partition] = min(parts, each.span)
    # Every partition is read in this batch, however many there are.
    allowed = share(wanted, max(_RANGES_MAX, len(whole)))
    cut = []
    for each in whole:
        parts = allowed[each.topic, each.partition]
        edges = [each.start + each.span * index // parts for index in range(parts + 1)]
        cut += [
            each._replace(start=first, end=behind) for first, behind in itertools.pairwise(edges)
        ]
    return cut


# --- what is lost, in words ---------------------------------------------------------------------

_GO_ON = "to go on without them: .option('failOnDataLoss', 'false')"


def _topic_gone(topic: str) -> DataLossError:
    return DataLossError(
        f"topic {topic!r} does not exist any more",
        hint="was it deleted, or is this another cluster? " + _GO_ON,
    )


def _topic_recreated(topic: str, kept: str, current: str) -> TopicRecreatedError:
    return TopicRecreatedError(
        f"topic {topic!r} is not the one that the checkpoint knows: its id was {kept}, now it is "
        f"{current}",
        hint="it was deleted and created again, or the broker's data directory is a new one. Give "
        "the query a new checkpointLocation; or, to go on with the new topic from its beginning: "
        ".option('failOnDataLoss', 'false')",
    )


def _partition_gone(place: Place) -> DataLossError:
    return DataLossError(
        f"{place[0]}-{place[1]} does not exist any more", hint="see the topic; " + _GO_ON
    )


def fell_off(place: Place, offset: int, first: int) -> DataLossError:
    """Say that the log begins behind a record that was not read yet."""
    return DataLossError(
        f"{place[0]}-{place[1]}: records {offset} to {first - 1} were removed before they were "
        "read",
        hint="give the topic a longer retention.ms; " + _GO_ON,
    )


def log_shrank(place: Place, offset: int, log_end: int) -> DataLossError:
    """Say that the log ends before a record that was there."""
    return DataLossError(
        f"{place[0]}-{place[1]}: the next record is {offset}, but the log ends at {log_end}",
        hint="the broker has lost records that it had shown; " + _GO_ON,
    )
