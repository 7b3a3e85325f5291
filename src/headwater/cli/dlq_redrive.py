"""Sending dead letters back to where they came from, each once.

This file alone decides how: a few hundred letters and the memory of them in one transaction. After
a kill, or beside another one who does the same, nothing is sent twice and nothing is left out; the
next run goes on with what has not been sent back.

A letter keeps its key, value, timestamp and the headers it had before it died, and gets one that
counts how often it was sent back. It goes to its old partition, or to that of its key where the
topic has fewer by now.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from headwater.base.errors import HeadwaterError
from headwater.base.record.records import Record, build_batch
from headwater.cli import dlq_progress
from headwater.cli.dlq_letters import Letter
from headwater.cli.dlq_progress import Redriven
from headwater.cli.options import topic_not_found
from headwater.delivery.client.cluster import Cluster, Place
from headwater.delivery.client.partitioner import partition_for_key
from headwater.delivery.client.transactor import Transactor
from headwater.streams.formats.letters import redriven_headers

# One transaction costs a few round trips: with so many letters they do not count.
_LETTERS_MAX: Final = 500
# Of a batch; Kafka takes 1,048,588 bytes with all that is around keys and values.
_BATCH_BYTES: Final = 512 * 1024
_TRANSACTION_BYTES: Final = 8 * _BATCH_BYTES
_RECORD_OVERHEAD_BYTES: Final = 64
# Shorter than what others wait for an answer: a run that was killed holds nobody up for longer.
_TIMEOUT_MS: Final = 15_000


class Sent(NamedTuple):
    """Where a letter goes."""

    place: Place
    record: Record

    @property
    def size_bytes(self) -> int:
        """An upper estimate."""
        key, value = self.record.key or b"", self.record.value or b""
        headers = sum(len(name) * 4 + len(data or b"") for name, data in self.record.headers)
        return len(key) + len(value) + headers + _RECORD_OVERHEAD_BYTES


class Redrive:
    """Sends letters of one topic back.

    Attributes:
        sent: How many have been, by the topic they went to.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        redriven: Redriven,
        *,
        target: str | None,
        rate: float | None,
    ) -> None:
        """Prepare; nothing is written before `begin`.

        Args:
            cluster: Where.
            topic: The dead-letter topic.
            redriven: What has been sent back before.
            target: Where letters go, if not to where they came from.
            rate: How many a second at most.
        """
        self.sent: dict[str, int] = {}
        self._cluster = cluster
        self._redriven = redriven
        self._target = target
        self._rate = rate
        self._transactor = Transactor(cluster, f"hw.redrive.{topic}", timeout_ms=_TIMEOUT_MS)
        self._producer: tuple[int, int] | None = None
        self._counts: dict[str, int] = {}
        self._end_of_progress = 0

    def begin(self) -> None:
        """Become the one who sends letters of this topic back, and learn what has been."""
        # In this order: from here on nobody else can add to what is read.
        self._producer = self._transactor.begin()
        self._redriven.read(self._cluster, settled=True)

    def where_to(self, letter: Letter) -> Sent:
        """Return what a letter becomes.

        Raises:
            CommandError: The topic that it came from is not there.
        """
        message, origin = letter.message, letter.origin
        assert origin is not None
        topic = self._target or origin.topic
        count = self._partition_count(topic)
        partition = origin.partition
        if partition >= count:
            partition = partition_for_key(message.key or b"", count)
        timestamp_ms = message.timestamp_ms if origin.timestamp_ms is None else origin.timestamp_ms
        headers = redriven_headers(message.headers, origin.redriven + 1)
        return Sent(
            (topic, partition), Record(0, timestamp_ms, message.key, message.value, headers)
        )

    def send(self, letters: Iterable[Letter], show: Callable[[int], None]) -> None:
        """Send letters back; `show` is told how many have been.

        Raises:
            ProducerFencedError: Somebody else has begun to send letters of this topic back.
            HeadwaterError: A broker refuses, or does not answer; what was sent before stays sent.
        """
        begun_s = time.monotonic()
        count = 0
        for part in self._parts(letters):
            if self._rate is not None:
                due_s = begun_s + (count + len(part)) / self._rate
                time.sleep(max(0.0, due_s - time.monotonic()))
            self._send_part(part)
            count += len(part)
            show(count)
        if count:
            dlq_progress.await_readable(self._cluster, self._end_of_progress)

    def _partition_count(self, topic: str) -> int:
        if topic not in self._counts:
            known = self._cluster.topics()
            if topic not in known:
                raise topic_not_found(topic, known)
            self._counts[topic] = len(known[topic].partitions)
        return self._counts[topic]

    def _parts(self, letters: Iterable[Letter]) -> Iterator[list[tuple[Letter, Sent]]]:
        """Yield what goes into one transaction: with a rate, no more than a second's worth."""
        most = _LETTERS_MAX if self._rate is None else max(1, min(_LETTERS_MAX, int(self._rate)))
        part: list[tuple[Letter, Sent]] = []
        size_bytes = 0
        for letter in letters:
            sent = self.where_to(letter)
            if part and (len(part) >= most or size_bytes + sent.size_bytes > _TRANSACTION_BYTES):
                yield part
                part, size_bytes = [], 0
            part.append((letter, sent))
            size_bytes += sent.size_bytes
        if part:
            yield part

    def _send_part(self, part: list[tuple[Letter, Sent]]) -> None:
        # Each `begin` has an epoch of its own; the first has been had.
        if self.sent:
            self._producer = self._transactor.begin(self._producer)
        batches = _batches(sent for _, sent in part)
        places = [(letter.message.partition, letter.message.offset) for letter, _ in part]
        progress = self._redriven.add(places, now_ms=time.time_ns() // 1_000_000)
        try:
            self._transactor.send({**batches, dlq_progress.place(): [progress]})
            self._end_of_progress = self._transactor.commit()[dlq_progress.place()]
        except BaseException:
            # Whether or not it can be told now: who begins next aborts what is left open.
            with contextlib.suppress(HeadwaterError):
                self._transactor.abort()
            raise
        for _, sent in part:
            self.sent[sent.place[0]] = self.sent.get(sent.place[0], 0) + 1


def _batches(records: Iterable[Sent]) -> dict[Place, list[bytes]]:
    """Make finished batches; the order within a partition is kept."""
    gathered: dict[Place, list[list[Record]]] = {}
    sizes: dict[Place, int] = {}
    for sent in records:
        groups = gathered.setdefault(sent.place, [])
        if not groups or sizes[sent.place] + sent.size_bytes > _BATCH_BYTES:
            groups.append([])
            sizes[sent.place] = 0
        groups[-1].append(sent.record)
        sizes[sent.place] += sent.size_bytes
    return {
        place: [bytes(build_batch(group)) for group in groups] for place, groups in gathered.items()
    }
