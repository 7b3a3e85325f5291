"""Records of the topic say what the events say, and stand where any Kafka producer puts them."""

import json
from datetime import datetime

import pytest

from examples.nexmark.generator import Generator
from examples.nexmark.model import Events, Settings
from examples.nexmark.topics import KEYS, KINDS, place, records

PARTITIONS = 3


@pytest.fixture(scope="module")
def generator() -> Generator:
    return Generator(Settings(seed=3, run=10))


@pytest.fixture(scope="module")
def events(generator: Generator) -> Events:
    return generator.events(0, 1000)


def test_a_record_is_its_event(events: Events) -> None:
    placed = place(events, PARTITIONS)
    written = {(row["partition"], row["offset"]): row for row in records(placed).to_pylist()}
    assert len(written) == 1000
    for number, (kind, table) in enumerate(zip(KINDS, placed, strict=True)):
        for row in table.to_pylist():
            record = written[row["partition"], row["offset"]]
            value = json.loads(record["value"])
            assert record["timestamp"] == row.pop("append_time")
            assert record["key"] == str(row[KEYS[kind]]).encode()
            del row["partition"], row["offset"]
            said = value.pop(kind)
            for column in {"date_time", "expires"} & said.keys():
                said[column] = datetime.fromisoformat(said[column])
            assert said == row
            assert list(said) == list(row)
            assert value == {"event_type": number} | dict.fromkeys({*KINDS} - {kind})


def test_records_come_in_the_order_of_the_log(events: Events) -> None:
    one = records(events)
    assert one["offset"].to_pylist() == list(range(1000))
    several = records(place(events, PARTITIONS))
    places = list(zip(several["partition"].to_pylist(), several["offset"].to_pylist(), strict=True))
    assert places == sorted(places)
    assert {partition for partition, _ in places} == set(range(PARTITIONS))


def test_an_auction_and_its_bids_share_a_partition_and_keep_their_order(events: Events) -> None:
    placed = place(events, PARTITIONS)
    homes: dict[int, set[int]] = {}
    order: dict[int, list[tuple[int, int]]] = {}
    for before, after, key in (
        (events.auction, placed.auction, "id"),
        (events.bid, placed.bid, "auction"),
    ):
        for old, new in zip(before.to_pylist(), after.to_pylist(), strict=True):
            homes.setdefault(new[key], set()).add(new["partition"])
            order.setdefault(new["partition"], []).append((old["offset"], new["offset"]))
    assert all(len(partitions) == 1 for partitions in homes.values())
    for places in order.values():
        offsets = [offset for _, offset in sorted(places)]
        assert offsets == sorted(offsets)


def test_offsets_go_on_from_part_to_part(generator: Generator) -> None:
    whole = place(generator.events(0, 1000), PARTITIONS)
    first = place(generator.events(0, 400), PARTITIONS)
    written = records(first)["partition"].to_pylist()
    ends = [written.count(partition) for partition in range(PARTITIONS)]
    second = place(generator.events(400, 600), PARTITIONS, ends)
    for table, begin, rest in zip(whole, first, second, strict=True):
        assert table.to_pylist() == begin.to_pylist() + rest.to_pylist()


def test_nothing_makes_no_records(generator: Generator) -> None:
    assert records(place(generator.events(0, 0), PARTITIONS)).num_rows == 0
