"""A transactional producer that does only what it is told, for any broker.

This file alone decides how its requests look and which answers mean "ask again". It judges nothing.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from headwater.base.errors import ErrorCode
from headwater.base.record.batch import BatchHeader, scan
from headwater.base.record.control import read_end_transaction
from headwater.base.record.records import Record, iterate
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import (
    Talk,
    Topic,
    batch_of,
    code,
    fetch,
    list_offset,
    produce_request,
    unique,
)

OK = ErrorCode.NONE

_WITHIN_S = 30.0
# What Apache Kafka answers while something else is on its way; we wait instead of the client.
_NOT_YET = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}


ResultT = TypeVar("ResultT")


class Producer(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


def until_settled(ask: Callable[[], tuple[ErrorCode, ResultT]]) -> tuple[ErrorCode, ResultT]:
    """Ask until the broker is ready to say something."""
    end_s = time.monotonic() + _WITHIN_S
    while True:
        answer = ask()
        if answer[0] not in _NOT_YET:
            return answer
        assert time.monotonic() < end_s, answer
        time.sleep(0.002)


class Client:
    """A transactional producer that does only what it is told."""

    def __init__(self, talk: Talk, transactional_id: str | None = None) -> None:
        self.talk = talk
        self.transactional_id = unique("txn") if transactional_id is None else transactional_id
        self.me = Producer(-1, -1)

    def find(self) -> ErrorCode:
        request = messages.FindCoordinatorRequest(
            key_type=1, coordinator_keys=[self.transactional_id]
        )
        error, _ = until_settled(lambda: (code(self.talk.ask(request, 4).coordinators[0]), None))
        return error

    def init(
        self, *, version: int = 5, timeout_ms: int = 60_000, expected: Producer | None = None
    ) -> tuple[ErrorCode, Producer]:
        """Ask for a producer id and epoch, and keep them."""
        request = messages.InitProducerIdRequest(self.transactional_id, timeout_ms)
        if expected is not None:
            request.producer_id, request.producer_epoch = expected

        def ask() -> tuple[ErrorCode, Producer]:
            answer = self.talk.ask(request, version)
            return code(answer), Producer(answer.producer_id, answer.producer_epoch)

        error, given = until_settled(ask)
        if error is OK:
            self.me = given
        return error, given

    def add(
        self, topic: Topic, partition: int = 0, *, me: Producer | None = None, version: int = 3
    ) -> ErrorCode:
        return self.add_all({(topic.name, partition)}, me=me, version=version)[
            topic.name, partition
        ]

    def add_all(
        self, keys: set[tuple[str, int]], *, me: Producer | None = None, version: int = 3
    ) -> dict[tuple[str, int], ErrorCode]:
        me = me or self.me
        request = messages.AddPartitionsToTxnRequest()
        request.v3_and_below_transactional_id = self.transactional_id
        request.v3_and_below_producer_id, request.v3_and_below_producer_epoch = me
        names = sorted({name for name, _ in keys})
        request.v3_and_below_topics = [
            messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
                name, sorted(index for each, index in keys if each == name)
            )
            for name in names
        ]

        def ask() -> tuple[ErrorCode, dict[tuple[str, int], ErrorCode]]:
            answer = self.talk.ask(request, version)
            errors = {
                (topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
                for topic in answer.results_by_topic_v3_and_below
                for partition in topic.results_by_partition
            }
            return next(iter(errors.values())), errors

        return until_settled(ask)[1]

    def send(
        self,
        topic: Topic,
        *values: bytes,
        sequence: int = 0,
        me: Producer | None = None,
        version: int = 12,
        partition: int = 0,
        transactional: bool = True,
    ) -> tuple[ErrorCode, int]:
        """Write a batch; gives the code and the offset."""
        me = me or self.me
        batch = batch_of(
            *values,
            producer_id=me.producer_id,
            producer_epoch=me.epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        request = produce_request(topic, {partition: batch})
        request.transactional_id = self.transactional_id

        def ask() -> tuple[ErrorCode, int]:
            (answer,) = self.talk.ask(request, version).responses
            (answered,) = answer.partition_responses
            return code(answered), answered.base_offset

        return until_settled(ask)

    def end(
        self, *, commit: bool, version: int = 5, me: Producer | None = None
    ) -> tuple[ErrorCode, Producer]:
        me = me or self.me
        request = messages.EndTxnRequest(self.transactional_id, *me, commit)

        def ask() -> tuple[ErrorCode, Producer]:
            answer = self.talk.ask(request, version)
            return code(answer), Producer(answer.producer_id, answer.producer_epoch)

        error, given = until_settled(ask)
        if error is OK and version >= 5:
            self.me = given
        return error, given

    def describe(self) -> Any:  # noqa: ANN401 - the message
        request = messages.DescribeTransactionsRequest([self.transactional_id])
        (state,) = self.talk.ask(request, 0).transaction_states
        return state

    def wait_for(self, *labels: str) -> None:
        """Wait until the id is in one of these states."""
        end_s = time.monotonic() + _WITHIN_S
        while self.describe().transaction_state not in labels:
            assert time.monotonic() < end_s, self.describe()
            time.sleep(0.002)


def committed(talk: Talk, topic: Topic, partition: int = 0) -> list[bytes]:
    """Read what a reader of committed data gets of all that is stable by now."""
    stable = list_offset(talk, topic.name, -1, partition=partition, isolation_level=1).offset
    answer = fetch(talk, topic, 0, partition=partition, isolation_level=1)
    assert answer.last_stable_offset == stable
    assert answer.aborted_transactions is not None
    aborted = sorted(answer.aborted_transactions, key=lambda each: each.first_offset, reverse=True)
    skipped: set[int] = set()
    values: list[bytes] = []
    for header, records in batches_of(answer.records):
        while aborted and aborted[-1].first_offset <= header.base_offset:
            skipped.add(aborted.pop().producer_id)
        if header.is_control:
            skipped.discard(header.producer_id)
        elif header.producer_id not in skipped:
            values.extend(record.value or b"" for record in records)
    return values


def batches_of(data: Any) -> list[tuple[BatchHeader, list[Record]]]:  # noqa: ANN401 - the wire's
    """Return the batches in fetched bytes, each with its records."""
    data = bytes(data)
    return [(header, list(iterate(data, position))) for position, header in scan(data)]


def markers_of(talk: Talk, topic: Topic) -> list[tuple[int, int, bool]]:
    """Return offset, epoch and outcome of every marker in a topic's first partition."""
    found = []
    for header, records in batches_of(fetch(talk, topic, 0).records):
        if header.is_control:
            marker = read_end_transaction(records[0])
            assert marker is not None
            found.append((header.base_offset, header.producer_epoch, marker.is_commit))
    return found
