"""Reading the letters of dead-letter topics.

This file alone decides which topics are such, and which letters a command is about. What makes a
record a letter stands in `headwater.streams.formats.letters`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import click

from headwater.base.errors import ErrorCode, KafkaError
from headwater.cli import output, positions
from headwater.cli.dlq_progress import Redriven
from headwater.cli.options import Session
from headwater.cli.positions import Kind, Position
from headwater.cli.progress import Progress
from headwater.cli.ranges import Predicate, RangeReader, condition
from headwater.delivery.client.cluster import Cluster, Place, TopicInfo
from headwater.delivery.client.consumer import Consumer, Message
from headwater.streams.formats.letters import Origin, kind_of, maybe_origin

_PLACE = re.compile(r"(\d+):(\d+)(?:-(\d+))?")
_BEGINNING, _END = Position(Kind.EARLIEST), Position(Kind.LATEST)
# What of each topic is looked at to find out what it is.
_FIRST_BYTES = 1 << 20


class Letter(NamedTuple):
    """A record of a dead-letter topic; one without an origin got there by mistake."""

    message: Message
    origin: Origin | None
    is_redriven: bool

    @property
    def came_from_a_topic(self) -> bool:
        """Whether there is a place to send it back to; what a sink could not write has none."""
        return self.origin is not None and self.origin.offset >= 0

    @property
    def is_waiting(self) -> bool:
        """Whether it can be sent back and has not been."""
        return self.came_from_a_topic and not self.is_redriven

    @property
    def kind(self) -> str:
        """The word by which it is counted."""
        return "(no dead letter)" if self.origin is None else kind_of(self.origin.error)


class Selection:
    """Which letters are meant."""

    def __init__(
        self,
        places: Sequence[str] = (),
        *,
        reason: str | None = None,
        where: str | None = None,
    ) -> None:
        """Take what was asked for; all of it has to be true of a letter.

        Args:
            places: PARTITION:OFFSET or PARTITION:FIRST-LAST.
            reason: The kind, or the beginning of the whole reason.
            where: A condition, as in headwater tail.

        Raises:
            click.UsageError: A place or the condition cannot be read.
        """
        self._ranges = [_parsed(text) for text in places]
        self._reason = reason
        self._predicate: Predicate | None = condition(where)

    @property
    def is_everything(self) -> bool:
        """Whether nothing was asked for."""
        return not self._ranges and self._reason is None and self._predicate is None

    def narrowed(self, ranges: dict[Place, tuple[int, int]]) -> dict[Place, tuple[int, int]]:
        """Leave out of ranges of offsets, ends not included, what no letter that is meant is in."""
        if not self._ranges:
            return ranges
        found = {}
        for place, (start, end) in ranges.items():
            asked = [(first, last) for at, first, last in self._ranges if at == place[1]]
            if asked:
                from_offset = max(start, min(first for first, _ in asked))
                found[place] = (from_offset, min(end, max(last for _, last in asked) + 1))
        return found

    def has(self, letter: Letter) -> bool:
        """Tell whether a letter is meant."""
        at, offset = letter.message.partition, letter.message.offset
        if self._ranges and not any(
            partition == at and first <= offset <= last for partition, first, last in self._ranges
        ):
            return False
        if self._reason is not None and not _has_reason(letter, self._reason):
            return False
        return self._predicate is None or self._predicate(letter.message)


class Letters:
    """All letters of a topic, from the first to the last that is there now.

    Attributes:
        redriven: Those that have been sent back.
    """

    def __init__(
        self, session: Session, topic: TopicInfo, redriven: Redriven, *, quiet: bool = False
    ) -> None:
        self.redriven = redriven
        self._session = session
        self._topic = topic
        self._quiet = quiet

    def read(self, selection: Selection) -> Iterator[Letter]:
        """Yield the letters that are meant, in the order of each partition."""
        cluster = self._session.cluster
        places = positions.places_of(self._topic)
        end = positions.resolve_end(cluster, places, _END, read_committed=True)
        for held_back in end.moved:
            output.remark("note", held_back, as_json=self._session.as_json)
        start = positions.resolve(cluster, places, _BEGINNING)
        ranges = selection.narrowed(
            {place: (start.offsets[place], end.offsets[place]) for place in places}
        )
        reader = RangeReader(
            cluster,
            {place: first for place, (first, _) in ranges.items()},
            {place: last for place, (_, last) in ranges.items()},
            on_loss=self._tell_loss,
        )
        bar = Progress(self._topic.name, unit="offsets", quiet=self._quiet)
        total = reader.offsets_left
        try:
            while not reader.done:
                for message in reader.read():
                    is_redriven = (message.partition, message.offset) in self.redriven
                    letter = Letter(message, maybe_origin(message.headers), is_redriven)
                    if selection.has(letter):
                        yield letter
                bar.show(total - reader.offsets_left, total)
        finally:
            bar.close()

    def _tell_loss(self, text: str) -> None:
        output.remark("warning", text, as_json=self._session.as_json)


def dead_letter_topics(cluster: Cluster) -> list[str]:
    """Return the topics whose first record is a dead letter."""
    places = [
        place
        for topic in cluster.topics().values()
        if not topic.is_hidden
        for place in positions.places_of(topic)
    ]
    starts = positions.resolve(cluster, places, _BEGINNING).offsets
    ends = positions.resolve(cluster, places, _END, read_committed=True).offsets
    consumer = Consumer(cluster, read_committed=True, fetch_bytes=_FIRST_BYTES)
    consumer.assign(_unread(starts, ends, lambda _: True))
    found: dict[str, bool] = {}
    while consumer.positions:
        for message in _polled(consumer, cluster):
            found.setdefault(message.topic, maybe_origin(message.headers) is not None)
        consumer.assign(_unread(consumer.positions, ends, lambda place: place[0] not in found))
    return sorted(name for name, is_one in found.items() if is_one)


def _polled(consumer: Consumer, cluster: Cluster) -> list[Message]:
    """Read on; where retention has removed what was to be read, go on behind it."""
    try:
        return consumer.poll()
    except KafkaError as error:
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        at = consumer.positions
        starts = positions.resolve(cluster, list(at), _BEGINNING).offsets
        behind = {place: max(offset, starts[place]) for place, offset in at.items()}
        if behind == at:
            raise
        consumer.assign(behind)
        return []


def _unread(
    at: dict[Place, int], ends: dict[Place, int], is_wanted: Callable[[Place], bool]
) -> dict[Place, int]:
    return {
        place: offset for place, offset in at.items() if offset < ends[place] and is_wanted(place)
    }


def _parsed(text: str) -> tuple[int, int, int]:
    match = _PLACE.fullmatch(text)
    if match is None:
        raise click.UsageError(
            f"{text!r} is no letter: write PARTITION:OFFSET or PARTITION:FIRST-LAST"
        )
    partition, first, last = int(match[1]), int(match[2]), int(match[3] or match[2])
    return partition, first, last


def _has_reason(letter: Letter, reason: str) -> bool:
    return letter.origin is not None and (
        letter.kind == reason.upper() or letter.origin.error.startswith(reason)
    )
