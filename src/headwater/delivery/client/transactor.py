"""One transaction at a time, of finished record batches.

This file alone decides how a transaction begins, grows and ends. How batches reach the leaders
stands in `batch_sender`; what is in them is the caller's.

The protocol is the one that every broker since 2.5 speaks, with or without Kafka's newer
transactions: partitions are added before they are written to, and each `begin` gets an epoch of
its own. So what an earlier transaction has sent can never end up in a later one.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from headwater.base.errors import RETRIABLE, ErrorCode, HeadwaterError, KafkaError
from headwater.base.record.varint import BytesLike
from headwater.delivery.client.batch_sender import BatchSender, Writer
from headwater.delivery.client.cluster import (
    TRANSACTION,
    Cluster,
    Place,
    is_retriable_or_broken,
)
from headwater.delivery.client.connection import Connection
from headwater.delivery.client.errors import ProducerFencedError, TransactionTimedOutError
from headwater.delivery.wire.kafka import messages

Result = TypeVar("Result")

_INIT_VERSION_MAX = 4
# From 4 on the request is for brokers among themselves.
_ADD_VERSION_MAX = 3
# From 5 on the end of a transaction changes the epoch, which belongs to the newer protocol.
_END_VERSION_MAX = 4
# Java's client waits as long for the markers of the last transaction.
_RETRY_PAUSE_S = 0.02

_FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
# What a broker says to one whose transaction it has given up; without a new epoch, the last two.
_GIVEN_UP = _FENCED | {ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
_GRANT = "grant the principal WRITE on it, or use another principal"
_AGAIN = "abort, and begin the transaction again"
_HINTS = {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _GRANT,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _GRANT,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _GRANT,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "ask for no more than the broker's "
    "transaction.max.timeout.ms",
    ErrorCode.MESSAGE_TOO_LARGE: "raise the topic's max.message.bytes, or write smaller batches",
    ErrorCode.RECORD_LIST_TOO_LARGE: "raise the topic's segment.bytes, or write smaller batches",
    ErrorCode.INVALID_RECORD: "a compacted topic takes no record without a key",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "choose another compression.type",
}


class Transactor:
    """Writes finished batches to any partitions: all of them or, for readers, none."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        timeout_ms: int = 60_000,
        timeout_ms_least: int | None = None,
    ) -> None:
        """Prepare to write under a transactional id.

        Args:
            cluster: Where to.
            transactional_id: The name under which one writer at a time can write.
            timeout_ms: After which the broker gives up a transaction that has not ended.
            timeout_ms_least: What will do, too, where the broker does not allow as much.
        """
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._timeout_ms_least = timeout_ms_least
        self._open_since_s = 0.0
        self._writer: Writer | None = None
        self._sender: BatchSender | None = None
        self._added: set[Place] = set()
        self._is_whole = True

    @property
    def end_offsets(self) -> dict[Place, int]:
        """The offset behind the last record sent since `begin`, for each partition."""
        assert self._sender is not None, "begin first"
        return dict(self._sender.end_offsets)

    def begin(self, producer: tuple[int, int] | None = None) -> tuple[int, int]:
        """Become the writer of the transactional id; return producer id and epoch.

        What is still open under it is aborted.

        Args:
            producer: What an earlier `begin` returned, to go on only as that one. None goes on as
                the newest: whoever wrote under the id before is fenced.

        Raises:
            ProducerFencedError: Another one has begun since that earlier `begin`.
            KafkaError: The broker does not allow it.
            BrokerUnreachableError: No broker answers.
        """
        self._forget()
        while True:
            try:
                begun = self._begin(producer or (-1, -1))
                break
            except KafkaError as error:
                least = self._timeout_ms_least
                is_too_long = error.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
                if not is_too_long or least is None or least >= self._timeout_ms:
                    raise
                self._timeout_ms = max(least, self._timeout_ms // 2)
        self._writer = Writer(self._transactional_id, *begun)
        self._sender = BatchSender(self._cluster, self._writer)
        return begun

    def _begin(self, producer: tuple[int, int]) -> tuple[int, int]:
        producer_id, producer_epoch = producer
        request = messages.InitProducerIdRequest(
            self._transactional_id, self._timeout_ms, producer_id, producer_epoch
        )

        def ask(coordinator: Connection) -> tuple[int, int]:
            response = coordinator.call(request, version_max=_INIT_VERSION_MAX)
            _check(response.error_code, f"transactional id {self._transactional_id!r}")
            return response.producer_id, response.producer_epoch

        return self._ask(ask)

    def send(
        self, batches: Mapping[Place, Sequence[BytesLike]], *, soon: Collection[Place] = ()
    ) -> None:
        """Write batches, each of which is one whole record batch without a producer.

        They are copied before they are stamped with the producer, the sequence and the checksum.
        After an error the transaction can only be aborted.

        Args:
            batches: By partition, in order.
            soon: Partitions that will be written to later on. The coordinator is told of all at
                once, which saves asking it again.

        Raises:
            ProducerFencedError: Another one writes under the transactional id now.
            KafkaError: A batch was refused.
            BrokerUnreachableError: A leader does not answer.
        """
        assert self._sender is not None, "begin first"
        self._is_whole = False
        places = {place for place, given in batches.items() if given}
        self._add(places.union(soon) if places - self._added else set())
        try:
            self._sender.send(batches)
        except KafkaError as error:
            raise self._explained(error) from error
        self._is_whole = True

    def commit(self) -> dict[Place, int]:
        """Make all of it visible to readers of committed data.

        Returns:
            The offset behind the last record, for each partition that was written to.

        Raises:
            ProducerFencedError: Another one writes under the transactional id now.
            HeadwaterError: Not all was sent; or it is not known whether it was committed.
        """
        assert self._sender is not None, "begin first"
        if not self._is_whole:
            raise HeadwaterError("a part of the transaction was not sent", hint=_AGAIN)
        ends = self._sender.end_offsets
        if self._added:
            self._end(committed=True)
        self._forget()
        return ends

    def abort(self) -> None:
        """Give up what was sent since `begin`; harmless when nothing was, or somebody else did.

        Raises:
            HeadwaterError: The broker cannot be told; it gives up itself after the time-out.
        """
        if self._added:
            try:
                self._end(committed=False)
            except ProducerFencedError:
                pass  # whoever fenced us has aborted it
            except KafkaError as error:
                # It was not begun there: the request that adds the first partitions got lost.
                if error.code != ErrorCode.INVALID_TXN_STATE:
                    raise
        self._forget()

    def _add(self, places: set[Place]) -> None:
        """Tell the coordinator which partitions are about to be written to."""
        assert self._writer is not None
        new = places - self._added
        if not new:
            return
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(new):
            topics.setdefault(topic, []).append(partition)
        request = messages.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self._writer.producer_id,
            v3_and_below_producer_epoch=self._writer.producer_epoch,
            v3_and_below_topics=[
                messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(*each)
                for each in topics.items()
            ],
        )

        def ask(coordinator: Connection) -> None:
            response = coordinator.call(request, version_max=_ADD_VERSION_MAX)
            for topic in response.results_by_topic_v3_and_below:
                for each in topic.results_by_partition:
                    # Said of those that are in order beside one that is not.
                    if each.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                        where = f"{topic.name}-{each.partition_index}"
                        _check(each.partition_error_code, where)

        if not self._added:
            self._open_since_s = time.monotonic()
        # Before it is known: an abort has to reach also what was added by an answer that got lost.
        self._added |= new
        self._ask(ask)

    def _end(self, *, committed: bool) -> None:
        assert self._writer is not None
        request = messages.EndTxnRequest(
            self._transactional_id,
            self._writer.producer_id,
            self._writer.producer_epoch,
            committed=committed,
        )

        def ask(coordinator: Connection) -> None:
            response = coordinator.call(request, version_max=_END_VERSION_MAX)
            _check(response.error_code, f"transactional id {self._transactional_id!r}")

        self._ask(ask)

    def _ask(self, ask: Callable[[Connection], Result]) -> Result:
        """Ask the coordinator; each of our requests may be sent twice."""
        try:
            return self._cluster.ask_coordinator(
                self._transactional_id,
                ask,
                key_type=TRANSACTION,
                passes=is_retriable_or_broken,
                pause_s=_RETRY_PAUSE_S,
            )
        except KafkaError as error:
            raise self._explained(error) from error

    def _explained(self, error: KafkaError) -> KafkaError:
        """Return the error with its next step; a fenced writer has nothing left to end."""
        open_s = time.monotonic() - self._open_since_s
        if self._added and error.code in _GIVEN_UP and open_s * 1000 >= self._timeout_ms:
            self._forget()
            return TransactionTimedOutError(
                error.code,
                f"the transaction was open for {open_s:.0f} s, and the broker has given it up after"
                f" {self._timeout_ms / 1000:g} s",
                hint="write less at once, or raise transaction.timeout.ms, up to the broker's"
                " transaction.max.timeout.ms",
            )
        if error.code in _FENCED:
            self._forget()
            return ProducerFencedError(
                error.code,
                f"another producer has begun under the transactional id {self._transactional_id!r}",
                hint="let one of the two writers stop",
            )
        hint = error.hint or _HINTS.get(error.code, "")
        if not hint and error.code in RETRIABLE:
            hint = f"it did not pass within {self._cluster.timeout_s:g} s: see the broker's log"
        return KafkaError(error.code, error.message, hint=hint or _AGAIN)

    def _forget(self) -> None:
        self._writer = None
        self._sender = None
        self._added = set()
        self._is_whole = True


def _check(error_code: int, subject: str) -> None:
    if error_code:
        code = ErrorCode(error_code)
        raise KafkaError(code, f"{subject}: {code.name}")
