"""Backfills: what they read, where it goes, and what is refused."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.streams.running import definitions
from headwater.streams.running.backfilling import backfill, checkpoint_name
from headwater.streams.running.checkpoints import Checkpoint, check_name
from headwater.streams.running.driver import Driver
from headwater.streams.running.errors import (
    BackfillUnfinishedError,
    DefinitionError,
    PipelineFailedError,
)
from headwater.streams.sink.marker import MARKER_TOPIC
from headwater.testing.broker import EmbeddedBroker
from tests.streams.brokers import HEADWATER, Broker

FILE = """
import headwater as hw
from headwater import functions as hf
from pyspark.sql import SparkSession
orders = (
    SparkSession.getActiveSession()
    .readStream.format("headwater")
    .option("kafka.bootstrap.servers", "{bootstrap}")
    .option("subscribe", "{orders}")
    {start}
    .option("includeHeaders", "true")
    .option("maxOffsetsPerTrigger", "{at_once}")
    .load()
)
rows = orders.transform(hf.json("id int", {wish})).select("id"){then}
target = hw.topic("{written}", options={{"kafka.bootstrap.servers": "{bootstrap}"}})
hw.pipeline("{name}", rows).to(target)
"""
NAME = "n" * 100


class Shop:
    """Orders, of which one is no JSON, and a file with a pipeline for them."""

    NAMES = ("orders", "written", "at_once", "start", "then")

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.broker = folder, broker
        self.at_once = 5
        self.then = ""
        self.start = '.option("startingOffsets", "earliest")'
        self.orders = broker.topic("orders")
        self.written = broker.topic("written")
        self.again = broker.topic("again")
        self.letters = broker.topic("letters")
        values = [b'{"id": 1}', b'{"id": 2}', b'{"id": 3}', b"junk", b'{"id": 5}']
        broker.send(self.orders, [(None, value) for value in values])

    def file(self, wish: str) -> Path:
        path = self.folder / "pipelines.py"
        names = {name: getattr(self, name) for name in self.NAMES}
        path.write_text(FILE.format(bootstrap=self.broker.bootstrap, wish=wish, name=NAME, **names))
        return path

    def ids(self, topic: str) -> list[int]:
        return [json.loads(value or b"")["id"] for value in self.broker.values(topic)]

    def queries_in_mind(self) -> set[bytes | None]:
        """Of which queries the sink has a marker."""
        markers = {each.key(): each.value() for each in self.broker.read(MARKER_TOPIC)}
        return {key for key, value in markers.items() if value is not None}

    def backfill(
        self,
        wish: str,
        *,
        from_ms: int = 0,
        dead_letters: str | None = None,
        on_driver: Callable[[Driver], None] | None = None,
    ) -> object:
        return backfill(
            self.file(wish),
            None,
            from_ms=from_ms,
            into=self.again,
            dead_letters=dead_letters,
            data=str(self.folder),
            on_driver=on_driver,
        )


@pytest.fixture
def shop(spark: SparkSession, embedded_broker: EmbeddedBroker, tmp_path: Path) -> Shop:
    return Shop(tmp_path, Broker(HEADWATER, embedded_broker.bootstrap_servers))


def test_dead_letters_stay_out_of_the_pipelines_own_topic(shop: Shop) -> None:
    """Sent back from there, a record would come twice."""
    wish = f'dead_letters="{shop.letters}"'
    heard: list[tuple[int, int]] = []

    def hear(batch: dict[str, object]) -> None:
        heard.append((int(str(batch["rows"])), int(str(batch["undecodable"]))))

    live = definitions.load(shop.file(wish))
    Driver(live, data=str(shop.folder), once=True, on_batch=hear).start().wait()
    assert shop.ids(shop.written) == [1, 2, 3, 5]
    assert len(shop.broker.read(shop.letters)) == 1
    # The plan reads the source once for rows and once for letters; Spark itself counts ten.
    assert [sum(each) for each in zip(*heard, strict=True)] == [5, 1]

    in_mind = shop.queries_in_mind()
    assert in_mind
    assert shop.backfill(wish) == (NAME, 5, 1, 1)
    assert shop.queries_in_mind() == in_mind, "one that is finished needs no marker"
    assert shop.ids(shop.again) == [1, 2, 3, 5]
    assert len(shop.broker.read(shop.letters)) == 1
    assert shop.ids(shop.written) == [1, 2, 3, 5]

    own = shop.broker.topic("own")
    assert shop.backfill(wish, dead_letters=own) == (NAME, 5, 1, 1)
    (letter,) = shop.broker.read(own)
    assert letter.value() == b"junk"
    assert dict(letter.headers() or [])["x-original-topic"] == shop.orders.encode()
    assert len(shop.broker.read(shop.letters)) == 1
    for taken in (shop.again, shop.written, shop.letters):
        with pytest.raises(DefinitionError, match="has other records"):
            shop.backfill(wish, dead_letters=taken)


def test_another_start_is_not_mistaken_for_the_first(shop: Shop) -> None:
    shop.at_once = 2
    with pytest.raises(PipelineFailedError, match="is not the JSON it should be"):
        shop.backfill('mode="fail"')
    assert shop.ids(shop.again) == [1, 2]
    with pytest.raises(BackfillUnfinishedError, match="began at the beginning is not") as raised:
        shop.backfill('mode="drop"', from_ms=1_700_000_000_000)
    name = checkpoint_name(NAME, shop.again)
    assert "--from @0;" in raised.value.hint
    assert raised.value.hint.endswith(f"headwater pipeline reset {name}")
    assert shop.backfill('mode="drop"') == (NAME, 3, 2, 1)
    assert shop.ids(shop.again) == [1, 2, 3, 5], "what was done is not done again"
    assert not Checkpoint(shop.folder, name).exists()


@pytest.mark.parametrize("start", ["", '.option("startingOffsets", "earliest")'])
def test_it_begins_where_it_is_told_to(shop: Shop, start: str) -> None:
    """Not at the end, as a source that is told nothing does, and not where the file says."""
    shop.start = start
    last_ms = max(each.timestamp()[1] for each in shop.broker.read(shop.orders))
    while time.time_ns() // 1_000_000 <= last_ms + 1:
        time.sleep(0.001)
    shop.broker.send(shop.orders, [(None, b'{"id": 6}')])
    assert shop.backfill('mode="drop"', from_ms=last_ms + 1) == (NAME, 1, 1, 0)
    assert shop.ids(shop.again) == [6]


def test_one_that_is_stopped_goes_on_where_it_was(shop: Shop) -> None:
    with pytest.raises(BackfillUnfinishedError, match="was stopped before its end") as raised:
        shop.backfill('mode="drop"', on_driver=Driver.ask_to_stop)
    assert "--from @0" in raised.value.hint
    assert Checkpoint(shop.folder, checkpoint_name(NAME, shop.again)).state() == "stopped"
    shop.backfill('mode="drop"')
    assert shop.ids(shop.again) == [1, 2, 3, 5]


def test_names_fit_whatever_they_are_made_of() -> None:
    assert checkpoint_name("a", "b") == "a.backfill.b"
    long = {checkpoint_name("p" * 100, "t" * 249), checkpoint_name("p" * 99 + "q", "t" * 249)}
    assert len({check_name(name) for name in long}) == 2


def test_counts_are_filled_back_too(shop: Shop) -> None:
    shop.then = '.groupBy("id").count()'
    assert shop.backfill('mode="drop"') == (NAME, 5, 1, 1)
    found = {each.key(): each.value() for each in shop.broker.read(shop.again)}
    assert found == {b'{"id":%d}' % n: b'{"id":%d,"count":1}' % n for n in (1, 2, 3, 5)}
