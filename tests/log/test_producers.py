"""Idempotent producers: every rule of Kafka's, and the snapshot's bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.record.batch import BatchHeader
from headwater.base.record.control import EndTransactionMarker
from headwater.log.producers import ProducerState

SEQUENCE_MAX = 2**31 - 1
DAY_MS = 86_400_000


def header(sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        batch_length=100,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=count - 1,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


def state_after(*batches: BatchHeader) -> ProducerState:
    state = ProducerState()
    offset = 100
    for batch in batches:
        assert state.check(batch) is None
        state.add(batch, offset, timestamp=1000)
        offset += batch.record_count
    return state


def code_of(state: ProducerState, batch: BatchHeader) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        state.check(batch)
    return caught.value.code


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerState().check(header(17)) is None


def test_an_epoch_that_nobody_can_have_is_refused() -> None:
    assert ProducerState().check(header(0, epoch=-1)) is None
    assert code_of(ProducerState(), header(0, epoch=-2)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_next_batch_follows_the_last() -> None:
    state = state_after(header(0, 3), header(3, 2))

    assert state.check(header(5)) is None
    assert code_of(state, header(6)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_each_of_the_last_five_batches_is_known_again() -> None:
    state = state_after(*(header(2 * n, 2) for n in range(7)))

    for n in range(2, 7):
        repeated = state.check(header(2 * n, 2))
        assert repeated is not None
        assert (repeated.base_offset, repeated.last_offset) == (100 + 2 * n, 101 + 2 * n)
    assert code_of(state, header(2, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_only_overlaps_is_no_repetition() -> None:
    state = state_after(header(0, 4))

    assert code_of(state, header(0, 3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(state, header(2, 4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced() -> None:
    state = state_after(header(0, epoch=3))

    assert code_of(state, header(0, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of(state, header(1, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_epoch_begins_at_zero() -> None:
    state = state_after(header(0, 4, epoch=3))

    assert code_of(state, header(4, epoch=4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    state.add(header(0, epoch=4), 200, 1000)
    assert state.check(header(1, epoch=4)) is None
    assert code_of(state, header(0, 4, epoch=3)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequence_numbers_wrap_around() -> None:
    state = state_after(header(SEQUENCE_MAX - 1, 2))
    assert state.check(header(0)) is None
    assert state.check(header(SEQUENCE_MAX - 1, 2)) is not None

    state = state_after(header(SEQUENCE_MAX, 3))
    producer = state.get(7)
    assert producer is not None
    assert producer.last_sequence == 1
    assert state.check(header(2)) is None
    assert state.check(header(SEQUENCE_MAX, 3)) is not None


def test_producers_do_not_know_each_other() -> None:
    state = state_after(header(0, producer=1), header(5, producer=2))

    assert state.check(header(1, producer=1)) is None
    assert state.check(header(6, producer=2)) is None
    assert len(state) == 2


def test_a_silent_producer_is_forgotten_unless_its_transaction_is_open() -> None:
    state = state_after(header(0, producer=1), header(0, producer=2))
    open_transaction = state.get(2)
    assert open_transaction is not None
    open_transaction.txn_first_offset = 101

    state.expire(1000 + DAY_MS - 1, DAY_MS)
    assert len(state) == 2
    state.expire(1000 + DAY_MS, DAY_MS)
    assert state.get(1) is None
    assert state.get(2) is open_transaction


def test_a_marker_carries_the_epoch_but_no_sequence() -> None:
    state = state_after(header(0, 3))
    marker = header(-1, epoch=1)._replace(attributes=0b11_0000, max_timestamp=2000)
    state.replay(marker, EndTransactionMarker(is_commit=True, coordinator_epoch=4))

    producer = state.get(7)
    assert producer is not None
    assert (producer.epoch, producer.timestamp, producer.last_sequence) == (1, 2000, -1)
    assert state.check(header(0, epoch=1)) is None
    assert code_of(state, header(3, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.coordinator_epoch == 4


def test_a_control_batch_that_ends_nothing_changes_nothing() -> None:
    state = state_after(header(0, 3))
    before = state.encode()
    state.replay(header(-1, epoch=1)._replace(attributes=0b11_0000, max_timestamp=2000), None)

    assert state.encode() == before


def test_a_broker_s_own_batches_have_no_sequence_numbers() -> None:
    state = state_after(header(-1, 2, epoch=3), header(-1, 1, epoch=3))

    assert state.check(header(-1, epoch=4)) is None
    assert code_of(state, header(-1, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    decoded = ProducerState.decode(state.encode())
    assert decoded is not None
    assert decoded.encode() == state.encode()
    producer = decoded.get(7)
    assert producer is not None
    assert producer.batches[-1].base_sequence == producer.last_sequence == -1


batches = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 9), st.integers(0, 2**40)), max_size=30
)


@given(batches)
def test_a_snapshot_brings_back_the_last_batch_of_each(
    history: list[tuple[int, int, int]],
) -> None:
    state = ProducerState()
    sequences: dict[int, int] = {}
    for offset, (producer, count, timestamp) in enumerate(history):
        sequence = sequences.get(producer, SEQUENCE_MAX - 5)
        state.add(header(sequence, count, producer=producer), 10 * offset, timestamp)
        sequences[producer] = (sequence + count) & SEQUENCE_MAX
    content = state.encode()
    read = ProducerState.decode(content)

    assert read is not None
    assert read.encode() == content
    assert len(read) == len(sequences)
    for producer, sequence in sequences.items():
        before, after = state.get(producer), read.get(producer)
        assert before is not None
        assert after is not None
        assert after.batches == before.batches[-1:]
        assert (after.epoch, after.timestamp) == (before.epoch, before.timestamp)
        assert read.check(header(sequence, producer=producer)) is None


@given(st.data())
def test_a_damaged_snapshot_is_not_believed(data: st.DataObject) -> None:
    content = bytearray(state_after(header(0, 3), header(0, producer=9)).encode())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))

    assert ProducerState.decode(bytes(content)) is None
    assert ProducerState.decode(bytes(content[:at])) is None
    assert ProducerState.decode(bytes(len(content))) is None
