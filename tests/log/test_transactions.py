"""Transactions in a partition: what is stable, what is aborted, and who may end them."""

import pytest

from headwater.base.errors import ErrorCode, KafkaError, StorageError
from headwater.base.record.batch import scan
from headwater.base.record.control import EndTransactionMarker, read_end_transaction
from headwater.base.record.records import iterate
from headwater.base.settings import TopicConfig
from headwater.log.appended import Appended
from headwater.log.partition import PartitionLog
from headwater.log.reading import OpenTransaction
from headwater.log.txn_index import AbortedTransaction
from headwater.testing.manual_clock import ManualClock
from headwater.testing.memory_disk import MemoryDisk
from tests.log.helpers import (
    NOW_MS,
    SMALL,
    append,
    append_value,
    base_offsets,
    commit,
    make_batch,
    open_log,
)

PAGE_CACHE = TopicConfig(flush_messages=2)


def send(
    log: PartitionLog,
    producer_id: int,
    sequence: int,
    *,
    epoch: int = 0,
    count: int = 1,
    is_transactional: bool = True,
) -> Appended:
    batch = make_batch(
        [b"v"] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return append(log, batch)


def end(
    log: PartitionLog, producer_id: int, *, committed: bool, epoch: int = 0, version: int = 0
) -> Appended:
    return log.append_marker(
        producer_id,
        epoch,
        committed=committed,
        coordinator_epoch=0,
        transaction_version=version,
    )


def restarted(log: PartitionLog, disk: MemoryDisk, *, clean: bool) -> PartitionLog:
    """Return the log as the next process finds it."""
    commit(log)
    if clean:
        log.close()
        return open_log(disk, recovery_point=log.log_end_offset, clean=True)
    return open_log(disk.after_power_cut(0, keep="nothing"), recovery_point=log.checkpoint())


def test_without_transactions_all_that_is_durable_is_stable() -> None:
    log = open_log(MemoryDisk())
    append_value(log, b"v")
    assert log.last_stable_offset == log.high_watermark == 0
    commit(log)
    assert log.last_stable_offset == log.high_watermark == 1
    assert log.open_transactions() == []
    assert log.aborted_transactions(0, 1) == []


def test_an_open_transaction_holds_the_last_stable_offset() -> None:
    log = open_log(MemoryDisk())
    append_value(log, b"v")
    send(log, 7, 0, count=3)
    append_value(log, b"v")
    commit(log)
    assert (log.last_stable_offset, log.high_watermark) == (1, 5)

    end(log, 7, committed=True)
    # Readers may see the marker only when it is durable, and what it decides no sooner.
    assert log.last_stable_offset == 1
    commit(log)
    assert log.last_stable_offset == log.high_watermark == 6
    assert log.aborted_transactions(0, 6) == []


def test_the_oldest_of_several_transactions_counts() -> None:
    log = open_log(MemoryDisk(), config=PAGE_CACHE)
    send(log, 1, 0)
    send(log, 2, 0)
    send(log, 1, 1)
    assert log.last_stable_offset == 0
    end(log, 1, committed=False)
    assert log.last_stable_offset == 1
    send(log, 1, 2)
    end(log, 2, committed=True)
    assert log.last_stable_offset == 4
    end(log, 1, committed=False)
    assert log.last_stable_offset == log.log_end_offset == 7


def test_a_marker_behind_the_high_watermark_leaves_its_transaction_unstable() -> None:
    log = open_log(MemoryDisk())
    send(log, 1, 0)
    commit(log)
    items = log.begin_commit()
    end(log, 1, committed=False)
    for item in items:
        item.sync()
    log.end_commit()
    assert log.last_stable_offset == 0
    commit(log)
    assert log.last_stable_offset == 2


def test_the_last_stable_offset_is_never_below_the_log_start() -> None:
    log = open_log(MemoryDisk(), config=PAGE_CACHE)
    send(log, 1, 0)
    for _ in range(5):
        append_value(log, b"v")
    log.trim(4)
    assert log.last_stable_offset == log.log_start_offset == 4


@pytest.mark.parametrize("clean", [True, False])
def test_open_transactions_survive_a_restart(clean: bool) -> None:
    disk = MemoryDisk()
    log = open_log(disk, clock=ManualClock(NOW_MS + 5))
    append_value(log, b"v")
    send(log, 7, 0, epoch=3)
    send(log, 8, 0, epoch=1, count=2)
    send(log, 7, 1, epoch=3)
    commit(log)
    assert log.open_transactions() == [
        OpenTransaction(7, 3, 1, NOW_MS + 5),
        OpenTransaction(8, 1, 2, NOW_MS + 5),
    ]

    log = restarted(log, disk, clean=clean)
    assert log.open_transactions() == [
        OpenTransaction(7, 3, 1, NOW_MS),
        OpenTransaction(8, 1, 2, NOW_MS),
    ]
    assert (log.last_stable_offset, log.high_watermark) == (1, 5)
    end(log, 7, committed=False, epoch=3)
    commit(log)
    assert log.last_stable_offset == 2
    assert log.aborted_transactions(0, 6) == [AbortedTransaction(7, 1)]


def test_the_marker_is_kafka_s() -> None:
    log = open_log(MemoryDisk(), config=PAGE_CACHE, leader_epoch=4)
    send(log, 7, 0, epoch=3)
    appended = log.append_marker(7, 3, committed=False, coordinator_epoch=9)
    assert appended == Appended(1, 1, -1, 0, duplicate=False)
    extent = log.read(1, 1000, upto_offset=2, at_least_one=True)
    assert extent is not None
    batch = extent.read()
    [(_, header)] = scan(batch)
    assert (header.attributes, header.base_sequence, header.leader_epoch) == (0x30, -1, 4)
    assert (header.producer_id, header.producer_epoch, header.max_timestamp) == (7, 3, NOW_MS)
    [record] = iterate(batch)
    marker = EndTransactionMarker(is_commit=False, coordinator_epoch=9)
    assert read_end_transaction(record) == marker


def test_a_marker_gets_the_log_s_own_time_where_the_topic_asks_for_it() -> None:
    config = TopicConfig(flush_messages=2, message_timestamp_type="LogAppendTime")
    log = open_log(MemoryDisk(), config=config)
    send(log, 7, 0)
    assert end(log, 7, committed=True).log_append_time_ms == NOW_MS


def code_of_marker(
    log: PartitionLog, epoch: int, *, coordinator_epoch: int = 5, version: int = 0
) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        log.append_marker(
            7,
            epoch,
            committed=True,
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
        )
    return caught.value.code


def test_an_older_epoch_or_coordinator_ends_nothing() -> None:
    log = open_log(MemoryDisk(), config=PAGE_CACHE)
    log.append_marker(7, 4, committed=True, coordinator_epoch=5)
    send(log, 7, 0, epoch=4)
    assert code_of_marker(log, 3) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert code_of_marker(log, 4, coordinator_epoch=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert (log.log_end_offset, log.last_stable_offset) == (2, 1)
    log.append_marker(7, 5, committed=True, coordinator_epoch=5)
    assert log.last_stable_offset == 3


def test_in_version_2_the_epoch_of_a_marker_was_raised() -> None:
    log = open_log(MemoryDisk(), config=PAGE_CACHE)
    send(log, 7, 0, epoch=4)
    assert code_of_marker(log, 4, version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    end(log, 7, committed=True, epoch=5, version=2)
    # Written again, because its writer does not know that it is there.
    end(log, 7, committed=True, epoch=5, version=2)
    send(log, 7, 0, epoch=5)
    assert code_of_marker(log, 5, version=2) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_last_epoch_of_all_may_end_its_own_transaction() -> None:
    log = open_log(MemoryDisk(), config=PAGE_CACHE)
    send(log, 7, 0, epoch=2**15 - 1)
    end(log, 7, committed=False, epoch=2**15 - 1, version=2)
    assert log.last_stable_offset == 2


def test_after_a_marker_of_the_same_epoch_sequence_numbers_go_on() -> None:
    log = open_log(MemoryDisk(), config=PAGE_CACHE)
    send(log, 7, 0)
    end(log, 7, committed=True)
    with pytest.raises(KafkaError):
        send(log, 7, 2)
    assert send(log, 7, 1).base_offset == 2


def test_a_batch_of_an_ended_transaction_is_not_repeated() -> None:
    log = open_log(MemoryDisk(), config=PAGE_CACHE)
    send(log, 7, 0)
    end(log, 7, committed=False)
    with pytest.raises(KafkaError) as refused:
        send(log, 7, 0)
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.open_transactions() == []
    send(log, 7, 1)
    assert send(log, 7, 1).duplicate
    with pytest.raises(KafkaError) as refused:
        send(log, 7, 0)
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_after_a_marker_of_a_raised_epoch_they_begin_anew() -> None:
    log = open_log(MemoryDisk(), config=PAGE_CACHE)
    send(log, 7, 0)
    end(log, 7, committed=True, epoch=1, version=2)
    for sequence, epoch, code in (
        (1, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ):
        with pytest.raises(KafkaError) as caught:
            send(log, 7, sequence, epoch=epoch)
        assert caught.value.code == code
    assert send(log, 7, 0, epoch=1).base_offset == 2
    assert log.last_stable_offset == 2


def test_a_batch_outside_the_open_transaction_is_refused() -> None:
    log = open_log(MemoryDisk(), config=PAGE_CACHE)
    send(log, 7, 0)
    with pytest.raises(KafkaError) as caught:
        send(log, 7, 1, is_transactional=False)
    assert caught.value.code == ErrorCode.INVALID_TXN_STATE
    end(log, 7, committed=True)
    assert send(log, 7, 1, is_transactional=False).base_offset == 2
    assert log.last_stable_offset == 3


def test_a_broker_s_own_batches_open_a_transaction_without_sequence_numbers() -> None:
    log = open_log(MemoryDisk(), config=PAGE_CACHE)
    for _ in range(2):
        assert not send(log, 7, -1, epoch=2).duplicate
    assert log.last_stable_offset == 0
    with pytest.raises(KafkaError) as caught:
        send(log, 7, -1, epoch=1)
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    end(log, 7, committed=False, epoch=2)
    assert log.aborted_transactions(0, 3) == [AbortedTransaction(7, 0)]


def test_a_transactional_batch_of_nobody_is_refused() -> None:
    log = open_log(MemoryDisk(), config=PAGE_CACHE)
    with pytest.raises(KafkaError) as caught:
        append(log, make_batch(is_transactional=True))
    assert caught.value.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert (log.log_end_offset, log.last_stable_offset) == (0, 0)


def test_a_marker_without_a_transaction_is_no_aborted_one() -> None:
    log = open_log(MemoryDisk(), config=PAGE_CACHE)
    end(log, 7, committed=False, epoch=2)
    assert log.last_stable_offset == log.log_end_offset == 1
    assert log.aborted_transactions(0, 1) == []
    producer = log.producers.get(7)
    assert producer is not None
    assert (producer.epoch, producer.coordinator_epoch, producer.last_sequence) == (2, 0, -1)


def test_a_transaction_aborted_in_a_later_segment_is_found_from_its_records() -> None:
    log = open_log(MemoryDisk())
    send(log, 7, 0)
    while len(base_offsets(log)) < 4:
        append_value(log, b"v" * 50)
    marker = end(log, 7, committed=False)
    commit(log)
    assert base_offsets(log)[3] <= marker.base_offset
    assert log.aborted_transactions(0, 1) == [AbortedTransaction(7, 0)]
    assert log.aborted_transactions(marker.base_offset, marker.base_offset + 1) == [
        AbortedTransaction(7, 0)
    ]
    assert log.aborted_transactions(marker.base_offset + 1, marker.base_offset + 9) == []


def test_a_full_disk_leaves_the_transaction_open() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    send(log, 7, 0)
    commit(log)
    disk.capacity_bytes = disk.used_bytes() + 10
    with pytest.raises(StorageError):
        end(log, 7, committed=False)
    assert [found.producer_id for found in log.open_transactions()] == [7]
    disk.capacity_bytes = None
    end(log, 7, committed=False)
    commit(log)
    assert (log.open_transactions(), log.last_stable_offset) == ([], 2)


def test_a_producer_with_an_open_transaction_is_never_forgotten() -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(MemoryDisk(), config=SMALL, clock=clock)
    send(log, 7, 0)
    send(log, 8, 0, is_transactional=False)
    commit(log)
    log.remove_expired(NOW_MS + 2 * log.producer_id_expiration_ms)
    assert log.producers.get(8) is None
    end(log, 7, committed=True)
    commit(log)
    log.remove_expired(NOW_MS + 2 * log.producer_id_expiration_ms)
    assert log.producers.get(7) is None
