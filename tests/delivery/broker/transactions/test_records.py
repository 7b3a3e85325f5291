"""Transactional ids as records, there and back; Kafka's own tool judges the bytes elsewhere."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import ErrorCode, MalformedMessageError
from headwater.delivery.broker.formats.envelope import encode_value
from headwater.delivery.broker.formats.records import TransactionLogValue
from headwater.delivery.broker.transactions.records import (
    decode_transaction,
    transaction_entry,
    transaction_tombstone,
)
from headwater.delivery.broker.transactions.states import TransactionState
from headwater.delivery.broker.transactions.transaction import Transaction
from tests.delivery.broker.transactions.world import World

_IDS = st.integers(-1, 2**63 - 1)
_TIMES = st.integers(-1, 2**62)
_PARTITIONS = st.frozensets(st.tuples(st.text(max_size=3), st.integers(0, 2**31 - 1)), max_size=5)
_TRANSACTIONS = st.builds(
    Transaction,
    transactional_id=st.text(max_size=20),
    producer_id=_IDS,
    producer_epoch=st.integers(0, 2**15 - 1),
    timeout_ms=st.integers(0, 2**31 - 1),
    updated_ms=_TIMES,
    state=st.sampled_from(TransactionState),
    partitions=_PARTITIONS,
    started_ms=_TIMES,
    previous_producer_id=_IDS,
    next_producer_id=_IDS,
    last_producer_epoch=st.just(-1),
    client_version=st.integers(0, 2),
)


@given(_TRANSACTIONS, st.integers(0, 2))
def test_there_and_back(transaction: Transaction, server_version: int) -> None:
    if transaction.state is TransactionState.EMPTY:
        transaction = replace(transaction, partitions=frozenset())

    entry = transaction_entry(transaction, server_version=server_version)

    assert entry.value is not None
    if server_version == 0:
        transaction = replace(
            transaction, previous_producer_id=-1, next_producer_id=-1, client_version=0
        )
    if transaction.state is TransactionState.PREPARE_EPOCH_FENCE:
        transaction = replace(transaction, state=TransactionState.ONGOING)
    assert decode_transaction(entry.key, entry.value) == transaction
    assert transaction_tombstone(transaction.transactional_id) == (entry.key, None)


def test_what_cannot_be_read() -> None:
    key = transaction_tombstone("x").key
    strange = encode_value(TransactionLogValue(transaction_status=9), 1)

    with pytest.raises(MalformedMessageError, match="state 9"):
        decode_transaction(key, strange)
    with pytest.raises(MalformedMessageError):
        decode_transaction(key, b"\0\1")
    assert decode_transaction(b"\0\7", strange) is None, "another kind of key"


def test_a_producer_that_another_broker_was_fencing(world: World) -> None:
    """Its transaction is open, and the next producer of the id aborts it."""
    me = world.init()
    world.send(me)
    current = world.transactions.get("x")
    assert current is not None
    fencing = replace(
        current,
        state=TransactionState.PREPARE_EPOCH_FENCE,
        producer_epoch=current.producer_epoch + 1,
    )
    world.transactions._log.append("x", [transaction_entry(fencing, server_version=2)])
    world.settle()
    world.crash()

    assert world.state() == "Ongoing"
    assert world.end(me, commit=True)[0] is ErrorCode.PRODUCER_FENCED
    new = world.init()
    assert new.producer_epoch > fencing.producer_epoch
    assert (world.committed("t0"), world.open_in("t0")) == ([], 0)


@pytest.fixture
def world() -> World:
    return World()


def test_a_record_that_cannot_be_read_stops_no_start(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.init("good")
    world.transactions._log.append("bad", [transaction_tombstone("bad")._replace(value=b"\0\1")])
    world.settle()
    world.crash()

    assert (world.state("good"), world.state("bad")) == ("Empty", "")
    assert "a record of __transaction_state was skipped" in caplog.text
