"""Every client's every codec, read by every client.

Each client writes one topic per codec; then each reads all topics of all clients in one go. What
is on the disk is asked of Kafka's own tool: a client that silently does not compress is found.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests import peers
from tests.interop.clients import ALL, NEEDS, WITNESS, Clients
from tests.interop.records import Record, plain
from tests.interop.scenarios import create, send

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Several batches, the larger of them beyond the 32 KiB blocks of snappy and the 64 KiB of lz4.
RECORDS = [
    replace(record, value=(record.value or b"") * (40 if number % 50 == 0 else 4))
    for number, record in enumerate(plain(400))
]


PRESENT = [each for each in ALL if each not in NEEDS or peers.missing(NEEDS[each]) is None]


def topic_of(producer: str, codec: str) -> str:
    return f"codec-{producer}-{codec}"


@pytest.fixture(scope="module")
def topics(clients: Clients, bootstrap: str) -> list[str]:
    """Have every client that is there write every codec."""
    names = []
    for producer in PRESENT:
        for codec in CODECS:
            name = topic_of(producer, codec)
            create(clients, bootstrap, name)
            send(clients[producer], bootstrap, name, RECORDS, codec=codec)
            names.append(name)
    return names


@pytest.mark.parametrize("consumer", ALL)
def test_every_codec_of_every_client_is_read(
    clients: Clients, bootstrap: str, topics: list[str], consumer: str
) -> None:
    found = clients[consumer].call("consume", bootstrap=bootstrap, topics=topics)
    wrong = []
    for topic in topics:
        # kcat cannot set a record's time.
        timed = not topic.startswith(topic_of("kcat", ""))
        read = [Record.unpacked(fields) for fields in found[topic]]
        if [_content(each, timed=timed) for each in read] != [
            _content(each, timed=timed) for each in RECORDS
        ]:
            wrong.append(topic)
    assert not wrong
    assert len(topics) == len(PRESENT) * len(CODECS)


def _content(record: Record, *, timed: bool) -> Record:
    return record if timed else replace(record, timestamp_ms=0)


def test_what_is_on_the_disk_is_compressed(topics: list[str], data_directory: Path) -> None:
    peers.require("kafka")
    segments = [data_directory / "log" / f"{topic}-0" / f"{0:020}.log" for topic in topics]
    done = peers.java(
        "org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(map(str, segments))
    )
    by_file = re.split(r"^Dumping ", done.stdout, flags=re.MULTILINE)[1:]
    assert len(by_file) == len(topics)
    found = {
        Path(text.splitlines()[0]).parent.name: set(re.findall(r"compresscodec: (\w+)", text))
        for text in by_file
    }
    assert found == {f"{topic}-0": {topic.rpartition("-")[2]} for topic in topics}


def test_a_topic_may_choose_the_codec(
    clients: Clients, bootstrap: str, name: str, data_directory: Path
) -> None:
    peers.require("kafka")
    create(clients, bootstrap, name, compression_type="lz4")
    for codec in CODECS:
        send(clients[WITNESS], bootstrap, name, RECORDS[:50], codec=codec)
    segment = data_directory / "log" / f"{name}-0" / f"{0:020}.log"
    done = peers.java("org.apache.kafka.tools.DumpLogSegments", "--files", str(segment))
    assert set(re.findall(r"compresscodec: (\w+)", done.stdout)) == {"lz4"}
    found = clients[WITNESS].call("consume", bootstrap=bootstrap, topics=[name])
    assert [Record.unpacked(each) for each in found[name]] == RECORDS[:50] * len(CODECS)
