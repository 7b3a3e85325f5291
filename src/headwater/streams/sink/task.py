"""What a task does with its rows: it encodes them, and sends nothing.

This file alone decides which limits hold for a topic's rows, and what becomes of records that are
larger. Whether an attempt of a task counts is Spark's to say, after it has ended; so everything
goes to the driver, by an outbox that takes batches as they are finished: rows are many, memory is
not.
"""

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.record.records import Header, Record, build_batch
from headwater.delivery.client.cluster import Cluster
from headwater.streams.formats import letters
from headwater.streams.sink.connections import lent_cluster
from headwater.streams.sink.encode import Encoder, Oversized
from headwater.streams.sink.errors import OversizedRecordError
from headwater.streams.sink.limits import TopicLimits, topic_limits
from headwater.streams.sink.message import Outbox
from headwater.streams.sink.options import SinkOptions

OVERSIZED: Final = "OVERSIZED"
"""The kind of reason that a dead letter has, if it was too large."""

# Of a record that does not fit its dead-letter topic either, so much is kept for people to see.
_CUT_BYTES: Final = 16 << 10
# Keys, names and reasons around the value of a letter.
_LETTER_OVERHEAD_BYTES: Final = 4 << 10
# Of all batches that are open at once, in all topics: 128 full ones of the usual size.
_OPEN_BYTES_MAX: Final = 64 << 20


def encode_rows(rows: Iterable[pa.RecordBatch], options: SinkOptions, outbox: Outbox) -> None:
    """Encode all rows of a task into finished batches, and hand them over.

    Raises:
        UnknownTopicError: A row goes to a topic that does not exist.
        OversizedRecordError: A record is larger than its topic takes, and no dead letter is wanted.
        HeadwaterError: Columns or rows cannot be written, or no broker answers.
    """
    with lent_cluster(options) as cluster:
        task = _Task(cluster, options, outbox)
        for batch in rows:
            task.add(batch)
        task.finish()


class _Task:
    """The encoders of one task, one for each topic: each topic has limits of its own."""

    def __init__(self, cluster: Cluster, options: SinkOptions, outbox: Outbox) -> None:
        self._cluster = cluster
        self._outbox = outbox
        self._options = options
        self._now_ms = time.time_ns() // 1_000_000
        self._encoders: dict[str | None, Encoder] = {}
        self._limits: dict[str, TopicLimits] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        for topic, share in self._by_topic(batch):
            encoder = self._encoder(topic, batch.schema)
            encoder.add(share)
            self._bury(encoder.take_oversized())
            self._hand_over(encoder)
        if sum(each.open_bytes for each in self._encoders.values()) > _OPEN_BYTES_MAX:
            self.finish()

    def finish(self) -> None:
        """Hand over all rows that were added."""
        for encoder in self._encoders.values():
            encoder.close_open()
            self._hand_over(encoder)

    def _hand_over(self, encoder: Encoder) -> None:
        for place, batch in encoder.take_finished():
            self._outbox.add(place, batch)

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        """Split a batch; rows without a topic are left to an encoder that refuses them."""
        if self._options.topic is not None or "topic" not in batch.schema.names:
            yield self._options.topic, batch
            return
        column = batch.column("topic")
        found = pc.unique(column).to_pylist()
        for topic in found:
            if len(found) == 1:
                yield topic, batch
            elif topic is None:
                yield None, batch.filter(pc.is_null(column))
            else:
                yield topic, batch.filter(pc.equal(column, topic))

    def _encoder(self, topic: str | None, schema: pa.Schema) -> Encoder:
        encoder = self._encoders.get(topic)
        if encoder is None:
            options = self._options
            limits = TopicLimits(1, None) if topic is None else self._limits_of(topic)
            record_bytes_max = _smaller(options.record_bytes_max, limits.batch_bytes_max)
            encoder = self._encoders[topic] = Encoder(
                topic=topic,
                partition_counts=lambda _: limits.partitions,
                codec=options.codec,
                batch_bytes=min(options.batch_bytes, record_bytes_max),
                record_bytes_max=record_bytes_max,
                headers=options.include_headers and "headers" in schema.names,
                now_ms=self._now_ms,
            )
        return encoder

    def _limits_of(self, topic: str) -> TopicLimits:
        if topic not in self._limits:
            self._limits[topic] = topic_limits(self._cluster, topic)
        return self._limits[topic]

    def _bury(self, oversized: list[Oversized]) -> None:
        """Make dead letters of records that are too large, or refuse them."""
        if not oversized:
            return
        dead_letter_topic = self._options.dead_letter_topic
        if dead_letter_topic is None:
            record = oversized[0]
            raise OversizedRecordError(
                f"{self._said_of(record)}: key {(record.key or b'')[:80]!r}",
                hint="raise the topic's max.message.bytes and kafka.max.request.size, or set "
                "oversized = deadLetter and a deadLetterTopic",
            )
        limits = self._limits_of(dead_letter_topic)
        bytes_max = limits.batch_bytes_max or self._options.record_bytes_max
        # Letters of one topic are together; whoever reads them has few.
        place = (dead_letter_topic, 0)
        for record in oversized:
            letter = self._letter(record, bytes_max)
            self._outbox.add(place, bytes(build_batch([letter])))

    def _said_of(self, record: Oversized) -> str:
        topic, partition = record.place
        allowed = self._limits_of(topic).batch_bytes_max
        return (
            f"a record of {record.size_bytes} bytes for {topic}-{partition}, which takes "
            f"{_smaller(self._options.record_bytes_max, allowed)}"
        )

    def _letter(self, record: Oversized, bytes_max: int) -> Record:
        said = self._said_of(record)
        key, value, kept = record.key, record.value, record.headers
        if record.size_bytes + _LETTER_OVERHEAD_BYTES > bytes_max:
            said += f"; only the first {_CUT_BYTES} bytes of it are here"
            key = key and key[:_CUT_BYTES]
            value = value and value[:_CUT_BYTES]
            kept = _first_headers(kept)
        reason = letters.reason(OVERSIZED, said)
        own = letters.headers_of((*record.place, -1), record.timestamp, reason, "")
        return Record(0, self._now_ms, key, value, [*kept, *own])


def _first_headers(headers: Sequence[Header]) -> list[Header]:
    """Return as many headers as may be kept of a record that is cut; each is whole."""
    ends = itertools.accumulate(len(name.encode()) + len(value or b"") for name, value in headers)
    return [each for each, end in zip(headers, ends, strict=True) if end <= _CUT_BYTES]


def _smaller(wanted: int, allowed: int | None) -> int:
    return wanted if allowed is None else min(wanted, allowed)
