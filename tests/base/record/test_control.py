"""Control records: markers of ended transactions."""

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord

from headwater.base.errors import CorruptRecordError, ErrorCode
from headwater.base.record.batch import parse_header
from headwater.base.record.control import (
    CONTROL_ABORT,
    CONTROL_COMMIT,
    EndTransactionMarker,
    build_end_transaction,
    control_type,
    read_end_transaction,
)
from headwater.base.record.records import Record, iterate
from tests.base.record.samples import NOW_MS


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_round_trips_and_others_read_it(is_commit: bool) -> None:
    marker = EndTransactionMarker(is_commit=is_commit, coordinator_epoch=12)
    batch = build_end_transaction(
        marker, timestamp=NOW_MS, producer_id=99, producer_epoch=4, base_offset=70, leader_epoch=2
    )
    header = parse_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (99, 4, -1)
    assert (header.base_offset, header.leader_epoch) == (70, 2)
    (record,) = iterate(batch)
    assert record.offset == 70
    assert control_type(record) == (CONTROL_COMMIT if is_commit else CONTROL_ABORT)
    assert read_end_transaction(record) == marker
    assert ControlRecord.parse(record.key) == (COMMIT_MARKER if is_commit else ABORT_MARKER)
    assert record.value == b"\x00\x00\x00\x00\x00\x0c"


def test_other_control_records_are_no_markers() -> None:
    leader_change = Record(0, NOW_MS, b"\x00\x00\x00\x02", b"whatever")
    assert control_type(leader_change) == 2
    assert read_end_transaction(leader_change) is None


def test_later_versions_may_be_longer() -> None:
    record = Record(0, NOW_MS, b"\x00\x01\x00\x01more", b"\x00\x01\x00\x00\x00\x07more")
    assert read_end_transaction(record) == EndTransactionMarker(is_commit=True, coordinator_epoch=7)


@pytest.mark.parametrize(
    "key, value, part",
    [
        (None, b"\x00\x00\x00\x00\x00\x00", "key"),
        (b"\x00\x00\x00", b"\x00\x00\x00\x00\x00\x00", "key"),
        (b"\x00\x00\x00\x01", None, "value"),
        (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00", "value"),
    ],
)
def test_short_control_records_are_refused(
    key: bytes | None, value: bytes | None, part: str
) -> None:
    with pytest.raises(CorruptRecordError, match=part) as caught:
        read_end_transaction(Record(0, NOW_MS, key, value))
    assert caught.value.code == ErrorCode.INVALID_RECORD
