"""What a partition remembers of refused batches of producers that it does not know."""

import pytest

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.refused import PATIENCE_MS, PRODUCERS_MAX, RefusedBatches
from tests.log.test_producers import header


def passes(batches: RefusedBatches, sequence: int, *, producer: int = 7, epoch: int = 0) -> bool:
    try:
        batches.check(header(sequence, producer=producer, epoch=epoch), now_ms=0)
    except KafkaError as error:
        return error.code != ErrorCode.NOT_ENOUGH_REPLICAS
    return True


def test_the_first_refused_batch_counts_whichever_comes_again() -> None:
    batches = RefusedBatches()
    for sequence in (4, 2, 5, 2):
        batches.note(header(sequence), now_ms=0)
    assert [passes(batches, sequence) for sequence in (2, 3, 9)] == [True, False, False]
    assert passes(batches, 3, producer=8)

    batches.forget(7)
    assert passes(batches, 3)


def test_only_batches_of_the_newest_epoch_wait() -> None:
    batches = RefusedBatches()
    batches.note(header(0, epoch=1), now_ms=0)
    batches.note(header(3, epoch=2), now_ms=0)
    batches.note(header(0, epoch=1), now_ms=0)
    assert passes(batches, 1, epoch=1)
    assert not passes(batches, 4, epoch=2)
    assert passes(batches, 1, epoch=3)


def test_a_later_batch_does_not_keep_a_refused_one_in_mind() -> None:
    batches = RefusedBatches()
    batches.note(header(0), now_ms=0)
    batches.note(header(1), now_ms=PATIENCE_MS - 1)
    batches.check(header(1), now_ms=PATIENCE_MS)


def test_a_thousand_producers_are_remembered() -> None:
    batches = RefusedBatches()
    for producer in range(PRODUCERS_MAX + 1):
        batches.note(header(0, producer=producer), now_ms=0)
    assert passes(batches, 1, producer=0)
    with pytest.raises(KafkaError):
        batches.check(header(1, producer=1), now_ms=0)
