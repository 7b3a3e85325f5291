"""InitProducerId: ids that are never given twice."""

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka.messages import InitProducerIdRequest
from tests.delivery.dialects.kafka.desk import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.mark.parametrize("version", range(6))
def test_every_call_gives_another_id_with_epoch_zero(desk: Desk, version: int) -> None:
    answers = [desk.ask(InitProducerIdRequest(None), version) for _ in range(3)]
    assert [(answer.error_code, answer.producer_epoch) for answer in answers] == [(0, 0)] * 3
    assert len({answer.producer_id for answer in answers}) == 3


def test_no_id_comes_back_after_a_crash(desk: Desk) -> None:
    before = [desk.ask(InitProducerIdRequest(None)).producer_id for _ in range(1_500)]
    desk.crash()
    after = [desk.ask(InitProducerIdRequest(None)).producer_id for _ in range(10)]
    assert len({*before, *after}) == 1_510


@pytest.mark.parametrize("version", range(3, 6))
def test_an_old_id_and_epoch_are_replaced_not_raised(desk: Desk, version: int) -> None:
    first = desk.ask(InitProducerIdRequest(None), version)
    for epoch in (0, 7, 32_767):
        request = InitProducerIdRequest(None, 0, first.producer_id, epoch)
        answer = desk.ask(request, version)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        assert answer.producer_id != first.producer_id


@pytest.mark.parametrize(
    "request_, error",
    [
        (InitProducerIdRequest(""), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(None, 0, 5, -1), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest(None, 0, -1, 5), ErrorCode.INVALID_REQUEST),
        (InitProducerIdRequest("payments", 0), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (InitProducerIdRequest("payments", 900_001), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_refusals(desk: Desk, request_: InitProducerIdRequest, error: ErrorCode) -> None:
    answer = desk.ask(request_)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (error, -1, -1)


def test_no_id_is_given_that_could_be_given_again(desk: Desk) -> None:
    desk.disk.fail_at(desk.disk.operations + 1, OSError(28, "No space left on device"))
    assert desk.ask(InitProducerIdRequest(None)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert desk.ask(InitProducerIdRequest(None)).error_code == ErrorCode.NONE
