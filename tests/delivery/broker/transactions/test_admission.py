"""Which transactional batches are let in, and how a refusal is told to whom."""

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.configs import Change, Operation
from headwater.delivery.broker.transactions.admission import Understands, _refusal
from tests.delivery.broker.transactions.world import Producer, World

OK = ErrorCode.NONE
OLD, ABORTABLE, NEW = Understands


@pytest.mark.parametrize(
    "code, understands, told",
    [
        (ErrorCode.PRODUCER_FENCED, OLD, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.PRODUCER_FENCED, NEW, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, OLD, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, OLD, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ABORTABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, NEW, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NOT_COORDINATOR, NEW, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, OLD, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_what_a_client_is_told(code: ErrorCode, understands: Understands, told: ErrorCode) -> None:
    assert _refusal(code, understands).code is told


def test_an_older_client_asks_while_a_transaction_ends() -> None:
    world = World()
    me = world.init()
    world.transactions.enlist("x", *me, [("t0", 0), ("t1", 0)], lambda _: None, client_version=0)
    world.settle()
    world.begin_end(me, commit=False, version=4)

    assert world.send(me, version=9) == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2


def test_without_verification_older_clients_are_trusted() -> None:
    trusting = World({"transaction.partition.verification.enable": "false"})
    me = trusting.init()

    assert trusting.send(me, version=9) == [OK, OK]
    assert trusting.send(Producer(me.producer_id, 7)) == [ErrorCode.INVALID_PRODUCER_EPOCH] * 2


def test_verification_can_be_switched_off_on_a_running_broker() -> None:
    world = World()
    me = world.init()
    assert world.send(me, version=9) == [ErrorCode.INVALID_TXN_STATE] * 2

    off = Change("transaction.partition.verification.enable", Operation.SET, "false")
    world.broker.configs.alter_broker("1", [off], keep_others=True, validate_only=False)

    assert world.send(me, version=9) == [OK, OK]


def test_the_good_batches_of_a_request_are_appended() -> None:
    world = World()
    me = world.init()
    world.transactions.enlist("x", *me, [("t1", 0)], lambda _: None, client_version=0)

    assert world.send(me, version=9) == [ErrorCode.INVALID_TXN_STATE, OK]
    assert (world.log("t0").log_end_offset, world.log("t1").log_end_offset) == (0, 1)


def test_the_brokers_own_topics_become_part_of_nothing() -> None:
    world = World()
    me = world.init()

    assert world.send(me, "__transaction_state") == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert world.state() == "Empty"


def test_what_cannot_be_read_is_refused_with_its_own_reason() -> None:
    world = World()
    me = world.init()
    world.names = ["t0", "missing"]

    assert world.send(me) == [OK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
