"""Which record of a key counts when a state topic is read from the first to the last."""

import pytest

from headwater.base.errors import CorruptRecordError
from headwater.base.record.batch import parse_header
from headwater.base.record.control import EndTransactionMarker, build_end_transaction
from headwater.base.record.records import Record, build_batch, iterate
from headwater.delivery.broker.state_replay import StateReplay, Stored

KEY, OTHER = b"key", b"other"


class Log:
    """One partition, read as it is written."""

    def __init__(self) -> None:
        self.replay = StateReplay(0)
        self.end_offset = 0

    def write(self, value: bytes | None, *, producer: int = -1, key: bytes | None = KEY) -> None:
        batch = build_batch(
            [Record(0, 0, key, value)],
            base_offset=self.end_offset,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            is_transactional=producer >= 0,
        )
        self._read(batch)

    def end(self, producer: int, *, committed: bool) -> None:
        marker = EndTransactionMarker(committed, 0)
        self._read(
            build_end_transaction(
                marker,
                timestamp=0,
                producer_id=producer,
                producer_epoch=0,
                base_offset=self.end_offset,
            )
        )

    def _read(self, batch: bytearray) -> None:
        self.replay.batch(parse_header(batch), iterate(batch))
        self.end_offset += 1

    def values(self) -> dict[bytes, bytes]:
        self.replay.end()
        return {key: stored.value for key, stored in self.replay.newest.items()}

    def pending(self) -> dict[int, dict[bytes, bytes]]:
        return {
            producer: {key: stored.value for key, stored in written.items()}
            for producer, written in self.replay.pending.items()
        }


@pytest.fixture
def log() -> Log:
    return Log()


def test_the_last_plain_record_counts(log: Log) -> None:
    log.write(b"1")
    log.write(b"2")

    assert log.values() == {KEY: b"2"}


def test_a_tombstone_ends_its_key(log: Log) -> None:
    log.write(b"1")
    log.write(b"2", key=OTHER)
    log.write(None)

    assert log.values() == {OTHER: b"2"}


def test_records_without_a_key_are_nobodys(log: Log) -> None:
    log.write(b"1", key=None)
    log.write(b"1", key=None, producer=1)
    log.end(1, committed=True)

    assert log.values() == {}


@pytest.mark.parametrize("committed, expected", [(True, b"2"), (False, b"1")])
def test_a_marker_decides(log: Log, committed: bool, expected: bytes) -> None:
    log.write(b"1")
    log.write(b"2", producer=1)
    log.end(1, committed=committed)

    assert (log.values(), log.pending()) == ({KEY: expected}, {})


def test_without_a_marker_it_stays_pending(log: Log) -> None:
    log.write(b"1")
    log.write(b"2", producer=1)
    log.write(b"3", producer=2, key=OTHER)

    assert log.values() == {KEY: b"1"}
    assert log.pending() == {1: {KEY: b"2"}, 2: {OTHER: b"3"}}


def test_a_plain_record_behind_it_counts_though_the_marker_comes_later(log: Log) -> None:
    log.write(b"1", producer=1)
    log.write(b"2")
    log.end(1, committed=True)

    assert log.values() == {KEY: b"2"}


def test_a_tombstone_behind_it_counts_though_the_marker_comes_later(log: Log) -> None:
    log.write(b"1", producer=1)
    log.write(None)
    log.end(1, committed=True)

    assert log.values() == {}


def test_a_tombstone_ends_what_is_pending(log: Log) -> None:
    log.write(b"1", producer=1)
    log.write(b"2", producer=1, key=OTHER)
    log.write(None)

    assert (log.values(), log.pending()) == ({}, {1: {OTHER: b"2"}})


def test_what_is_written_behind_the_tombstone_is_pending_again(log: Log) -> None:
    log.write(b"1", producer=1)
    log.write(None)
    log.write(b"2", producer=1)

    assert (log.values(), log.pending()) == ({}, {1: {KEY: b"2"}})


def test_of_two_transactions_the_later_record_counts_whichever_ends_first(log: Log) -> None:
    log.write(b"1", producer=1)
    log.write(b"2", producer=2)
    log.end(2, committed=True)
    log.end(1, committed=True)

    assert log.values() == {KEY: b"2"}


def test_a_marker_without_a_transaction_is_harmless(log: Log) -> None:
    log.write(b"1")
    log.end(9, committed=False)
    log.end(9, committed=True)

    assert log.values() == {KEY: b"1"}


def test_a_producer_goes_on_behind_its_marker(log: Log) -> None:
    log.write(b"1", producer=1)
    log.end(1, committed=True)
    log.write(b"2", producer=1)
    log.end(1, committed=False)

    assert (log.values(), log.pending()) == ({KEY: b"1"}, {})


def test_offsets_are_told(log: Log) -> None:
    log.write(b"0", key=OTHER)
    log.write(b"1", producer=1)
    log.end(1, committed=True)

    assert log.replay.newest == {OTHER: Stored(0, 0, 0, b"0"), KEY: Stored(0, 1, 0, b"1")}


def test_tombstones_are_told_of_the_keys_that_are_asked_about() -> None:
    log = Log()
    log.replay = StateReplay(0, {KEY})
    log.write(b"1")
    log.write(None)
    log.write(None, key=OTHER)

    assert log.replay.ended == {KEY: 0}


def test_a_marker_that_cannot_be_read_is_an_error(log: Log) -> None:
    batch = build_batch(
        [Record(0, 0, b"x", b"")],
        producer_id=1,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )

    with pytest.raises(CorruptRecordError):
        log.replay.batch(parse_header(batch), iterate(batch))
