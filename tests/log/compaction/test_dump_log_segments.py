"""Apache Kafka's own tool reads what compaction has written, and finds nothing wrong."""

import re
from pathlib import Path

import pytest

from headwater.base.disk import RealDisk
from headwater.base.record.codecs import Codec
from headwater.testing.compacting import clean_directory
from headwater.testing.manual_clock import ManualClock
from tests.log.compaction.helpers import COMPACT, append_pairs, pairs, roll
from tests.log.helpers import NOW_MS, open_log
from tests.log.test_dump_log_segments import assert_no_complaint, complaints, dump

pytestmark = pytest.mark.peer


def write_log(directory: Path, clock: ManualClock) -> None:
    """Write segments with every codec, tombstones, producers and both ends of a transaction."""
    log = open_log(RealDisk(), str(directory), config=COMPACT, clock=clock)
    sequence = 0
    for number in range(60):
        batch: list[tuple[bytes | None, bytes | None]] = [
            (b"%d" % (number * 7 % 11 + part), None if number % 9 == part else b"v%d" % number)
            for part in range(3)
        ]
        if number % 4 == 3:
            append_pairs(log, batch, producer=(5, 0, sequence), transactional=True)
            log.append_marker(5, 0, committed=number % 8 == 3, coordinator_epoch=2)
            sequence += len(batch)
        else:
            append_pairs(log, batch, codec=Codec(number % 5), at_ms=NOW_MS + number)
        if number % 6 == 5:
            roll(log)
    log.close()


def test_no_file_has_a_fault(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    clock = ManualClock(NOW_MS)
    write_log(directory, clock)
    written = sum(path.stat().st_size for path in directory.glob("*.log"))

    passes = clean_directory(RealDisk(), str(directory), clock=clock, config=COMPACT)

    logs = sorted(directory.glob("*.log"))
    assert sum(path.stat().st_size for path in logs) < written / 2
    assert sum(cleaned.dropped_records for cleaned in passes) > 100
    output = dump(logs, "--deep-iteration", "--print-data-log")
    # The tool tells of gaps between offsets, which are what compaction leaves.
    assert [line for line in complaints(output) if "is followed by" not in line] == []
    log = open_log(RealDisk(), str(directory), config=COMPACT, clock=clock)
    records = re.findall(r"^\| offset: (\d+) .*keySize: \d+ .*key: (\S*)", output, re.MULTILINE)
    assert [(int(offset), key.encode()) for offset, key in records] == [
        (offset, key) for offset, key, _ in pairs(log)
    ]
    horizons = set(re.findall(r"deleteHorizonMs: OptionalLong\[(\d+)\]", output))
    assert horizons == {str(NOW_MS + COMPACT.delete_retention_ms)}
    indexes = [*directory.glob("*.index"), *directory.glob("*.timeindex")]
    for flags in (["--index-sanity-check"], ["--verify-index-only"], []):
        assert_no_complaint(dump(indexes, *flags))
    aborted = list(directory.glob("*.txnindex"))
    assert_no_complaint(dump(aborted) if aborted else "")
