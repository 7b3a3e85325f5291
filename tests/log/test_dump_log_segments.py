"""Apache Kafka's own tool reads what we wrote, and finds nothing wrong."""

import re
from pathlib import Path

import pytest

from headwater.base.disk import RealDisk
from headwater.log.partition import PartitionLog
from headwater.log.txn_index import TxnIndexEntry
from headwater.testing.manual_clock import ManualClock
from tests import peers
from tests.log.helpers import NOW_MS, SMALL, append, commit, make_batch, open_log
from tests.log.test_transactions import send
from tests.log.test_transactions_recovery import live

pytestmark = pytest.mark.peer

BATCHES = 60


def write_log(directory: Path) -> PartitionLog:
    """Write several segments with everything that a segment can hold today."""
    clock = ManualClock(NOW_MS)
    log = open_log(RealDisk(), str(directory), config=SMALL, clock=clock)
    for number in range(BATCHES):
        values = [f"{number}.{part}".encode() * (number % 9) for part in range(number % 3 + 1)]
        timestamps = [NOW_MS + 10 * number - 77 * (number % 5 == 2) + part for part in range(3)]
        append(
            log,
            make_batch(
                values,
                timestamps=timestamps[: len(values)],
                codec=number % 5,
                producer_id=number % 4,
                producer_epoch=0,
                base_sequence=sum(n % 3 + 1 for n in range(number % 4, number, 4)),
            ),
        )
        if number % 7 == 0:
            commit(log)
        if number % 13 == 0:
            log.checkpoint()
    commit(log)
    return log


def dump(files: list[Path], *flags: str) -> str:
    peers.require("kafka")
    names = ",".join(str(path) for path in files)
    done = peers.java("org.apache.kafka.tools.DumpLogSegments", *flags, "--files", names)
    # Most complaints go to the other stream, beside a logger's about its own configuration.
    return done.stdout + done.stderr


def complaints(output: str) -> list[str]:
    # It takes -1 for the offset before a segment, of Kafka's own segments too.
    words = re.compile(
        r"ismatch|not fully|out of order|invalid|isvalid: false|Found |xception|orrupt"
        r"|(?<!^  -1) is followed by"
    )
    return [line for line in output.splitlines() if words.search(line)]


def assert_no_complaint(output: str) -> None:
    assert complaints(output) == []


@pytest.mark.parametrize("crashed", [False, True])
def test_no_file_has_a_fault(tmp_path: Path, crashed: bool) -> None:
    directory = tmp_path / "t-0"
    log = write_log(directory)
    if crashed:
        # Another process finds the files of one that never closed them, the last batch torn.
        end = log.log_end_offset
        with max(directory.glob("*.log")).open("ab") as torn:
            torn.write(bytes(make_batch([b"torn"]))[:70])
        log = open_log(RealDisk(), str(directory), config=SMALL)
        assert log.log_end_offset == end
    log.close()
    logs = sorted(directory.glob("*.log"))
    assert len(logs) > 2

    output = dump(logs, "--deep-iteration", "--print-data-log")
    assert_no_complaint(output)
    assert len(re.findall(r"^\| offset: ", output, re.MULTILINE)) == log.log_end_offset
    assert len(re.findall(r"^baseOffset: .* isvalid: true", output, re.MULTILINE)) == BATCHES

    indexes = [*directory.glob("*.index"), *directory.glob("*.timeindex")]
    checked = dump(indexes, "--index-sanity-check")
    assert len(re.findall("passed sanity check|is empty", checked)) == len(indexes), checked
    assert_no_complaint(checked)
    for flags in (["--verify-index-only"], []):
        assert_no_complaint(dump(indexes, *flags))

    producers = dump(sorted(directory.glob("*.snapshot")))
    assert len(re.findall(r"producerId: \d", producers)) >= 4


def test_transactions_are_what_the_tool_says(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    log = open_log(RealDisk(), str(directory), config=SMALL)
    expected = live(log, segments=4)
    still_open = send(log, 9, 0, epoch=7).base_offset
    commit(log)
    log.close()

    indexes = dump(sorted(directory.glob("*.txnindex")))
    assert_no_complaint(indexes)
    fields = r"version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: "
    found = re.findall(fields + r"(\d+)", indexes)
    assert [TxnIndexEntry(*map(int, entry)) for entry in found] == expected

    batches = dump(sorted(directory.glob("*.log")), "--deep-iteration")
    assert_no_complaint(batches)
    markers = [
        int(offset) for offset in re.findall(r"offset: (\d+) .* endTxnMarker: ABORT", batches)
    ]
    assert markers == [entry.marker_offset for entry in expected]
    assert "endTxnMarker: COMMIT coordinatorEpoch: 0" in batches

    producers = dump([max(directory.glob("*.snapshot"))])
    assert re.search(
        rf"producerId: 9 .*producerEpoch: 7 .*currentTxnFirstOffset: .*{still_open}\D", producers
    )


def test_the_tool_would_complain(tmp_path: Path) -> None:
    write_log(tmp_path / "t-0").close()
    for suffix in ("index", "timeindex"):
        path = min((tmp_path / "t-0").glob(f"*.{suffix}"))
        content = bytearray(path.read_bytes())
        # The lowest byte of the first entry's offset, or of its timestamp.
        content[3 if suffix == "index" else 7] += 2
        path.write_bytes(content)

        assert complaints(dump([path]))
