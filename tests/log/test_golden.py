"""Files written by Apache Kafka 4.3: we read them, and from the same batches write the same bytes.

`tests/log/make_golden.py` says how they came to be.
"""

import shutil
from pathlib import Path

import pytest

from headwater.base.disk import RealDisk
from headwater.base.record.batch import parse_header, scan
from headwater.base.record.control import read_end_transaction
from headwater.base.record.records import iterate
from headwater.base.settings import TopicConfig
from headwater.log.names import decode_partition_metadata, encode_partition_metadata
from headwater.log.partition import PartitionLog
from headwater.log.producers import ProducerState
from headwater.testing.manual_clock import ManualClock
from tests.log.helpers import commit, open_log, read_batches
from tests.log.make_golden import CONFIG, FIRST_TIMESTAMP_MS, GOLDEN

GOLDEN_CONFIG = TopicConfig.parse(CONFIG)


def golden_batches(name: str) -> list[bytes]:
    batches = []
    for path in sorted((GOLDEN / name).glob("*.log")):
        content = path.read_bytes()
        for position, header in scan(content):
            batches.append(content[position : position + header.size_bytes])
    return batches


def topic_id(name: str) -> bytes:
    found = decode_partition_metadata((GOLDEN / name / "partition.metadata").read_bytes())
    assert found is not None
    return found


def open_copy(tmp_path: Path, name: str, *, clean: bool, recovery_point: int = 0) -> PartitionLog:
    shutil.copytree(GOLDEN / name, tmp_path / name)
    return open_log(
        RealDisk(),
        str(tmp_path / name),
        config=GOLDEN_CONFIG,
        topic_id=topic_id(name),
        clean=clean,
        recovery_point=recovery_point,
        leader_epoch=5,
    )


@pytest.mark.parametrize("name", ["plain-0", "restarted-0", "transactional-0"])
@pytest.mark.parametrize("clean", [True, False])
def test_every_batch_of_kafkas_files_is_read(tmp_path: Path, name: str, clean: bool) -> None:
    log = open_copy(tmp_path, name, clean=clean)
    batches = golden_batches(name)

    assert [batch for _, batch in read_batches(log)] == batches
    assert log.log_end_offset == parse_header(batches[-1]).next_offset
    assert log.high_watermark == log.log_end_offset


@pytest.mark.parametrize("name", ["plain-0", "restarted-0", "transactional-0"])
def test_recovery_of_kafkas_files_changes_none_of_them(tmp_path: Path, name: str) -> None:
    open_copy(tmp_path, name, clean=False).close()

    for path in sorted((GOLDEN / name).iterdir()):
        if path.suffix in {".log", ".snapshot", ".txnindex", ""} or name == "plain-0":
            assert (tmp_path / name / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_epochs_of_both_runs_are_known(tmp_path: Path) -> None:
    log = open_copy(tmp_path, "restarted-0", clean=True)

    assert log.epochs.items() == [(0, 0), (2, 100)]
    assert log.epoch_for_offset(99) == 0
    assert log.epoch_end_offset(0) == (0, 100)
    assert log.epoch_end_offset(1) == (0, 100)
    assert log.epoch_end_offset(2) == (2, log.log_end_offset)


@pytest.mark.parametrize("clean", [True, False])
def test_timestamps_are_found_as_a_scan_of_all_records_finds_them(
    tmp_path: Path, clean: bool
) -> None:
    log = open_copy(tmp_path, "plain-0", clean=clean)
    records = [record for batch in golden_batches("plain-0") for record in iterate(batch)]

    for timestamp in range(FIRST_TIMESTAMP_MS - 2000, FIRST_TIMESTAMP_MS + 125_000, 487):
        expected = next((r for r in records if r.timestamp >= timestamp), None)
        found = log.offset_for_timestamp(timestamp, upto_offset=log.log_end_offset)
        assert (found and (found.offset, found.timestamp)) == (
            expected and (expected.offset, expected.timestamp)
        )
    latest = max(records, key=lambda record: (record.timestamp, -record.offset))
    found = log.max_timestamp(upto_offset=log.log_end_offset)
    assert found is not None
    assert (found.offset, found.timestamp) == (latest.offset, latest.timestamp)


def test_snapshots_are_read_and_written_to_the_byte() -> None:
    paths = sorted(GOLDEN.glob("*/*.snapshot"))
    assert len(paths) >= 5
    for path in paths:
        state = ProducerState.decode(path.read_bytes())
        assert state is not None
        assert len(state) > 0
        assert state.encode() == path.read_bytes()


def test_partition_metadata_is_written_to_the_byte() -> None:
    content = (GOLDEN / "plain-0" / "partition.metadata").read_bytes()

    assert encode_partition_metadata(topic_id("plain-0")) == content


@pytest.mark.parametrize("name", ["plain-0", "transactional-0"])
def test_the_same_batches_give_the_same_files(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    clock = ManualClock()
    log = open_log(
        RealDisk(),
        str(directory),
        config=GOLDEN_CONFIG,
        topic_id=topic_id(name),
        clock=clock,
        leader_epoch=0,
    )
    for golden in golden_batches(name):
        batch = bytearray(golden)
        header = parse_header(batch)
        clock.advance(max(header.max_timestamp - clock.now_ms(), 0))
        if header.is_control:
            marker = read_end_transaction(iterate(golden)[0])
            assert marker is not None
            log.append_marker(
                header.producer_id,
                header.producer_epoch,
                committed=marker.is_commit,
                coordinator_epoch=marker.coordinator_epoch,
            )
        else:
            batch[:8] = bytes(8)
            log.append(batch, parse_header(batch))
        commit(log)
    log.close()

    written = {path.name: path.read_bytes() for path in directory.iterdir()}
    expected = {path.name: path.read_bytes() for path in (GOLDEN / name).iterdir()}
    assert written == expected


@pytest.mark.parametrize("clean", [True, False])
def test_the_transactions_of_kafkas_files_are_known(tmp_path: Path, clean: bool) -> None:
    log = open_copy(tmp_path, "transactional-0", clean=clean)
    opened: dict[int, int] = {}
    aborted = []
    epochs = set()
    for golden in golden_batches("transactional-0"):
        header = parse_header(golden)
        epochs.add(header.producer_epoch)
        if header.is_control:
            marker = read_end_transaction(iterate(golden)[0])
            first_offset = opened.pop(header.producer_id, None)
            if marker is not None and first_offset is not None and not marker.is_commit:
                aborted.append((header.producer_id, first_offset))
        else:
            opened.setdefault(header.producer_id, header.base_offset)

    assert len(opened) == 2
    assert len(aborted) > 20
    assert len(epochs) > 3
    assert log.last_stable_offset == min(opened.values())
    assert {(t.producer_id, t.first_offset) for t in log.open_transactions()} == set(opened.items())
    found = log.aborted_transactions(0, log.log_end_offset)
    assert [tuple(transaction) for transaction in found] == aborted


def test_an_index_of_kafkas_that_is_lost_with_the_others_is_made_anew(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "transactional-0", tmp_path / "transactional-0")
    for path in (tmp_path / "transactional-0").iterdir():
        if path.suffix in {".txnindex", ".snapshot"}:
            path.unlink()
    newest_ms = max(parse_header(each).max_timestamp for each in golden_batches("transactional-0"))
    log = open_log(
        RealDisk(),
        str(tmp_path / "transactional-0"),
        config=GOLDEN_CONFIG,
        topic_id=topic_id("transactional-0"),
        clock=ManualClock(newest_ms),
        leader_epoch=5,
    )
    log.close()

    for path in (GOLDEN / "transactional-0").glob("*.txnindex"):
        assert (tmp_path / "transactional-0" / path.name).read_bytes() == path.read_bytes()
    newest = max((GOLDEN / "transactional-0").glob("*.snapshot"))
    assert (tmp_path / "transactional-0" / newest.name).read_bytes() == newest.read_bytes()
