"""`headwater dlq`: letters are counted and shown, and each comes back once, on both brokers."""

import json
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headwater.base.errors import HeadwaterError
from headwater.cli import dlq_progress
from headwater.cli.dlq_letters import dead_letter_topics
from headwater.cli.dlq_progress import Redriven
from headwater.cli.errors import Exit
from headwater.cli.ranges import RangeReader
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster, TopicInfo
from headwater.delivery.client.consumer import Consumer as OwnConsumer
from headwater.delivery.client.consumer import Message
from headwater.streams.formats.letters import Header, headers_of
from tests.cli.processes import command
from tests.cli.runner import Runner

BASE_MS = 1_700_000_000_000
NOT_JSON = "NOT_JSON: Expecting value at character 0"
WRONG_TYPE = "WRONG_TYPE: qty should be integer"
WAIT_S = 60.0


class Read(NamedTuple):
    """A record as a foreign client finds it."""

    partition: int | None
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: object


def send(bootstrap: str, topic: str, records: Iterable[tuple[bytes, list[Header]]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, (value, given) in enumerate(records):
        headers: list[tuple[str, str | bytes | None]] = [*given]
        producer.produce(
            topic, value, key=f"k{number}", partition=number % 2, headers=headers, timestamp=BASE_MS
        )
    assert producer.flush(WAIT_S) == 0


def read(bootstrap: str, topic: str) -> list[Read]:
    """Read all committed records of a topic with librdkafka.

    Apache Kafka answers a commit before its markers are in every partition, and until then a
    reader meets the end of a partition early. So the ends are those of who reads everything.
    """
    config: dict[str, str | bool] = {
        "bootstrap.servers": bootstrap,
        "group.id": "reader",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    observer = Consumer(config | {"isolation.level": "read_uncommitted"})
    count = len(observer.list_topics(topic, WAIT_S).topics[topic].partitions)
    partitions = [TopicPartition(topic, number, 0) for number in range(count)]
    ends = [observer.get_watermark_offsets(each, WAIT_S)[1] for each in partitions]
    observer.close()
    consumer = Consumer(config | {"isolation.level": "read_committed"})
    consumer.assign(partitions)
    found: list[Read] = []
    waiting = set(range(count))
    while waiting:
        message = consumer.poll(WAIT_S)
        assert message is not None
        if message.error() is not None:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            if offset >= ends[partition]:
                waiting.discard(partition)
            continue
        found.append(
            Read(
                message.partition(),
                message.timestamp()[1],
                message.key(),
                message.value(),
                message.headers() or [],
            )
        )
    consumer.close()
    return found


class Topics(NamedTuple):
    """The topic that records came from, and the one of their letters."""

    original: str
    letters: str


@pytest.fixture
def topics(cli: Runner, bootstrap: str, name: str) -> Topics:
    """Give six letters, in two partitions, and one record that is none."""
    cli.ok("topic", "create", name, "-p", "2", "-c", "retention.ms=-1")
    cli.ok("topic", "create", f"{name}.dlq", "-p", "2", "-c", "retention.ms=-1")
    letters: list[tuple[bytes, list[Header]]] = [
        (
            f"value {number}".encode(),
            [
                ("trace", b"\xff"),
                *headers_of(
                    (name, 1 - number % 2, 100 + number),
                    BASE_MS + number,
                    NOT_JSON if number < 4 else WRONG_TYPE,
                    "revenue",
                ),
            ],
        )
        for number in range(6)
    ]
    send(bootstrap, f"{name}.dlq", [*letters, (b"stray", [])])
    return Topics(name, f"{name}.dlq")


def test_letters_are_counted_by_reason(cli: Runner, topics: Topics) -> None:
    (counted,) = cli.ok("dlq", "ls", topics.letters, "--json").json()
    assert (counted["letters"], counted["waiting"]) == (7, 6)
    numbers = {kind: each["letters"] for kind, each in counted["reasons"].items()}
    assert numbers == {"NOT_JSON": 4, "WRONG_TYPE": 2, "(no dead letter)": 1}
    assert counted["reasons"]["NOT_JSON"]["from"] == [topics.original]
    found = cli.ok("dlq", "ls", "--json").json()
    assert counted in found
    assert topics.original not in [each["topic"] for each in found]
    lines = cli.ok("dlq", "ls", topics.letters).lines
    assert lines[0].split() == ["TOPIC", "REASON", "LETTERS", "WAITING", "FROM", "LAST"]
    assert lines[1].split()[:5] == [topics.letters, "NOT_JSON", "4", "4", topics.original]


def test_letters_are_shown_with_their_origin(cli: Runner, topics: Topics) -> None:
    told = cli.ok("dlq", "show", topics.letters, "0:1", "--json")
    (letter,) = told.json_lines()
    assert letter["original"] == {
        "topic": topics.original,
        "partition": 1,
        "offset": 102,
        "ts": BASE_MS + 2,
    }
    assert (letter["kind"], letter["error"]) == ("NOT_JSON", NOT_JSON)
    assert (letter["pipeline"], letter["payload"]) == ("revenue", "value 2")
    assert not letter["sent_back"]
    assert json.loads(told.stderr)["summary"]["letters"] == 1
    text = cli.ok("dlq", "show", topics.letters, "1:0-1").text
    assert f"from {topics.original}-0@101" in text
    assert f"  {NOT_JSON}\n  key 'k1'  value 'value 1'\n" in text


@pytest.mark.parametrize(
    "chosen, expected",
    [
        ([], 7),
        (["--reason", "WRONG_TYPE"], 2),
        (["--reason", "wrong_type"], 2),
        (["--reason", "NOT_JSON: Expecting"], 4),
        (["--where", "value = 'value 3'"], 1),
        (["0:0-1", "1:1", "--reason", "NOT_JSON"], 3),
        (["1:17"], 0),
        (["-n", "2"], 2),
        (["--waiting"], 6),
    ],
)
def test_letters_are_chosen(cli: Runner, topics: Topics, chosen: list[str], expected: int) -> None:
    found = cli.ok("dlq", "show", topics.letters, *chosen, "--json")
    assert len(found.json_lines()) == expected
    assert json.loads(found.stderr)["summary"]["stopped_at_limit"] == ("-n" in chosen)


def test_letters_come_back_as_they_were(cli: Runner, bootstrap: str, topics: Topics) -> None:
    report = cli.ok("dlq", "redrive", topics.letters, "--all", "--json").json()
    assert report == {
        "topic": topics.letters,
        "redriven": 6,
        "to": {topics.original: 6},
        "already": 0,
        "never_in_a_topic": 0,
        "no_dead_letters": 1,
        "dry_run": False,
    }
    assert sorted(read(bootstrap, topics.original), key=lambda each: each.timestamp_ms) == [
        Read(
            1 - number % 2,
            BASE_MS + number,
            f"k{number}".encode(),
            f"value {number}".encode(),
            [("trace", b"\xff"), ("x-redriven", b"1")],
        )
        for number in range(6)
    ]
    again = cli.ok("dlq", "redrive", topics.letters, "--all", "--json").json()
    assert (again["redriven"], again["already"]) == (0, 6)
    assert len(read(bootstrap, topics.original)) == 6
    (counted,) = cli.ok("dlq", "ls", topics.letters, "--json").json()
    assert (counted["letters"], counted["waiting"]) == (7, 0)
    shown = cli.ok("dlq", "show", topics.letters, "--json").json_lines()
    assert [each["sent_back"] for each in shown] == [each["original"] is not None for each in shown]


def test_some_letters_come_back_before_the_others(
    cli: Runner, bootstrap: str, topics: Topics
) -> None:
    dry = ["--all", "--dry-run", "--json"]
    would = cli.ok("dlq", "redrive", topics.letters, *dry).json()
    assert (would["redriven"], would["dry_run"]) == (6, True)
    assert read(bootstrap, topics.original) == []
    for arguments, expected in (
        (["0:1"], 1),
        (["--reason", "WRONG_TYPE"], 2),
        (["0:0-99", "--rate", "1000"], 1),
        (["--all", "--to", topics.letters], None),
        (["--all"], 2),
    ):
        done = cli.run("dlq", "redrive", topics.letters, *arguments, "--json")
        if expected is None:
            assert done.code == Exit.USAGE
        else:
            assert done.json()["redriven"] == expected, done.stderr
    values = Counter(each.value for each in read(bootstrap, topics.original))
    assert values == Counter(f"value {number}".encode() for number in range(6))


def test_a_letter_that_dies_again_counts_its_deaths(
    cli: Runner, bootstrap: str, topics: Topics
) -> None:
    again = [("x-redriven", b"1"), *headers_of((topics.original, 0, 9), BASE_MS, NOT_JSON, "")]
    send(bootstrap, topics.letters, [(b"twice", again)])
    cli.ok("dlq", "redrive", topics.letters, "--where", "value = 'twice'")
    (back,) = read(bootstrap, topics.original)
    assert back.headers == [("x-redriven", b"2")]


def test_what_was_never_in_a_topic_is_not_sent_back(
    cli: Runner, bootstrap: str, topics: Topics
) -> None:
    oversized = headers_of((topics.original, 0, -1), BASE_MS, "OVERSIZED: 2 MiB", "")
    send(bootstrap, topics.letters, [(b"the beginning of it", oversized)])
    (counted,) = cli.ok("dlq", "ls", topics.letters, "--json").json()
    shown = cli.ok("dlq", "show", topics.letters, "--waiting", "--json").json_lines()
    assert counted["waiting"] == len(shown) == 6
    report = cli.ok("dlq", "redrive", topics.letters, "--all", "--json").json()
    assert (report["redriven"], report["never_in_a_topic"]) == (6, 1)
    (counted,) = cli.ok("dlq", "ls", topics.letters, "--json").json()
    assert counted["waiting"] == 0
    assert counted["reasons"]["OVERSIZED"]["letters"] == 1


def test_another_topic_gets_what_its_partitions_allow(
    cli: Runner, bootstrap: str, topics: Topics
) -> None:
    other = f"{topics.original}.mended"
    cli.ok("topic", "create", other, "-p", "1")
    text = cli.ok("dlq", "redrive", topics.letters, "--all", "--to", other).text
    assert text == (
        f"6 letters of {topics.letters} sent back: 6 to {other}; "
        "1 record left out that are no dead letters\n"
    )
    assert len(read(bootstrap, other)) == 6
    assert read(bootstrap, topics.original) == []


def test_a_topic_that_is_gone_is_named(cli: Runner, topics: Topics) -> None:
    cli.ok("topic", "rm", topics.original, "--yes")
    refused = cli.run("dlq", "redrive", topics.letters, "--all", "--json")
    assert refused.code == Exit.NOT_FOUND
    assert topics.original in refused.error()["message"]
    assert cli.ok("dlq", "ls", topics.letters, "--json").json()[0]["waiting"] == 6


@pytest.mark.parametrize("arguments", [[], ["--all", "--reason", "X"], ["17"], ["0:x"]])
def test_it_must_be_said_which_letters(cli: Runner, topics: Topics, arguments: list[str]) -> None:
    assert cli.run("dlq", "redrive", topics.letters, *arguments).code == Exit.USAGE


def test_a_topic_created_again_has_new_letters(cli: Runner, bootstrap: str, topics: Topics) -> None:
    cli.ok("dlq", "redrive", topics.letters, "--all")
    cli.ok("topic", "rm", topics.letters, "--yes")
    cli.ok("topic", "create", topics.letters, "-p", "2")
    fresh = headers_of((topics.original, 0, 7), BASE_MS, NOT_JSON, "")
    send(bootstrap, topics.letters, [(b"new", fresh)])
    assert cli.ok("dlq", "redrive", topics.letters, "--all", "--json").json()["redriven"] == 1


def test_kills_neither_lose_nor_double_a_letter(
    cli: Runner, bootstrap: str, topics: Topics, cluster: Cluster
) -> None:
    count = 10_000
    letters = [
        (
            f"more {number}".encode(),
            headers_of((topics.original, number % 2, number), BASE_MS, NOT_JSON, ""),
        )
        for number in range(count)
    ]
    send(bootstrap, topics.letters, letters)
    dice = random.Random(20261115)
    environment = {**os.environ, "HEADWATER_BOOTSTRAP": bootstrap}
    arguments = command("dlq", "redrive", topics.letters, "--all", "--rate", "5000", "--json")
    for _ in range(4):
        before = _size(cluster, topics.original)
        with subprocess.Popen(
            arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as running:
            end_s = time.monotonic() + WAIT_S
            while _size(cluster, topics.original) == before and running.poll() is None:
                assert time.monotonic() < end_s
            # Somewhere within one of the next transactions.
            time.sleep(dice.random() * 0.3)
            running.kill()
            running.communicate()
    done = cli.ok("dlq", "redrive", topics.letters, "--all", "--json").json()
    assert done["redriven"] + done["already"] == count + 6
    assert done["already"] > 0
    found = Counter(each.value for each in read(bootstrap, topics.original))
    assert found == Counter(
        [f"more {number}".encode() for number in range(count)]
        + [f"value {number}".encode() for number in range(6)]
    )


def _size(cluster: Cluster, topic: str) -> int:
    from headwater.delivery.client.admin import LATEST, list_offsets  # noqa: PLC0415

    return sum(list_offsets(cluster, {(topic, 0): LATEST, (topic, 1): LATEST}).values())


def test_the_newer_of_two_wins(cli: Runner, bootstrap: str, topics: Topics) -> None:
    environment = {**os.environ, "HEADWATER_BOOTSTRAP": bootstrap}
    slow = command("dlq", "redrive", topics.letters, "--all", "--rate", "1", "--json")
    with subprocess.Popen(
        slow, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as older:
        end_s = time.monotonic() + WAIT_S
        while not read(bootstrap, topics.original):
            assert time.monotonic() < end_s
        newer = cli.ok("dlq", "redrive", topics.letters, "--all", "--json").json()
        _, told = older.communicate(timeout=WAIT_S)
    assert older.returncode == Exit.FAILED
    assert json.loads(told)["error"]["code"] in {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
    assert newer["redriven"] + newer["already"] == 6
    assert len(read(bootstrap, topics.original)) == 6


class JumpingClock:
    """A clock on which every look takes ten seconds."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        self._now_s += 10.0
        return self._now_s


def test_what_is_remembered_may_take_long_to_read_while_it_comes(
    cli: Runner, topics: Topics, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.ok("dlq", "redrive", topics.letters, "--all")
    begun = time.monotonic()

    class OneByOne(RangeReader):
        """Pretends that there are ten records, each a read of its own, and more to come."""

        left, stuck_at = 10, 0

        @property
        def done(self) -> bool:
            return self.left == 0

        @property
        def offsets_left(self) -> int:
            return self.left

        def read(self, timeout_s: float = 1.0) -> list[Message]:
            assert time.monotonic() < begun + WAIT_S
            self.left = max(self.left - 1, self.stuck_at)
            return []

    monkeypatch.setattr(dlq_progress, "RangeReader", OneByOne)
    monkeypatch.setattr(dlq_progress, "time", JumpingClock())
    redriven = Redriven(cluster.topic(topics.letters))
    redriven.read(cluster, settled=False)
    monkeypatch.setattr(OneByOne, "stuck_at", 3)
    with pytest.raises(HeadwaterError, match="a transaction in __hw_redrive has been open for 30"):
        redriven.read(cluster, settled=False)


def test_retention_may_move_on_while_topics_are_looked_for(
    topics: Topics, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll = OwnConsumer.poll

    def late(consumer: OwnConsumer, timeout_s: float = 1.0) -> list[Message]:
        monkeypatch.setattr(OwnConsumer, "poll", poll)
        admin.delete_records(cluster, {(topics.letters, 0): 1, (topics.letters, 1): 1})
        return consumer.poll(timeout_s)

    monkeypatch.setattr(OwnConsumer, "poll", late)
    assert topics.letters in dead_letter_topics(cluster)


def test_what_is_remembered_is_small() -> None:
    redriven = Redriven(TopicInfo("t.dlq", bytes(16), internal=False, partitions=[]))
    batch = redriven.add(((0, offset) for offset in range(0, 10_000, 2)), now_ms=0)
    assert len(batch) < 100_000
    assert (0, 9_998) in redriven
    assert (0, 9_999) not in redriven
    assert (1, 0) not in redriven
    assert len(redriven.add([(0, 10_000)], now_ms=0)) < 300
