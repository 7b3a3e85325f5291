"""A handful of rounds, and the proof that they would notice a sync that is missing."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.base.record.batch import parse_header, scan
from headwater.base.record.records import Record, build_batch
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.producer import Producer
from headwater.testing.broker import EmbeddedBroker
from tests.crash.broker.campaign import Campaign
from tests.crash.broker.judge import judge
from tests.crash.broker.life import Life
from tests.crash.broker.machine import BrokenPromisesError
from tests.crash.broker.plan import KINDS, plan
from tests.crash.broker.promises import LOOSE, SHRINKING, Ledger, TopicState
from tests.crash.broker.wire import Fetched

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

NAME = "tests.crash.broker"
ROUNDS = 5
SEED = 4


def test_nothing_that_was_promised_is_broken(tmp_path: Path) -> None:
    campaign = Campaign(NAME, Life, tmp_path, SEED, ROUNDS)
    try:
        campaign.run()
    except BrokenPromisesError as error:
        pytest.fail(f"{error}\nrepeat: {campaign.repeat}")
    found = campaign.tally.as_json()
    assert found["rounds"] == ROUNDS
    assert found["kills"] + found["graceful"] >= ROUNDS
    assert found["acked"] > 100
    assert found["lost"] == found["doubled"] == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "lie, broken",
    [
        pytest.param(r"/[a-z_]+-\d$", {"lost"}, id="the names of segments"),
        pytest.param(r"headwater\.journal$", {"lost topic", "metadata"}, id="the journal"),
    ],
)
def test_a_sync_that_is_missing_is_noticed(tmp_path: Path, lie: str, broken: set[str]) -> None:
    campaign = Campaign(NAME, Life, tmp_path, SEED, ROUNDS, lie=lie, cut="nothing")
    with pytest.raises(BrokenPromisesError):
        campaign.run()
    assert broken & set(campaign.tally.broken), campaign.tally.broken
    assert f"--seed {SEED} --first 1 --rounds" in campaign.repeat


def test_the_command_line_tells_what_was_broken_and_keeps_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.crash.broker", "--seed", str(SEED), "--rounds", "3"]
    more = ["--lie", r"\.log$", "--directory", str(tmp_path / "kept")]
    ended = subprocess.run(command + more, capture_output=True, text=True, check=False, timeout=200)
    lines = ended.stdout.splitlines()
    assert ended.returncode == 1, ended.stderr
    assert lines[0] == f"seed {SEED}, working in {tmp_path / 'kept'}"
    assert lines[-2].startswith(f"repeat: python -m tests.crash.broker --seed {SEED} --first 1")
    # What was lost may have others' records in its place before anybody looks.
    assert {"lost", "changed"} & set(json.loads(lines[-1])["broken"])
    assert (tmp_path / "kept").is_dir()


def test_a_plan_follows_from_seed_and_number() -> None:
    plans = [plan(7, number) for number in range(1, 500)]
    assert plans == [plan(7, number) for number in range(1, 500)]
    assert {each.end for each in plans} == {"kill", "at", "kind", "term", "late"}
    assert {each.kill_kind for each in plans} == set(KINDS)
    assert {each.cut for each in plans} == {"nothing", "some", "all"}
    assert {len(each.recovery_kills) for each in plans} == {0, 1, 2}
    assert plans != [replace(each, number=each.number) for each in map(plan, [8] * 499, range(500))]


@pytest.mark.parametrize("kept", [0, 1])
def test_partitions_that_are_missing_are_told_and_not_asked_for(kept: int) -> None:
    ledger = Ledger()
    ledger.topics["a"] = TopicState(2, frozenset())
    with EmbeddedBroker() as broker, Cluster(broker.bootstrap_servers) as cluster:
        if kept:
            admin.create_topic(cluster, "a", partitions=kept)
        host, port = broker.bootstrap_servers.split(":")
        judge((host, int(port)), ledger)
    assert [kind for kind, _ in ledger.broken] == ["metadata" if kept else "lost topic"]


def test_records_that_cannot_be_read_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger()
    ledger.topics["a"] = TopicState(1, frozenset())
    with EmbeddedBroker() as broker, Cluster(broker.bootstrap_servers) as cluster:
        admin.create_topic(cluster, "a", partitions=1)
        with Producer(cluster) as producer:
            producer.send("a", b"x" * 100)
        (value,) = ledger.values(("a", 0), 1, [0])
        ledger.acknowledge(("a", 0), 0, [value], durable=True)
        # As if the broker sent what a disk that lied has left of it.
        monkeypatch.setattr(Fetched, "batches", lambda fetched: scan(bytes(len(fetched.records))))
        host, port = broker.bootstrap_servers.split(":")
        judge((host, int(port)), ledger)
    assert [kind for kind, _ in ledger.broken] == ["lost"]
    assert ledger.counts["lost"] == 1


class Book:
    """A ledger with one topic, and what is shown to it."""

    def __init__(self, habit: str = "fixed") -> None:
        self.ledger = Ledger()
        self.place = ("a", 0)
        self.ledger.topics["a"] = TopicState(1, frozenset(), habit=habit)

    def values(self, count: int) -> list[bytes]:
        return self.ledger.values(self.place, count, [0] * count)

    def show(self, base_offset: int, values: list[bytes]) -> None:
        batch = build_batch([Record(0, 0, None, value) for value in values])
        batch[0:8] = base_offset.to_bytes(8, "big")
        self.ledger.show(self.place, parse_header(batch), bytes(batch))

    def broken(self) -> list[str]:
        return [kind for kind, _ in self.ledger.broken]


def test_the_ledger_notices_a_record_that_changed() -> None:
    book = Book()
    one, two = book.values(2)
    book.ledger.acknowledge(book.place, 5, [one], durable=True)
    book.show(5, [one])
    assert book.broken() == []
    book.show(5, [two])
    assert book.broken() == ["changed"]


def test_the_ledger_notices_an_acknowledged_record_that_was_never_there() -> None:
    book = Book()
    one, two = book.values(2)
    book.show(5, [two])
    book.ledger.acknowledge(book.place, 5, [one], durable=True)
    assert book.broken() == ["changed"]


def test_the_ledger_notices_a_record_that_is_twice() -> None:
    book = Book()
    (one,) = book.values(1)
    book.show(5, [one])
    book.show(6, [one])
    assert book.broken() == ["doubled"]


def test_the_ledger_notices_a_record_that_nobody_sent() -> None:
    book = Book()
    book.show(0, [b"stranger"])
    assert book.broken() == ["unknown"]


def test_what_was_not_acknowledged_by_all_is_no_promise() -> None:
    book = Book(LOOSE)
    one, two = book.values(2)
    book.ledger.acknowledge(book.place, 0, [one], durable=True)
    book.show(0, [one])
    book.ledger.crash()
    book.show(0, [two])
    assert book.broken() == []
    assert book.ledger.bounds(book.place) == (0, 0)


def test_the_ledger_notices_ids_that_are_given_twice() -> None:
    book = Book(SHRINKING)
    book.ledger.producer_id(3)
    book.ledger.producer_id(3)
    book.ledger.identify("a", b"1")
    book.ledger.identify("a", b"2")
    assert book.broken() == ["repeated", "metadata"]
