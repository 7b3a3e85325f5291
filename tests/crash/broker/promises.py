"""What a broker was heard to promise, over the wire.

This file alone decides what counts as a promise and when it is broken. Clients note each step
before and after it, from any thread; nothing here talks to a broker.

* A record acknowledged with acks=all stays at its offset. So does every record that anybody was
  shown, byte for byte with the batch it came in, and no end of a partition that anybody was told
  of (high watermark, latest offset) goes back.
* No record is anywhere twice, however often its idempotent producer had to send it again, and none
  is there that nobody sent.
* A log start that anybody was told of does not go back, nor beyond what was asked for.
* Topics, ids, configs and committed offsets are those of the last change that was answered, or of
  the one that was under way. Producer ids never repeat.

A topic with ``flush.messages`` above 1 promises nothing over a crash, but what it shows is still
whole, in order, known and without repetitions.
"""

import hashlib
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from headwater.base.record.batch import BatchHeader
from headwater.base.record.records import iterate

Place = tuple[str, int]
Configs = frozenset[tuple[str, str]]

FIXED = "fixed"
TRIMMED = "trimmed"
SHRINKING = "shrinking"
LOOSE = "loose"


@dataclass(frozen=True)
class TopicState:
    """A topic as clients see it.

    Attributes:
        partitions: How many.
        configs: The overrides.
        generation: Tells apart topics that had the same name.
        habit: What its log start does: FIXED at 0, TRIMMED by request, SHRINKING by itself; LOOSE
            is FIXED and not durable.
    """

    partitions: int
    configs: Configs
    generation: int = 0
    habit: str = FIXED


@dataclass
class PartitionPromise:
    """What is known of one partition.

    Attributes:
        attempts: Every value that was sent to it.
        acknowledged: The offsets that were acknowledged with acks=all.
        batches: By base offset, the digest of the batch that was shown there.
        where: The offset of each value that was acknowledged or shown.
        what: The value of each offset that was acknowledged or shown.
        end: Behind the last offset that anybody was told of.
        start: The highest log start that anybody was told of.
        start_asked: The highest that anybody asked for.
    """

    attempts: set[bytes] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    batches: dict[int, bytes] = field(default_factory=dict)
    where: dict[bytes, int] = field(default_factory=dict)
    what: dict[int, bytes] = field(default_factory=dict)
    end: int = 0
    start: int = 0
    start_asked: int = 0


@dataclass
class OffsetPromise:
    """A group's offset in one partition: as acknowledged, and what may have replaced it since."""

    acknowledged: int | None = None
    attempted: set[int | None] = field(default_factory=set)


class Ledger:
    """All promises of one data directory, and all that were broken.

    Attributes:
        topics: What exists, as acknowledged.
        under_way: By name, what a topic becomes when the change under way is through.
        offsets: By group and partition.
        broker_configs: Overrides of the running broker, acknowledged and under way.
        broken: Kind and description of each promise that was not kept.
        counts: How often something happened.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicState] = {}
        self.under_way: dict[str, TopicState | None] = {}
        self.ids: dict[tuple[str, int], bytes] = {}
        self.offsets: dict[tuple[str, Place], OffsetPromise] = {}
        self.broker_configs: Configs = frozenset()
        self.broker_configs_under_way: Configs | None = None
        self.cluster_id = ""
        self.broken: list[tuple[str, str]] = []
        self.counts: Counter[str] = Counter()
        self._partitions: dict[tuple[str, int, int], PartitionPromise] = {}
        self._producer_ids: set[int] = set()
        self._values = 0
        self._guard = threading.RLock()

    def breach(self, kind: str, description: str) -> None:
        """Note a promise that was not kept."""
        with self._guard:
            self.broken.append((kind, description))

    def expect(self, kept: bool, kind: str, description: str) -> None:
        """Note a breach unless something holds."""
        if not kept:
            self.breach(kind, description)

    # Records.

    def promise(self, place: Place) -> PartitionPromise:
        """Return the promise of a partition of a topic that exists."""
        name, partition = place
        key = (name, self.topics[name].generation, partition)
        with self._guard:
            return self._partitions.setdefault(key, PartitionPromise())

    def values(self, place: Place, count: int, sizes: Iterable[int]) -> list[bytes]:
        """Return values that occur nowhere else, noted as sent."""
        with self._guard:
            numbers = range(self._values, self._values + count)
            self._values += count
            values = [
                b"%s-%d/%d:" % (place[0].encode(), place[1], number) + b"x" * size
                for number, size in zip(numbers, sizes, strict=True)
            ]
            self.promise(place).attempts.update(values)
        return values

    def acknowledge(
        self, place: Place, base_offset: int, values: Sequence[bytes], *, durable: bool
    ) -> None:
        """Note the answer to a produce request; only acks=all promises anything."""
        with self._guard:
            if not durable or self.topics[place[0]].habit == LOOSE:
                return
            promise = self.promise(place)
            for offset, value in enumerate(values, base_offset):
                self._place(place, promise, offset, value)
                promise.acknowledged.add(offset)
            promise.end = max(promise.end, base_offset + len(values))
            self.counts["acked"] += len(values)

    def show(self, place: Place, header: BatchHeader, batch: bytes) -> None:
        """Note a batch that somebody was given to read."""
        with self._guard:
            promise = self.promise(place)
            digest = hashlib.blake2b(batch, digest_size=16).digest()
            known = promise.batches.setdefault(header.base_offset, digest)
            if known is not digest:
                self.expect(
                    known == digest, "changed", f"{place}: the batch at {header.base_offset}"
                )
                return
            for record in iterate(batch):
                value = record.value or b""
                self.expect(
                    value in promise.attempts,
                    "unknown",
                    f"{place}: nobody sent {value[:40]!r}, at offset {record.offset}",
                )
                self._place(place, promise, record.offset, value)
            if self.topics[place[0]].habit != LOOSE:
                promise.end = max(promise.end, header.next_offset)

    def _place(self, place: Place, promise: PartitionPromise, offset: int, value: bytes) -> None:
        known = promise.where.setdefault(value, offset)
        self.expect(
            known == offset, "doubled", f"{place}: {value[:40]!r} is at {known} and at {offset}"
        )
        before = promise.what.setdefault(offset, value)
        self.expect(
            before == value,
            "changed",
            f"{place}: offset {offset} was {before[:40]!r} and is {value[:40]!r}",
        )

    def show_end(self, place: Place, offset: int) -> None:
        """Note a high watermark or latest offset that somebody was told of."""
        with self._guard:
            if self.topics[place[0]].habit != LOOSE:
                promise = self.promise(place)
                promise.end = max(promise.end, offset)

    def show_start(self, place: Place, offset: int) -> None:
        """Note a log start that somebody was told of."""
        with self._guard:
            promise = self.promise(place)
            promise.start = max(promise.start, offset)

    def bounds(self, place: Place) -> tuple[int, int]:
        """Return the log start and the end that anybody was told of."""
        with self._guard:
            promise = self.promise(place)
            return promise.start, promise.end

    def ask_start(self, place: Place, offset: int) -> None:
        """Note a log start that somebody is about to ask for."""
        with self._guard:
            promise = self.promise(place)
            promise.start_asked = max(promise.start_asked, offset)

    def crash(self) -> None:
        """Forget what nobody promised to keep over a crash."""
        for (name, _, _), promise in self._partitions.items():
            state = self.topics.get(name)
            if state is not None and state.habit == LOOSE:
                promise.batches.clear()
                promise.where.clear()
                promise.what.clear()

    # Metadata.

    @contextmanager
    def changing(self, name: str, state: TopicState | None) -> Iterator[None]:
        """Note a change of one topic; it is acknowledged when the block ends without an error."""
        self.under_way[name] = state
        yield
        del self.under_way[name]
        self._adopt(name, state)

    def resolve(self, name: str, state: TopicState | None) -> None:
        """Note which of the two possible states a topic was found in."""
        self.under_way.pop(name, None)
        self._adopt(name, state)

    def _adopt(self, name: str, state: TopicState | None) -> None:
        with self._guard:
            if state is None:
                self.topics.pop(name, None)
            else:
                self.topics[name] = state

    def identify(self, name: str, topic_id: bytes) -> None:
        """Note a topic's id, which belongs to one generation of one name for ever."""
        key = (name, self.topics[name].generation)
        known = self.ids.setdefault(key, topic_id)
        same_id = [other for other, used in self.ids.items() if used == topic_id]
        self.expect(
            known == topic_id and same_id == [key],
            "metadata",
            f"{key} had the id {known.hex()}; {topic_id.hex()} is that of {same_id}",
        )

    def producer_id(self, producer_id: int) -> None:
        """Note a producer id that was given out."""
        with self._guard:
            self.expect(
                producer_id not in self._producer_ids,
                "repeated",
                f"producer id {producer_id} was given out twice",
            )
            self._producer_ids.add(producer_id)

    # Groups.

    def offset(self, group: str, place: Place) -> OffsetPromise:
        """Return the promise of a committed offset."""
        with self._guard:
            return self.offsets.setdefault((group, place), OffsetPromise())

    def attempt_offset(self, group: str, place: Place, offset: int | None) -> None:
        """Note a commit, or the removal of an offset (None), that is under way."""
        self.offset(group, place).attempted.add(offset)

    def acknowledge_offset(self, group: str, place: Place, offset: int | None) -> None:
        """Note the answer to it."""
        promise = self.offset(group, place)
        promise.acknowledged = offset
        promise.attempted.clear()
        self.counts["commits"] += 1
