"""Produce with a producer id, and InitProducerId, v0-5: what is new, repeated or out of order."""

import time
import uuid
from collections.abc import Callable
from functools import partial

import pytest

from headwater.base.errors import ErrorCode
from headwater.base.record.codecs import Codec
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import (
    Subject,
    Talk,
    Topic,
    batch_of,
    code,
    create_topic,
    list_offset,
    new_producer_id,
    produce,
    unique,
)

SEQUENCE_MAX = 2**31 - 1
APPENDED = ErrorCode.NONE
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH

Send = Callable[..., tuple[ErrorCode, int]]


def foreign_producer_id() -> int:
    """Make up an id that no broker has handed out."""
    return 10**12 + uuid.uuid4().int % 10**6


@pytest.fixture
def send(talk: Talk, topic: Topic) -> Send:
    """Send as one producer; gives the code and the offset."""
    return partial(_send, talk, topic, new_producer_id(talk))


def _send(
    talk: Talk,
    topic: Topic,
    producer_id: int,
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    version: int = 9,
    codec: Codec = Codec.NONE,
) -> tuple[ErrorCode, int]:
    batch = batch_of(
        *[b"v"] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        codec=codec,
    )
    answer = produce(talk, topic, batch, version=version)
    return code(answer), answer.base_offset


@pytest.mark.parametrize("version", [3, 7, 9, 13])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_repeated_batch_is_answered_with_its_first_offset(
    talk: Talk, topic: Topic, send: Send, version: int, codec: Codec
) -> None:
    send = partial(send, version=version, codec=codec)

    assert send(0, 2) == (APPENDED, 0)
    assert send(2, 3) == (APPENDED, 2)
    assert send(0, 2) == (APPENDED, 0)
    assert send(2, 3) == (APPENDED, 2)
    assert send(5) == (APPENDED, 5)
    assert list_offset(talk, topic.name, -1).offset == 6


def test_what_does_not_follow_is_out_of_order(send: Send) -> None:
    send(0, 2)
    send(2, 3)

    assert send(7) == (OUT_OF_ORDER, -1), "a gap"
    assert send(4) == (OUT_OF_ORDER, -1), "inside the last batch"
    assert send(2, 2) == (OUT_OF_ORDER, -1), "a repetition of another size"
    assert send(0) == (OUT_OF_ORDER, -1), "from the beginning"
    assert send(5) == (APPENDED, 5), "refusals leave no trace"


def test_five_batches_are_remembered(send: Send) -> None:
    for sequence in range(6):
        send(sequence)

    assert send(1) == (APPENDED, 1)
    assert send(5) == (APPENDED, 5)
    assert send(0) == (OUT_OF_ORDER, -1)


def test_a_new_epoch_begins_at_0_and_ends_the_old_one(send: Send) -> None:
    send(0)
    send(1)

    assert send(5, epoch=1) == (OUT_OF_ORDER, -1)
    assert send(0, epoch=1) == (APPENDED, 2)
    assert send(2, epoch=0) == (OLD_EPOCH, -1)
    assert send(1, epoch=0) == (OLD_EPOCH, -1), "also a repetition"
    assert send(1, epoch=-1) == (OLD_EPOCH, -1)
    assert send(1, epoch=1) == (APPENDED, 3)
    assert send(0, epoch=3) == (APPENDED, 4), "epochs may be skipped"
    assert send(0, epoch=3) == (APPENDED, 4)


def test_an_unknown_producer_may_begin_anywhere(talk: Talk, topic: Topic) -> None:
    send = partial(_send, talk, topic, foreign_producer_id(), epoch=4)

    assert send(9) == (APPENDED, 0)
    assert send(10) == (APPENDED, 1)
    assert send(12) == (OUT_OF_ORDER, -1)


def test_sequence_numbers_wrap(talk: Talk, topic: Topic) -> None:
    at_the_end = partial(_send, talk, topic, foreign_producer_id())
    across = partial(_send, talk, topic, foreign_producer_id())

    assert at_the_end(SEQUENCE_MAX - 1, 2) == (APPENDED, 0)
    assert at_the_end(0) == (APPENDED, 2)
    assert across(SEQUENCE_MAX - 1, 4) == (APPENDED, 3)
    assert across(2) == (APPENDED, 7)
    assert across(SEQUENCE_MAX - 1, 4) == (APPENDED, 3)


def test_partitions_know_nothing_of_each_other(talk: Talk) -> None:
    topic = create_topic(talk, partitions=2)
    producer_id = new_producer_id(talk)

    def send(partition: int, sequence: int, epoch: int) -> ErrorCode:
        batch = batch_of(
            b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        return code(produce(talk, topic, batch, partition=partition))

    assert send(0, 0, 1) is APPENDED
    assert send(1, 0, 0) is APPENDED
    assert send(0, 1, 0) is OLD_EPOCH
    assert send(1, 1, 0) is APPENDED


def test_a_batch_that_is_too_large_takes_no_number(talk: Talk, topic: Topic) -> None:
    producer_id = new_producer_id(talk)
    large = batch_of(b"x" * 1_100_000, producer_id=producer_id, producer_epoch=0, base_sequence=0)

    assert code(produce(talk, topic, large)) is ErrorCode.MESSAGE_TOO_LARGE
    assert _send(talk, topic, producer_id, 0) == (APPENDED, 0)


def test_the_time_of_a_repeated_batch(broker: Subject, talk: Talk, topic: Topic) -> None:
    batch = batch_of(
        b"a", producer_id=new_producer_id(talk), producer_epoch=0, base_sequence=0, timestamp=5_000
    )

    first, second = produce(talk, topic, batch), produce(talk, topic, batch)

    assert first.log_append_time_ms == -1
    told = broker.expected("produce the append time of a repeated batch")
    assert second.log_append_time_ms == (5_000 if told else -1)


def test_the_append_time_of_a_repeated_batch(talk: Talk) -> None:
    topic = create_topic(talk, configs={"message.timestamp.type": "LogAppendTime"})
    batch = batch_of(b"a", producer_id=new_producer_id(talk), producer_epoch=0, base_sequence=0)

    first, second = produce(talk, topic, batch), produce(talk, topic, batch)

    assert first.log_append_time_ms == second.log_append_time_ms > 0


# InitProducerId


@pytest.mark.parametrize("version", range(6))
def test_every_call_gives_a_new_id(talk: Talk, version: int) -> None:
    new_producer_id(talk)
    request = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)

    first, second = talk.ask(request, version), talk.ask(request, version)

    assert 0 <= first.producer_id < second.producer_id
    assert (first.producer_epoch, second.producer_epoch) == (0, 0)
    assert (code(first), first.throttle_time_ms) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize("timeout_ms", [-5, 0, 10**9])
def test_the_time_out_matters_to_transactions_only(talk: Talk, timeout_ms: int) -> None:
    new_producer_id(talk)
    request = messages.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=timeout_ms
    )

    assert code(talk.ask(request, 4)) is ErrorCode.NONE


@pytest.mark.parametrize("version", [3, 5])
def test_an_id_and_an_epoch_that_the_producer_has(talk: Talk, version: int) -> None:
    mine = new_producer_id(talk)

    def ask(producer_id: int, epoch: int) -> tuple[ErrorCode, int, int]:
        request = messages.InitProducerIdRequest(None, 60_000, producer_id, epoch)
        answer = talk.ask(request, version)
        return code(answer), answer.producer_id, answer.producer_epoch

    error, given, epoch = ask(mine, 5)
    assert (error, epoch) == (ErrorCode.NONE, 0)
    assert given > mine
    assert ask(mine, -1) == (ErrorCode.INVALID_REQUEST, -1, -1)
    assert ask(-1, 5) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("version", [0, 5])
def test_a_transactional_id(talk: Talk, version: int) -> None:
    name = unique("transaction")

    def find() -> ErrorCode:
        return code(talk.ask(messages.FindCoordinatorRequest(key=name, key_type=1), 1))

    def init() -> ErrorCode:
        return code(talk.ask(messages.InitProducerIdRequest(name, 60_000), version))

    # Apache Kafka first creates the topic of its transactions.
    wait_while(find, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    wait_while(init, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert (find(), init()) == (ErrorCode.NONE, ErrorCode.NONE)


def wait_while(ask: Callable[[], ErrorCode], *not_yet: ErrorCode) -> None:
    end_s = time.monotonic() + 30
    while (answered := ask()) in not_yet:
        assert time.monotonic() < end_s, answered


@pytest.mark.parametrize("version", [0, 2, 5])
def test_an_empty_transactional_id(talk: Talk, version: int) -> None:
    answer = talk.ask(messages.InitProducerIdRequest("", 60_000), version)

    assert code(answer) is ErrorCode.INVALID_REQUEST
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
