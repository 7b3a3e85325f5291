"""What the command line shows and copies of transactions: by default only what was committed."""

import subprocess
import sys

import pytest

from headwater.cli.ranges import RangeReader
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from tests.cli.runner import Runner
from tests.delivery.client.transactional import (
    COMMITTED,
    EVERYTHING,
    HIGH_WATERMARK,
    LAST_STABLE_OFFSET,
    Mixed,
    transactional,
    wait_until_stable,
    write,
    write_everything,
)

OFFSET_AND_VALUE = ["-f", "%o %s\\n"]


@pytest.fixture
def mixed(cluster: Cluster, bootstrap: str, name: str) -> Mixed:
    """Give a topic with transactions of every outcome."""
    return write_everything(cluster, bootstrap, name)


def as_lines(records: dict[int, str]) -> list[str]:
    return [f"{offset} {value}" for offset, value in records.items()]


def between(start: int, end: int, records: dict[int, str]) -> list[str]:
    return as_lines({at: value for at, value in records.items() if start <= at < end})


def held_back(topic: str, wanted: int = HIGH_WATERMARK) -> str:
    return f"{topic}-0 is read to offset {LAST_STABLE_OFFSET}, not {wanted}: a transaction is open"


def test_tail_shows_what_was_committed_and_says_what_is_open(cli: Runner, mixed: Mixed) -> None:
    shown = cli.ok("tail", mixed.topic, "-e", *OFFSET_AND_VALUE)
    assert shown.lines == as_lines(COMMITTED)
    note, summary = shown.stderr.splitlines()
    assert held_back(mixed.topic) in note
    assert summary == f"{len(COMMITTED)} records of {mixed.topic}"


def test_tail_shows_everything_to_who_asks_for_it(cli: Runner, mixed: Mixed) -> None:
    shown = cli.ok("tail", mixed.topic, "-e", "--uncommitted", *OFFSET_AND_VALUE)
    assert shown.lines == as_lines(EVERYTHING)
    assert shown.stderr == f"{len(EVERYTHING)} records of {mixed.topic}\n"


def test_a_range_ends_wherever_it_is_told_to(cli: Runner, mixed: Mixed) -> None:
    """Behind records, behind markers, and behind what is open."""
    for end in range(HIGH_WATERMARK + 1):
        asked = ["tail", mixed.topic, "--to", str(end), *OFFSET_AND_VALUE]
        shown = cli.ok(*asked)
        assert shown.lines == between(0, end, COMMITTED)
        assert (held_back(mixed.topic, end) in shown.stderr) == (end > LAST_STABLE_OFFSET)
        everything = cli.ok(*asked, "--uncommitted")
        assert everything.lines == between(0, end, EVERYTHING)


def test_a_range_begins_wherever_it_is_told_to(cli: Runner, mixed: Mixed) -> None:
    starts = [("4", 4), ("10", 10), ("11", 11), ("12", 12), ("end", 10), ("-3", 7), ("-1h", 0)]
    for start, first in starts:
        shown = cli.ok("tail", mixed.topic, "--from", start, "-e", *OFFSET_AND_VALUE)
        assert shown.lines == between(first, LAST_STABLE_OFFSET, COMMITTED)


def test_replay_copies_what_was_committed(cli: Runner, cluster: Cluster, mixed: Mixed) -> None:
    target = f"{mixed.topic}-copy"
    result = cli.ok("replay", mixed.topic, "--into", target, "--json")
    report = result.json()
    assert (report["scanned"], report["copied"], report["lost"]) == (5, 5, 0)
    assert held_back(mixed.topic) in result.stderr
    copy = cli.ok("tail", target, "-e", "--uncommitted")
    assert copy.lines == list(COMMITTED.values())
    assert copy.stderr == f"5 records of {target}\n"
    # The transaction ends: the rest is copied from where the copy has ended.
    mixed.open_writer.commit_transaction(60)
    wait_until_stable(cluster, mixed.topic, HIGH_WATERMARK + 1)
    start = str(LAST_STABLE_OFFSET)
    rest = cli.ok("replay", mixed.topic, "--into", target, "--append", "--from", start)
    assert f"copied 2 records of 2 scanned from {mixed.topic}" in rest.text + rest.stderr
    assert "is open" not in rest.stderr


def test_replay_of_a_range_that_ends_with_a_marker(cli: Runner, mixed: Mixed) -> None:
    target = f"{mixed.topic}-copy"
    report = cli.ok("replay", mixed.topic, "--into", target, "--to", "7", "--json").json()
    assert report["copied"] == 3
    assert cli.ok("tail", target, "-e").lines == ["b0", "plain0", "b1"]


def test_a_member_is_shown_what_was_committed(cli: Runner, cluster: Cluster, mixed: Mixed) -> None:
    member = ["tail", mixed.topic, "--from", "beginning", "-e", *OFFSET_AND_VALUE, "--group"]
    shown = cli.ok(*member, f"{mixed.topic}-committed")
    assert shown.lines == as_lines(COMMITTED)
    assert held_back(mixed.topic) in shown.stderr
    everything = cli.ok(*member, f"{mixed.topic}-all", "--uncommitted")
    assert everything.lines == as_lines(EVERYTHING)
    for group, end in (("committed", LAST_STABLE_OFFSET), ("all", HIGH_WATERMARK)):
        committed = admin.committed_offsets(cluster, f"{mixed.topic}-{group}")
        assert committed == {(mixed.topic, 0): end}


def test_a_topic_of_nothing_but_aborted_records(
    cli: Runner, cluster: Cluster, bootstrap: str, name: str
) -> None:
    admin.create_topic(cluster, name)
    producer = transactional(bootstrap, name)
    producer.begin_transaction()
    for number in range(3):
        write(producer, name, f"{number}")
    producer.abort_transaction(60)
    wait_until_stable(cluster, name, 4)
    shown = cli.ok("tail", name, "-e")
    assert (shown.lines, shown.stderr) == ([], f"0 records of {name}\n")
    assert cli.ok("tail", name, "-e", "-g", name, "--from", "beginning").lines == []
    assert admin.committed_offsets(cluster, name) == {(name, 0): 4}
    report = cli.ok("replay", name, "--into", f"{name}-copy", "--json").json()
    assert (report["scanned"], report["copied"]) == (0, 0)


def test_an_aborted_transaction_larger_than_a_fetch(
    cli: Runner, cluster: Cluster, bootstrap: str, name: str
) -> None:
    """A partition's share of a fetch is a mebibyte."""
    admin.create_topic(cluster, name)
    producer = transactional(bootstrap, name)
    for outcome in ("committed", "aborted", "committed"):
        producer.begin_transaction()
        for number in range(5):
            write(producer, name, f"{outcome} {number} " + "x" * 500_000)
        if outcome == "aborted":
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    wait_until_stable(cluster, name, 18)
    shown = cli.ok("tail", name, "-e")
    assert [line[:11] for line in shown.lines] == [f"committed {at}" for at in range(5)] * 2
    report = cli.ok("replay", name, "--into", f"{name}-copy", "--json").json()
    assert (report["scanned"], report["copied"]) == (10, 10)


def test_a_follower_sees_a_transaction_when_it_is_committed(cli: Runner, mixed: Mixed) -> None:
    """It waits behind what is open, and goes on by itself."""
    program = "import sys; from headwater.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "tail", mixed.topic, "-q", "--from", "9", "-n", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"plain1\n"
        mixed.open_writer.commit_transaction(60)
        rest, _ = follower.communicate(timeout=60)
    assert rest.decode().splitlines() == [EVERYTHING[10], EVERYTHING[11]]


def test_how_far_a_range_is_counts_what_is_left_out(cluster: Cluster, mixed: Mixed) -> None:
    place = (mixed.topic, 0)
    reader = RangeReader(cluster, {place: 1}, {place: LAST_STABLE_OFFSET}, on_loss=pytest.fail)
    assert reader.offsets_left == LAST_STABLE_OFFSET - 1
    while not reader.done:
        reader.read()
    assert reader.offsets_left == 0
    assert reader.scanned == len(COMMITTED)
