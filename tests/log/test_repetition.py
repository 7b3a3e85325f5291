"""What a producer may send again after a restart is known again."""

import pytest

from headwater.base.errors import ErrorCode, KafkaError
from headwater.log import repetition
from headwater.log.appended import Appended
from headwater.log.partition import PartitionLog
from headwater.testing.memory_disk import MemoryDisk
from tests.log.helpers import append, commit, make_batch, open_log


def send(log: PartitionLog, sequence: int, *, producer_id: int = 7, epoch: int = 0) -> Appended:
    batch = make_batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return append(log, batch)


def restarted(count: int) -> PartitionLog:
    """Return a log with some batches of two producers, after a clean restart."""
    disk = MemoryDisk()
    log = open_log(disk)
    for sequence in range(count):
        send(log, sequence)
        send(log, sequence, producer_id=8)
    commit(log)
    log.close()
    return open_log(disk, recovery_point=2 * count, clean=True)


@pytest.mark.parametrize("count", [1, 3, 5, 20])
def test_the_last_five_batches_are_known_again_after_a_clean_restart(count: int) -> None:
    log = restarted(count)
    for sequence in range(max(0, count - 5), count):
        appended = send(log, sequence)
        assert appended.duplicate
        assert appended.base_offset == 2 * sequence
    assert not send(log, count).duplicate


def test_an_older_batch_is_refused_and_not_looked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = restarted(20)
    with pytest.raises(KafkaError) as caught:
        send(log, 14)
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    monkeypatch.setattr(repetition, "_tail", None)
    with pytest.raises(KafkaError):
        send(log, 14)
    assert send(log, 15).duplicate


def test_what_was_written_since_the_restart_counts_too() -> None:
    log = restarted(5)
    send(log, 5)
    send(log, 6)
    assert send(log, 2).base_offset == 4
    with pytest.raises(KafkaError):
        send(log, 1)
    assert send(log, 6).base_offset == 11


def test_a_log_too_long_to_look_through_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repetition, "LOOKED_THROUGH_BYTES", 1)
    log = restarted(20)
    with pytest.raises(KafkaError):
        send(log, 16)
    assert send(log, 19).duplicate
    assert not send(log, 20).duplicate


def test_a_new_epoch_has_no_old_batches() -> None:
    log = restarted(5)
    send(log, 0, epoch=1)
    with pytest.raises(KafkaError) as caught:
        send(log, 3)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
