"""Writes records to topics.

This file alone decides how records become batches and requests: gathered per partition, sent to
the leaders, sent again after errors that pass. It is idempotent: a repeated batch is recognised by
the broker and written once.
"""

import random
import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from headwater.base.errors import RETRIABLE, ErrorCode, KafkaError
from headwater.base.record.codecs import Codec
from headwater.base.record.records import Record, build_batch
from headwater.delivery.client.cluster import Cluster, Place
from headwater.delivery.client.errors import BrokerUnreachableError
from headwater.delivery.client.partitioner import partition_for_key
from headwater.delivery.client.requests import produce_answers, produce_request
from headwater.delivery.wire.kafka import messages

Header = tuple[str, bytes | None]

ACKS_ALL = -1

# A batch is closed at this size of its keys and values. Kafka's default limit for a batch is
# 1,048,588 bytes; the rest is room for headers and lengths.
_BATCH_BYTES = 512 * 1024
# Everything is sent when this much waits, whatever the number of partitions.
_BUFFER_BYTES = 8 * 1024 * 1024
# Fixed part of a record's encoding, an upper estimate.
_RECORD_OVERHEAD_BYTES = 32
_RETRY_PAUSE_S = 0.1
# By-name versions only: ids are not needed for topics that we have just looked up.
_PRODUCE_VERSION_MAX = 12


class Delivered(NamedTuple):
    """Where one batch went."""

    topic: str
    partition: int
    base_offset: int
    record_count: int


class _Batch:
    """Records of one partition that travel together."""

    __slots__ = ("records", "sequence", "size_bytes")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.size_bytes = 0
        self.sequence = -1


class Producer:
    """Gathers records and sends them; nothing is certain before ``flush`` returned."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = ACKS_ALL,
        codec: Codec = Codec.NONE,
        create_topics: bool = False,
    ) -> None:
        """Prepare to write.

        Args:
            cluster: Where to.
            acks: -1 waits until records are safe, 1 until the leader has them, 0 for nothing.
            codec: How batches are compressed.
            create_topics: Whether topics that do not exist may be created by mentioning them.
        """
        self._cluster = cluster
        self._acks = acks
        self._codec = codec
        self._create_topics = create_topics
        self._waiting: dict[Place, list[_Batch]] = {}
        self._waiting_bytes = 0
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[Place, int] = {}
        # Another partition for each producer, so that many short-lived ones share the load.
        self._next_keyless = random.randrange(1 << 16)  # noqa: S311 - no secret
        self._delivered: list[Delivered] = []

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Take a record; it is sent when a batch is full, or by ``flush``.

        Raises:
            KafkaError: The topic does not exist, or an earlier batch was refused.
        """
        if partition is None:
            partition = self._choose_partition(topic, key)
        now_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        size = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        for name, content in headers:
            size += len(name) + len(content or b"")
        batch = self._open_batch((topic, partition), size)
        batch.records.append(Record(0, now_ms, key, value, headers))
        batch.size_bytes += size
        self._waiting_bytes += size
        if self._waiting_bytes >= _BUFFER_BYTES:
            self._send_waiting()

    def flush(self) -> list[Delivered]:
        """Send everything and wait for it; return where batches went since the last flush.

        Raises:
            KafkaError: A batch was refused; it and those behind it are not sent again.
            BrokerUnreachableError: No broker answered until the time was up.
        """
        self._send_waiting()
        return self.take_delivered()

    def take_delivered(self) -> list[Delivered]:
        """Return where batches went since the last flush; after an error, what was still safe."""
        delivered, self._delivered = self._delivered, []
        return delivered

    def __enter__(self) -> Self:
        """Use the producer in a with block."""
        return self

    def __exit__(self, exception_type: type[BaseException] | None, *_: object) -> None:
        """Send what is left, unless something went wrong."""
        if exception_type is None:
            self.flush()

    # --- gathering ------------------------------------------------------------------------------

    def _choose_partition(self, topic: str, key: bytes | None) -> int:
        count = len(self._cluster.topic(topic, create=self._create_topics).partitions)
        if key is not None:
            return partition_for_key(key, count)
        # Keyless records fill one batch, then the next partition's: fewer, larger batches.
        partition = self._next_keyless % count
        open_batches = self._waiting.get((topic, partition))
        if open_batches and open_batches[-1].size_bytes >= _BATCH_BYTES // 8:
            self._next_keyless += 1
            partition = self._next_keyless % count
        return partition

    def _open_batch(self, place: Place, size_bytes: int) -> _Batch:
        batches = self._waiting.setdefault(place, [])
        if not batches or batches[-1].size_bytes + size_bytes > _BATCH_BYTES:
            batches.append(_Batch())
        return batches[-1]

    # --- sending --------------------------------------------------------------------------------

    def _send_waiting(self) -> None:
        """Send one batch per partition and round, so that their order is kept through retries."""
        waiting, self._waiting = self._waiting, {}
        self._waiting_bytes = 0
        if not waiting:
            return
        self._next_keyless += 1
        try:
            if self._acks == ACKS_ALL and self._producer is None:
                self._producer = self._init_producer()
            self._send_until_done(waiting)
        except BaseException:
            # Whether a batch arrived is not known, so the next one cannot have its number.
            self._producer = None
            self._sequences.clear()
            raise

    def _send_until_done(self, waiting: dict[Place, list[_Batch]]) -> None:
        deadline_s = time.monotonic() + self._cluster.timeout_s
        while waiting:
            again = self._send_round({place: batches[0] for place, batches in waiting.items()})
            for place in list(waiting):
                if place not in again:
                    waiting[place].pop(0)
                    if not waiting[place]:
                        del waiting[place]
            if again:
                if time.monotonic() >= deadline_s:
                    raise next(iter(again.values()))
                time.sleep(_RETRY_PAUSE_S)

    def _init_producer(self) -> tuple[int, int]:
        def ask() -> tuple[int, int]:
            request = messages.InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=60_000
            )
            response = self._cluster.any().call(request)
            if response.error_code:
                raise KafkaError(ErrorCode(response.error_code))
            return response.producer_id, response.producer_epoch

        return self._cluster.retrying(ask)

    def _send_round(self, batches: dict[Place, _Batch]) -> dict[Place, Exception]:
        """Send a batch to each place; return those that have to be sent again, and why."""
        again: dict[Place, Exception] = {}
        by_leader: dict[int, dict[Place, _Batch]] = {}
        for place, batch in batches.items():
            try:
                leader = self._cluster.leader(*place)
            except KafkaError as error:
                self._keep_or_raise(place, error, again)
                continue
            by_leader.setdefault(leader, {})[place] = batch
        for leader, share in by_leader.items():
            try:
                response = self._produce(leader, share)
            except BrokerUnreachableError as error:
                for place in share:
                    self._cluster.forget_topic(place[0])
                    again[place] = error
                continue
            if response is not None:
                self._take_response(response, share, again)
        return again

    def _produce(self, leader: int, share: dict[Place, _Batch]) -> Any:  # noqa: ANN401
        connection = self._cluster.broker(leader, purpose="produce")
        request = produce_request(
            {place: self._encode(place, batch) for place, batch in share.items()},
            acks=self._acks,
            timeout_s=self._cluster.timeout_s,
        )
        connection.send(request, version_max=_PRODUCE_VERSION_MAX)
        if self._acks == 0:
            connection.expect_no_answer()
            return None
        return connection.receive()

    def _encode(self, place: Place, batch: _Batch) -> bytearray:
        if self._producer is None:
            return build_batch(batch.records, codec=self._codec)
        if batch.sequence < 0:
            batch.sequence = self._sequences.get(place, 0)
            self._sequences[place] = (batch.sequence + len(batch.records)) & 0x7FFFFFFF
        return build_batch(
            batch.records,
            codec=self._codec,
            producer_id=self._producer[0],
            producer_epoch=self._producer[1],
            base_sequence=batch.sequence,
        )

    def _take_response(
        self,
        response: messages.ProduceResponse,
        share: dict[Place, _Batch],
        again: dict[Place, Exception],
    ) -> None:
        refused: list[KafkaError] = []
        for place, answer in produce_answers(response):
            code = ErrorCode(answer.error_code)
            if code in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
                count = len(share[place].records)
                self._delivered.append(Delivered(*place, answer.base_offset, count))
                continue
            error = KafkaError(code, answer.error_message or f"{place[0]}: {code.name}")
            try:
                self._keep_or_raise(place, error, again)
            except KafkaError:
                # Not at once: what the same answer says of other partitions is true all the same.
                refused.append(error)
        if refused:
            raise refused[0]

    def _keep_or_raise(
        self, place: Place, error: KafkaError, again: dict[Place, Exception]
    ) -> None:
        if error.code not in RETRIABLE:
            raise error
        self._cluster.forget_topic(place[0])
        again[place] = error
