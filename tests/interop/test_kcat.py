"""kcat of Debian: an old librdkafka, as many machines still have it.

This librdkafka compresses only where it sees the oldest versions of Produce; that it really does
is checked in `test_compression`.
"""

import json
from typing import ClassVar

import pytest

from tests import peers
from tests.interop import kcat, scenarios
from tests.interop.clients import WITNESS, Clients
from tests.interop.records import Record, peculiar, plain
from tests.interop.scenarios import create, read, send
from tests.interop.test_transactions import Producer, committed, finish


@pytest.fixture(autouse=True)
def _present() -> None:
    peers.require("kcat")


class TestKcat(scenarios.AutoCreation):
    client = "kcat"
    # It stamps records itself, with the time of sending.
    keeps_times = False
    impatience: ClassVar[dict[str, object]] = {"message.timeout.ms": 2_000}


def test_what_it_sends(clients: Clients, bootstrap: str, name: str) -> None:
    create(clients, bootstrap, name)
    sent = plain(200)
    kcat.produce(bootstrap, name, [record.packed() for record in sent])
    found = read(clients[WITNESS], bootstrap, name)
    assert [(each.key, each.value) for each in found] == [(each.key, each.value) for each in sent]


def test_nulls_and_headers_it_sends(clients: Clients, bootstrap: str, name: str) -> None:
    create(clients, bootstrap, name)
    flags = ("-P", "-b", bootstrap, "-t", name, "-K", ":", "-Z", "-H", "a=1", "-H", "a=2")
    kcat.run(*flags, stdin=b"key:\n:value\n:\n")
    headers = (("a", b"1"), ("a", b"2"))
    found = read(clients[WITNESS], bootstrap, name)
    assert [(each.key, each.value, each.headers) for each in found] == [
        (b"key", None, headers),
        (None, b"value", headers),
        (None, None, headers),
    ]


def test_what_it_reads(clients: Clients, bootstrap: str, name: str) -> None:
    create(clients, bootstrap, name)
    # Its own notation of headers knows neither null nor arbitrary bytes.
    sent = [
        Record(each.key, each.value, _printable(each), each.timestamp_ms) for each in peculiar()
    ]
    send(clients[WITNESS], bootstrap, name, sent)
    assert read(clients["kcat"], bootstrap, name) == sent


def _printable(record: Record) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((key, (value or b"")[:1]) for key, value in record.headers if key != "ünï")


def test_metadata(clients: Clients, bootstrap: str, name: str) -> None:
    create(clients, bootstrap, name, partitions=3)
    known = json.loads(kcat.run("-L", "-J", "-b", bootstrap, "-t", name))
    (topic,) = known["topics"]
    assert known["brokers"] == [{"id": 1, "name": bootstrap}]
    assert (topic["topic"], len(topic["partitions"])) == (name, 3)


def test_offsets_by_time(clients: Clients, bootstrap: str, name: str) -> None:
    create(clients, bootstrap, name)
    records = plain(10)
    send(clients[WITNESS], bootstrap, name, records)
    asked = f"{name}:0:{records[3].timestamp_ms - 1}"
    assert kcat.run("-Q", "-b", bootstrap, "-t", asked).decode().strip() == f"{name} [0] offset 3"


@pytest.mark.parametrize("start, first", [("beginning", 0), ("-3", 7), ("4", 4)])
def test_where_it_starts(
    clients: Clients, bootstrap: str, name: str, start: str, first: int
) -> None:
    create(clients, bootstrap, name)
    send(clients[WITNESS], bootstrap, name, plain(10))
    flags = ("-C", "-b", bootstrap, "-t", name, "-o", start, "-e", "-q", "-f", r"%o\n")
    assert kcat.run(*flags).split() == [b"%d" % offset for offset in range(first, 10)]


def test_it_reads_what_was_committed(clients: Clients, bootstrap: str, name: str) -> None:
    create(clients, bootstrap, name)
    producer = Producer(clients[WITNESS], bootstrap, name)
    producer.transaction(name, "a", "b")
    producer.transaction(name, "x", commit=False)
    producer.transaction(name, "c")
    producer.close()
    finish(clients, bootstrap, name)

    assert committed(clients, "kcat", bootstrap, name) == ["a", "b", "c"]
