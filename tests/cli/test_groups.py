"""`headwater group`: lag and offsets, beside librdkafka."""

import contextlib
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition

from headwater.cli.errors import Exit
from headwater.cli.lag import Retention, time_left
from tests.cli.runner import Runner

HOUR_MS = 3_600_000


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> list[int]:
    """Ask librdkafka for committed offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        return [each.offset for each in consumer.committed(wanted, timeout=30)]
    finally:
        consumer.close()


def commit(bootstrap: str, group: str, topic: str, offsets: list[int]) -> None:
    """Commit offsets with librdkafka."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        consumer.commit(
            offsets=[TopicPartition(topic, at, offset) for at, offset in enumerate(offsets)],
            asynchronous=False,
        )
    finally:
        consumer.close()


@contextlib.contextmanager
def member(bootstrap: str, group: str, topic: str, client: str) -> Iterator[Consumer]:
    """Be in a group with librdkafka until the end of the block."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": client,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    deadline_s = time.monotonic() + 60
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < deadline_s
    try:
        yield consumer
    finally:
        consumer.close()


@pytest.fixture
def topic(cli: Runner, bootstrap: str, name: str) -> str:
    """Give a topic of two partitions with 10 and 20 records, an hour old, kept for a day."""
    cli.ok("topic", "create", name, "-p", "2", "-c", "retention.ms=1d")
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition, count in ((0, 10), (1, 20)):
        for number in range(count):
            producer.produce(
                name,
                f"{number}",
                partition=partition,
                timestamp=time.time_ns() // 1_000_000 - HOUR_MS,
            )
    assert producer.flush(30) == 0
    return name


def test_describe_shows_the_lag(cli: Runner, bootstrap: str, topic: str, name: str) -> None:
    commit(bootstrap, name, topic, [4, 20])
    document = cli.ok("group", "describe", name, "--json").json()
    assert document["state"] == "Empty"
    assert document["lag_records"] == 6
    behind, at_end = document["partitions"]
    assert (behind["committed"], behind["end"], behind["lag_records"]) == (4, 10, 6)
    assert behind["hours_left"] == pytest.approx(23, abs=0.2)
    assert behind["removed_by"] == "retention.ms"
    assert (at_end["lag_records"], at_end["lag_bytes"], at_end["hours_left"]) == (0, 0, None)
    text = cli.ok("group", "describe", name).text
    assert "22 h 5" in text
    assert "REMOVED IN" in text


def test_lag_in_bytes_is_the_share_of_the_partition(
    cli: Runner, bootstrap: str, topic: str, name: str
) -> None:
    commit(bootstrap, name, topic, [5, 0])
    sizes = [
        each["bytes"] for each in cli.ok("topic", "describe", topic, "--json").json()["partitions"]
    ]
    half, whole = cli.ok("group", "describe", name, "--json").json()["partitions"]
    assert half["lag_bytes"] == pytest.approx(sizes[0] / 2, abs=1)
    assert whole["lag_bytes"] == sizes[1]


def test_what_was_removed_unread_is_told(
    cli: Runner, bootstrap: str, topic: str, name: str
) -> None:
    commit(bootstrap, name, topic, [2, 0])
    cli.ok("topic", "trim", topic, "--before", "7", "-p", "0", "--yes")
    described = cli.ok("group", "describe", name, "--json").json()["partitions"][0]
    assert (described["lost_records"], described["lag_records"]) == (5, 3)
    assert (
        "5 offsets were removed before they were read" in cli.ok("group", "describe", name).stderr
    )


def test_a_group_is_warned_of_before_it_loses_records(
    cli: Runner, bootstrap: str, topic: str, name: str
) -> None:
    commit(bootstrap, name, topic, [2, 20])
    assert "about to lose" not in cli.ok("group", "describe", name).stderr
    # The records are an hour old: of 64 minutes less than a tenth is left.
    cli.ok("topic", "config", topic, "retention.ms=64m")
    warned = cli.ok("group", "describe", name)
    assert f"{topic}-0 is about to lose unread records by retention.ms" in warned.stderr
    assert f"{topic}-1 is about" not in warned.stderr
    assert cli.ok("group", "describe", name, "--json").json()["partitions"][0]["at_risk"]


def test_members_and_who_holds_what(cli: Runner, bootstrap: str, topic: str, name: str) -> None:
    with member(bootstrap, name, topic, "reader-1"):
        document = cli.ok("group", "describe", name, "--json").json()
        assert document["state"] == "Stable"
        (only,) = document["members"]
        assert only["client"] == "reader-1"
        assert [each["partition"] for each in only["partitions"]] == [0, 1]
        assert {each["member"] for each in document["partitions"]} == {only["member"]}
        text = cli.ok("group", "describe", name).text
        assert "reader-1" in text
        # Nothing was committed yet: all that is there is still to be read.
        assert document["lag_records"] == 30


def test_ls_lists_groups_with_their_lag(cli: Runner, bootstrap: str, topic: str, name: str) -> None:
    commit(bootstrap, name, topic, [4, 20])
    groups = {each["group"]: each for each in cli.ok("group", "ls", "--json").json()["groups"]}
    assert groups[name] == {"group": name, "state": "Empty", "members": 0, "topics": 1, "lag": 6}
    rows = [line.split() for line in cli.ok("group", "ls").lines]
    assert [name, "Empty", "0", "1", "6"] in rows


@pytest.mark.parametrize(
    "target, expected",
    [
        (["--to", "beginning"], [0, 0]),
        (["--to", "end"], [10, 20]),
        (["--to", "7"], [7, 7]),
        (["--to", "15"], [10, 15]),
        (["--to", "-3"], [7, 17]),
        (["--to", "-30m"], [10, 20]),
        (["--to", "-2h"], [0, 0]),
        (["--by", "2"], [6, 12]),
        (["--by", "-100"], [0, 0]),
    ],
)
def test_seek_moves_with_apply_only(
    cli: Runner, bootstrap: str, topic: str, name: str, target: list[str], expected: list[int]
) -> None:
    commit(bootstrap, name, topic, [4, 10])
    dry = cli.ok("group", "seek", name, *target, "--json").json()
    assert [each["to"] for each in dry["partitions"]] == expected
    assert [each["from"] for each in dry["partitions"]] == [4, 10]
    assert not dry["applied"]
    assert committed(bootstrap, name, topic, 2) == [4, 10]
    cli.ok("group", "seek", name, *target, "--apply")
    assert committed(bootstrap, name, topic, 2) == expected


def test_seek_can_be_limited(cli: Runner, bootstrap: str, topic: str, name: str) -> None:
    commit(bootstrap, name, topic, [4, 10])
    cli.ok("group", "seek", name, "--to", "beginning", "--topic", f"{topic}:1", "--apply")
    assert committed(bootstrap, name, topic, 2) == [4, 0]


def test_seek_tells_what_it_left_alone(cli: Runner, bootstrap: str, topic: str, name: str) -> None:
    commit(bootstrap, name, topic, [4])
    moved = cli.ok("group", "seek", name, "--to", "beginning", "--apply")
    assert f"{topic} 1 left alone, nothing was ever committed there" in moved.stderr
    assert f"--topic {topic}" in moved.stderr
    assert committed(bootstrap, name, topic, 2) == [0, OFFSET_INVALID]
    told = cli.ok("group", "seek", name, "--by", "1", "--json").json()
    assert [each["partition"] for each in told["partitions"]] == [0]
    assert told["left_alone"] == [{"topic": topic, "partition": 1}]
    everywhere = cli.ok("group", "seek", name, "--to", "2", "--topic", topic, "--apply", "--json")
    assert everywhere.json()["left_alone"] == []
    assert committed(bootstrap, name, topic, 2) == [2, 2]
    assert "left alone" not in cli.ok("group", "seek", name, "--to", "end").stderr


def test_seek_begins_a_group_that_does_not_exist(
    cli: Runner, bootstrap: str, topic: str, name: str
) -> None:
    cli.ok("group", "seek", f"{name}-new", "--to", "5", "--topic", topic, "--apply")
    assert committed(bootstrap, f"{name}-new", topic, 2) == [5, 5]
    nowhere = cli.run("group", "seek", f"{name}-other", "--by", "5", "--topic", topic)
    assert nowhere.code == Exit.USAGE


def test_a_group_with_members_is_not_moved_or_removed(
    cli: Runner, bootstrap: str, topic: str, name: str
) -> None:
    with member(bootstrap, name, topic, "reader-1") as reader:
        reader.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
        for arguments in (["seek", name, "--to", "end", "--apply"], ["rm", name, "--yes"]):
            refused = cli.run("group", *arguments)
            assert refused.code == Exit.IN_THE_WAY
            assert "1 member" in refused.stderr
            assert f"headwater group describe {name}" in refused.stderr
    assert committed(bootstrap, name, topic, 1) == [3]


def test_rm_wants_to_be_confirmed(cli: Runner, bootstrap: str, topic: str, name: str) -> None:
    commit(bootstrap, name, topic, [4, 10])
    assert cli.run("group", "rm", name).code == Exit.IN_THE_WAY
    cli.ok("group", "rm", name, "--yes")
    assert cli.run("group", "describe", name).code == Exit.NOT_FOUND


def test_a_misspelt_group_is_guessed(cli: Runner, bootstrap: str, topic: str, name: str) -> None:
    commit(bootstrap, name, topic, [4, 10])
    result = cli.run("group", "describe", name[:-1])
    assert f"did you mean '{name}'?" in result.stderr


def test_seek_wants_one_target(cli: Runner, name: str) -> None:
    assert cli.run("group", "seek", name).code == Exit.USAGE
    assert cli.run("group", "seek", name, "--to", "end", "--by", "1").code == Exit.USAGE


# --- how long data stays ------------------------------------------------------------------------

FOREVER = float("inf")


@pytest.mark.parametrize(
    "retention, age_ms, lag_bytes, expected",
    [
        (Retention(FOREVER, FOREVER), HOUR_MS, 100, (None, None, False)),
        (Retention(24 * HOUR_MS, FOREVER), HOUR_MS, 100, (23.0, "retention.ms", False)),
        (Retention(20 * HOUR_MS, FOREVER), 19 * HOUR_MS, 100, (1.0, "retention.ms", True)),
        (Retention(HOUR_MS, FOREVER), 2 * HOUR_MS, 100, (0.0, "retention.ms", True)),
        # 100 bytes an hour: room for 300 more is room for three hours.
        (Retention(FOREVER, 400), HOUR_MS, 100, (3.0, "retention.bytes", False)),
        (Retention(FOREVER, 50), HOUR_MS, 100, (0.0, "retention.bytes", True)),
        (Retention(2 * HOUR_MS, 400), HOUR_MS, 100, (1.0, "retention.ms", False)),
        (Retention(24 * HOUR_MS, 400), HOUR_MS, 100, (3.0, "retention.bytes", False)),
    ],
)
def test_time_left(
    retention: Retention,
    age_ms: int,
    lag_bytes: int,
    expected: tuple[float | None, str | None, bool],
) -> None:
    now_ms = 1_800_000_000_000
    assert time_left(retention, now_ms - age_ms, lag_bytes, now_ms) == expected
