"""Hands finished batches to the leaders of their partitions, in order and exactly once.

This file alone decides how many requests are under way and what is sent again. It knows neither
what is in a batch nor when its transaction ends.

Each batch has its number in the sequence of its producer and partition, so a broker recognises one
that comes again and refuses one that comes too early. Several requests are under way to a leader;
when one fails, no more are sent there, all answers are awaited, and what is not done is sent again
from the first on. A broker that has nothing of the producer yet would take any number for its
first, so the first batch of a partition travels alone.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headwater.base.errors import RETRIABLE, ErrorCode, HeadwaterError, KafkaError
from headwater.base.record.batch import parse_header, stamp_transaction
from headwater.base.record.varint import BytesLike
from headwater.delivery.client.cluster import Cluster, Place
from headwater.delivery.client.connection import Connection
from headwater.delivery.client.errors import BrokerUnreachableError
from headwater.delivery.client.requests import produce_answers, produce_request

_ACKS_ALL = -1
# From version 12 on a broker adds partitions to the transaction by itself, if its protocol is the
# newer one; up to 11 every broker expects that the client has done so.
_PRODUCE_VERSION_MAX = 11
_REQUEST_BYTES_MAX = 1 << 20
# Brokers remember the last five batches of a producer, to recognise those that come again.
_UNDER_WAY_MAX = 5
_RETRY_PAUSE_S = 0.1
_SEQUENCE_MASK = 0x7FFF_FFFF
# A batch whose predecessor was refused comes too early; or it came before, and its predecessor too.
# In either case both are sent again, in their order.
_BEHIND_A_FAILURE = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NONE}


class Writer(NamedTuple):
    """On whose behalf batches are sent."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class _Batch(NamedTuple):
    """A batch as it was given, and its place in the sequence."""

    content: BytesLike
    sequence: int
    record_count: int


class BatchSender:
    """Sends what one writer writes, and knows how far each partition has come."""

    def __init__(self, cluster: Cluster, writer: Writer) -> None:
        self._cluster = cluster
        self._writer = writer
        self._sequences: dict[Place, int] = {}
        self.end_offsets: dict[Place, int] = {}

    def send(self, batches: Mapping[Place, Sequence[BytesLike]]) -> None:
        """Send all and wait until they are safe.

        Raises:
            KafkaError: A batch was refused, or not taken in time.
            BrokerUnreachableError: A leader did not answer in time.
        """
        waiting = {place: self._numbered(place, given) for place, given in batches.items() if given}
        deadline_s = time.monotonic() + self._cluster.timeout_s
        while waiting:
            left = sum(map(len, waiting.values()))
            failure = self._send_round(waiting)
            waiting = {place: queue for place, queue in waiting.items() if queue}
            if sum(map(len, waiting.values())) < left:
                deadline_s = time.monotonic() + self._cluster.timeout_s
            if failure is not None:
                if time.monotonic() >= deadline_s:
                    raise failure
                time.sleep(_RETRY_PAUSE_S)

    def _numbered(self, place: Place, given: Sequence[BytesLike]) -> deque[_Batch]:
        sequence = self._sequences.get(place, 0)
        numbered: deque[_Batch] = deque()
        for content in given:
            header = parse_header(content)
            assert header.size_bytes == len(content), "not exactly one batch"
            count = header.last_offset_delta + 1
            numbered.append(_Batch(content, sequence, count))
            sequence = (sequence + count) & _SEQUENCE_MASK
        self._sequences[place] = sequence
        return numbered

    def _send_round(self, waiting: dict[Place, deque[_Batch]]) -> HeadwaterError | None:
        """Send until all is done or something failed that passes; return that."""
        failure: HeadwaterError | None = None
        by_leader: dict[int, dict[Place, deque[_Batch]]] = {}
        for place, queue in waiting.items():
            try:
                leader = self._cluster.leader(*place)
            except HeadwaterError as error:
                failure = self._passing(place, error)
            else:
                by_leader.setdefault(leader, {})[place] = queue
        lanes: list[_Lane] = []
        try:
            for leader, share in by_leader.items():
                try:
                    connection = self._cluster.broker(leader, purpose="produce")
                except BrokerUnreachableError as error:
                    for place in share:
                        failure = self._passing(place, error)
                else:
                    lanes.append(_Lane(connection, share, self.end_offsets))
            while any(lane.has_more for lane in lanes):
                for lane in lanes:
                    failure = self._advance(lane) or failure
        finally:
            for lane in lanes:
                lane.leave()
        return failure

    def _advance(self, lane: "_Lane") -> HeadwaterError | None:
        """Send what may be under way, then take one answer."""
        failure: HeadwaterError | None = None
        try:
            while (share := lane.next_share()) is not None:
                request = produce_request(
                    {place: self._stamped(batch) for place, batch in share.items()},
                    acks=_ACKS_ALL,
                    timeout_s=self._cluster.timeout_s,
                    transactional_id=self._writer.transactional_id,
                )
                lane.connection.send(request, version_max=_PRODUCE_VERSION_MAX)
            if not lane.under_way:
                return None
            response = lane.connection.receive()
        except BrokerUnreachableError as error:
            for place in lane.fail():
                failure = self._passing(place, error)
            return failure
        share = lane.under_way.popleft()
        for place, answer in produce_answers(response):
            batch = share.pop(place)
            code = ErrorCode(answer.error_code)
            if place in lane.failed and code in _BEHIND_A_FAILURE:
                continue
            if code == ErrorCode.NONE:
                lane.done(place, batch)
                self.end_offsets[place] = answer.base_offset + batch.record_count
            else:
                text = answer.error_message or code.name
                failure = self._passing(place, KafkaError(code, f"{place[0]}-{place[1]}: {text}"))
                lane.fail(place)
        for place in share:
            silent = f"{lane.connection.address} said nothing of {place[0]}-{place[1]}"
            failure = self._passing(place, BrokerUnreachableError(silent))
            lane.fail(place)
        return failure

    def _stamped(self, batch: _Batch) -> bytearray:
        stamped = bytearray(batch.content)
        stamp_transaction(
            stamped,
            0,
            producer_id=self._writer.producer_id,
            producer_epoch=self._writer.producer_epoch,
            base_sequence=batch.sequence,
        )
        return stamped

    def _passing(self, place: Place, error: HeadwaterError) -> HeadwaterError:
        """Return the error if it may pass; the leader is looked for anew."""
        if isinstance(error, KafkaError) and error.code not in RETRIABLE:
            raise error
        if not isinstance(error, KafkaError | BrokerUnreachableError):
            raise error
        self._cluster.forget_topic(place[0])
        return error


class _Lane:
    """The way to one leader: what waits for it, and what is under way."""

    def __init__(
        self,
        connection: Connection,
        queues: dict[Place, deque[_Batch]],
        begun: Mapping[Place, object],
    ) -> None:
        self.connection = connection
        self.under_way: deque[dict[Place, _Batch]] = deque()
        self.failed: set[Place] = set()
        self._queues = queues
        self._begun = begun
        # Partitions take turns; each has sent so many of the batches at the head of its queue.
        self._turns = deque(queues)
        self._sent = dict.fromkeys(queues, 0)

    @property
    def has_more(self) -> bool:
        return bool(self.under_way) or (not self.failed and any(self._queues.values()))

    def next_share(self) -> dict[Place, _Batch] | None:
        """Take the next request's batches, one for each partition; None: wait for answers."""
        if self.failed or len(self.under_way) >= _UNDER_WAY_MAX:
            return None
        share: dict[Place, _Batch] = {}
        size_bytes = 0
        for _ in range(len(self._turns)):
            place = self._turns[0]
            queue, sent = self._queues[place], self._sent[place]
            if sent < len(queue) and (sent == 0 or place in self._begun):
                size_bytes += len(queue[sent].content)
                if share and size_bytes > _REQUEST_BYTES_MAX:
                    break
                share[place] = queue[sent]
                self._sent[place] += 1
            self._turns.rotate(-1)
        if not share:
            return None
        self.under_way.append(share)
        return share

    def done(self, place: Place, batch: _Batch) -> None:
        """Let go of a batch that is safe: the oldest one of its partition."""
        assert self._queues[place][0] is batch
        self._queues[place].popleft()
        self._sent[place] -= 1

    def fail(self, place: Place | None = None) -> list[Place]:
        """Send no more here: a partition's batch was refused, or no answer comes any more."""
        if place is not None:
            self.failed.add(place)
            return [place]
        self.under_way.clear()
        self.failed.update(self._queues)
        return list(self._queues)

    def leave(self) -> None:
        """Close the connection if answers are left on it that nobody will take."""
        if self.under_way:
            self.connection.close()
