"""`headwater log dump`, over our files, Apache Kafka's files, and damaged ones."""

import json
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.record.records import Record, build_batch
from headwater.cli.errors import Exit
from headwater.testing.broker import EmbeddedBroker
from tests import peers
from tests.cli.runner import Runner
from tests.peers.kafka_server import ApacheKafka

GOLDEN = Path(__file__).parent.parent / "log" / "golden" / "plain-0"
FIRST = "00000000000000000000"


def dump(cli: Runner, *files: Path | str) -> list[dict[str, Any]]:
    """Return the entries of files that must be whole."""
    return cli.ok("log", "dump", "--json", *map(str, files)).json_lines()


def test_a_segment_with_its_records(lone_cli: Runner) -> None:
    batches = dump(lone_cli, GOLDEN / f"{FIRST}.log")
    assert {batch["kind"] for batch in batches} == {"batch"}
    offsets = [record["offset"] for batch in batches for record in batch["records"]]
    assert offsets == list(range(181))
    positions = [batch["position"] for batch in batches]
    assert positions == sorted(positions)
    last = batches[-1]
    assert last["position"] + last["size_bytes"] == (GOLDEN / f"{FIRST}.log").stat().st_size


def test_batches_alone(lone_cli: Runner) -> None:
    file = str(GOLDEN / f"{FIRST}.log")
    lines = lone_cli.ok("log", "dump", "--batches", file).lines
    assert all(line.startswith("batch ") for line in lines)
    whole = lone_cli.ok("log", "dump", file).lines
    assert [line for line in whole if not line.startswith("  ")] == lines
    assert len(whole) == len(lines) + 181


@pytest.mark.parametrize("file", sorted(GOLDEN.iterdir()), ids=lambda path: path.name)
def test_every_kind_of_file_of_a_partition(lone_cli: Runner, file: Path) -> None:
    assert dump(lone_cli, file)
    assert lone_cli.ok("log", "dump", str(file)).lines


def test_a_snapshot_and_the_epochs(lone_cli: Runner) -> None:
    producers = dump(lone_cli, GOLDEN / "00000000000000000300.snapshot")
    assert {each["kind"] for each in producers} == {"producer"}
    epochs = dump(lone_cli, GOLDEN / "leader-epoch-checkpoint")
    assert epochs[0]["first_offset"] == 0


def test_the_files_beside_the_partitions(lone_cli: Runner, tmp_path: Path) -> None:
    with EmbeddedBroker(data_directory=str(tmp_path / "data")) as broker:
        address = broker.bootstrap_servers
        lone_cli.ok("topic", "create", "t", "-p", "2", "-b", address)
        lone_cli.ok("produce", "t", "-p", "1", "-b", address, stdin=b"a\nb\n")
        lone_cli.ok("tail", "t", "-e", "--group", "g", "-b", address)
        broker.stop()
    log = tmp_path / "data" / "log"
    points = dump(lone_cli, log / "recovery-point-offset-checkpoint")
    assert [each["offset"] for each in points if each["topic"] == "t"] == [2]
    changes = [each["change"] for each in dump(lone_cli, log / "headwater.journal")]
    assert changes[0] == "image"
    assert "topics_created" in changes
    names = {each["name"] for each in dump(lone_cli, log / "meta.properties")}
    assert "cluster.id" in names
    said = lone_cli.ok("log", "dump", str(log / "__consumer_offsets-0" / f"{FIRST}.log")).text
    assert "group g has read t-1 up to 2" in said
    assert "group g, generation 1: headwater-cli" in said


def test_several_files_are_named(lone_cli: Runner) -> None:
    files = [str(GOLDEN / f"{FIRST}.index"), str(GOLDEN / "partition.metadata")]
    shown = lone_cli.ok("log", "dump", *files).text
    assert all(f"{file}:\n" in shown for file in files)
    assert {each["file"] for each in dump(lone_cli, *files)} == set(files)


def test_a_missing_and_an_unknown_file(lone_cli: Runner, tmp_path: Path) -> None:
    assert lone_cli.run("log", "dump", "no/such.log").code == Exit.NOT_FOUND
    (tmp_path / "notes.txt").write_text("x")
    assert lone_cli.run("log", "dump", "notes.txt").code == Exit.USAGE


def test_an_empty_file_is_no_damage(lone_cli: Runner, tmp_path: Path) -> None:
    (tmp_path / f"{FIRST}.log").touch()
    assert dump(lone_cli, f"{FIRST}.log") == [{"file": f"{FIRST}.log", "kind": "empty"}]


# --- damage -------------------------------------------------------------------------------------


def damage(cli: Runner, file: Path) -> list[dict[str, Any]]:
    """Return the entries of a file that must be damaged."""
    result = cli.run("log", "dump", "--json", str(file))
    assert result.code == Exit.BAD_DATA, result.text
    found = [entry for entry in result.json_lines() if "damage" in entry]
    assert json.loads(result.stderr) == {"summary": {"damaged": len(found)}}
    return found


def test_a_flipped_bit_is_found_and_the_rest_still_read(lone_cli: Runner, tmp_path: Path) -> None:
    file = tmp_path / f"{FIRST}.log"
    content = bytearray((GOLDEN / file.name).read_bytes())
    batches = dump(lone_cli, GOLDEN / file.name)
    second = batches[1]["position"]
    content[second + 70] ^= 1
    file.write_bytes(content)
    (found,) = damage(lone_cli, file)
    assert found["position"] == second
    assert "checksum" in found["damage"]
    assert len(lone_cli.run("log", "dump", "--json", str(file)).json_lines()) == len(batches)


def test_a_torn_tail_is_found(lone_cli: Runner, tmp_path: Path) -> None:
    file = tmp_path / f"{FIRST}.log"
    content = (GOLDEN / file.name).read_bytes()
    last = dump(lone_cli, GOLDEN / file.name)[-1]["position"]
    file.write_bytes(content[:-10])
    (found,) = damage(lone_cli, file)
    assert found["position"] == last
    assert "nothing behind it can be found" in found["damage"]


def test_zeros_behind_the_last_batch_are_room_not_damage(lone_cli: Runner, tmp_path: Path) -> None:
    file = tmp_path / f"{FIRST}.log"
    content = (GOLDEN / file.name).read_bytes()
    file.write_bytes(content + bytes(1000))
    assert dump(lone_cli, file)[-1] == {
        "file": str(file),
        "kind": "unused",
        "position": len(content),
        "size_bytes": 1000,
    }


def test_offsets_that_go_back_are_found(lone_cli: Runner, tmp_path: Path) -> None:
    file = tmp_path / "00000000000000000005.log"
    batches = [
        build_batch([Record(0, 1, None, b"a")], base_offset=offset) for offset in (5, 6, 6, 4)
    ]
    file.write_bytes(b"".join(batches))
    assert [found["base_offset"] for found in damage(lone_cli, file)] == [6, 4]


@pytest.mark.parametrize(
    "name, content, place",
    [
        (f"{FIRST}.index", struct.pack(">iiii", 5, 100, 4, 200), "grow"),
        (f"{FIRST}.index", struct.pack(">ii", 5, 100) + b"xy", "2 are left"),
        (f"{FIRST}.timeindex", struct.pack(">qiqi", 5, 1, 5, 2), "grow"),
        (f"{FIRST}.txnindex", struct.pack(">hqqqq", 9, 1, 1, 1, 1), "version 9"),
        (f"{FIRST}.snapshot", b"\x00\x01garbage", "checksum"),
        ("recovery-point-offset-checkpoint", b"0\n2\norders 0 5\n", "2 lines"),
        ("recovery-point-offset-checkpoint", b"7\n0\n", "version 7"),
        ("leader-epoch-checkpoint", b"0\n1\n5 3\n4 9\n", "epochs"),
        ("headwater.journal", b"\x00\x00\x00\x05broken", "no whole entry"),
    ],
)
def test_damage_in_small_files(
    lone_cli: Runner, tmp_path: Path, name: str, content: bytes, place: str
) -> None:
    (tmp_path / name).write_bytes(content)
    (found,) = damage(lone_cli, tmp_path / name)
    assert place in found["damage"]


def test_an_index_is_held_against_its_log(lone_cli: Runner, tmp_path: Path) -> None:
    shutil.copy(GOLDEN / f"{FIRST}.log", tmp_path)
    size = (GOLDEN / f"{FIRST}.log").stat().st_size
    (tmp_path / f"{FIRST}.index").write_bytes(struct.pack(">ii", 100, size))
    (found,) = damage(lone_cli, tmp_path / f"{FIRST}.index")
    assert f"the .log ends at {size}" in found["damage"]


@given(data=st.data())
def test_no_damage_makes_it_fail(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever a file holds, the answer is its entries or where it is damaged."""
    folder = tmp_path_factory.mktemp("damaged")
    name = data.draw(st.sampled_from([path.name for path in sorted(GOLDEN.iterdir())]))
    content = bytearray((GOLDEN / name).read_bytes())
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, max(0, len(content) - 1)))
        if content and data.draw(st.booleans()):
            content[at] = data.draw(st.integers(0, 255))
        else:
            del content[at : at + data.draw(st.integers(1, 200))]
    file = folder / name
    file.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        result = Runner(patch, folder).run("log", "dump", "--json", str(file))
    assert result.code in {Exit.DONE, Exit.BAD_DATA}
    for line in result.stdout.splitlines():
        json.loads(line)


# --- Apache Kafka's own files and words ---------------------------------------------------------


def test_apache_kafkas_files(lone_cli: Runner, apache_kafka_node: ApacheKafka, name: str) -> None:
    bootstrap = apache_kafka_node.bootstrap
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(50):
        producer.produce(name, f"value-{number}", key=f"key-{number}")
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    consumer.commit(offsets=[TopicPartition(name, 0, 33)], asynchronous=False)
    consumer.close()
    folder = apache_kafka_node.log_dir / f"{name}-0"
    records = [
        record
        for batch in dump(lone_cli, folder / f"{FIRST}.log")
        for record in batch.get("records", ())
    ]
    assert [(record["key"], record["payload"]) for record in records] == [
        (f"key-{number}", f"value-{number}") for number in range(50)
    ]
    for file in folder.iterdir():
        assert lone_cli.ok("log", "dump", str(file)).lines
    offsets = "".join(
        lone_cli.ok("log", "dump", str(file)).text
        for file in apache_kafka_node.log_dir.glob(f"__consumer_offsets-*/{FIRST}.log")
        if file.stat().st_size
    )
    assert f"group {name} has read {name}-0 up to 33" in offsets


@pytest.mark.peer
def test_batches_as_kafkas_own_tool_sees_them(lone_cli: Runner) -> None:
    """The same file, dumped by both: every batch has the same place, size, offsets and producer."""
    file = GOLDEN / f"{FIRST}.log"
    peers.require("kafka")
    text = peers.java("org.apache.kafka.tools.DumpLogSegments", "--files", str(file)).stdout
    theirs = [
        tuple(int(number) for number in match)
        for match in re.findall(
            r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*?producerId: (-?\d+) "
            r".*?position: (\d+) .*?size: (\d+)",
            text,
        )
    ]
    ours = [
        tuple(
            batch[field]
            for field in (
                *("base_offset", "last_offset", "record_count"),
                *("producer_id", "position", "size_bytes"),
            )
        )
        for batch in dump(lone_cli, file)
    ]
    assert theirs
    assert ours == theirs
