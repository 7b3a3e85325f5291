"""`headwater produce` and `headwater tail`, each judged by a foreign client."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from headwater.cli.errors import Exit
from headwater.delivery.client.partitioner import partition_for_key
from headwater.delivery.wire.kafka import messages
from tests.cli.runner import Runner
from tests.delivery.client.scripted_broker import ScriptedBroker, one_node

METADATA, INIT_PRODUCER_ID = 3, 22


def write(bootstrap: str, topic: str, records: Sequence[dict[str, Any]]) -> None:
    """Write records with librdkafka."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for record in records:
        producer.produce(topic, **record)
    assert producer.flush(30) == 0


def read(bootstrap: str, topic: str, partition: int, count: int) -> list[Message]:
    """Read the first records of a partition with librdkafka."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    try:
        found: list[Message] = []
        while len(found) < count:
            found += consumer.consume(count - len(found), timeout=30)
        return found
    finally:
        consumer.close()


def lines(*texts: str) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


# --- writing ------------------------------------------------------------------------------------


def test_produce_writes_a_record_per_line(cli: Runner, bootstrap: str, name: str) -> None:
    cli.ok("topic", "create", name)
    result = cli.ok("produce", name, stdin=b"first\n\nlast without a newline")
    assert result.stdout == b""
    assert "wrote 3 records" in result.stderr
    found = read(bootstrap, name, 0, 3)
    assert [message.value() for message in found] == [b"first", b"", b"last without a newline"]
    assert [message.key() for message in found] == [None] * 3


def test_produce_gives_every_record_the_key_and_headers(
    cli: Runner, bootstrap: str, name: str
) -> None:
    cli.ok("topic", "create", name)
    cli.ok("produce", name, "-k", "k", "-H", "a=1", "-H", "b=x=y", stdin=b"v\n")
    (message,) = read(bootstrap, name, 0, 1)
    assert message.key() == b"k"
    assert message.headers() == [("a", b"1"), ("b", b"x=y")]


def test_keys_go_where_other_clients_expect_them(cli: Runner, bootstrap: str, name: str) -> None:
    cli.ok("topic", "create", name, "-p", "3")
    keys = [f"key-{number}" for number in range(20)]
    cli.ok("produce", name, "--key-separator", "::", stdin=lines(*(f"{key}::v" for key in keys)))
    shares = [[key for key in keys if partition_for_key(key.encode(), 3) == at] for at in range(3)]
    for partition, share in enumerate(shares):
        found = read(bootstrap, name, partition, len(share))
        assert [message.key() for message in found] == [key.encode() for key in share]


def test_produce_can_write_tombstones_and_choose_a_partition(
    cli: Runner, bootstrap: str, name: str
) -> None:
    cli.ok("topic", "create", name, "-p", "2")
    cli.ok("produce", name, "-p", "1", "-k", "k", "-Z", stdin=b"\n")
    (message,) = read(bootstrap, name, 1, 1)
    assert message.value() is None


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_compression_and_acks_arrives(
    cli: Runner, bootstrap: str, name: str, compression: str, acks: str
) -> None:
    cli.ok("topic", "create", name)
    text = lines(*(f"line {number}" for number in range(100)))
    cli.ok("produce", name, "--compression", compression, "--acks", acks, stdin=text)
    found = read(bootstrap, name, 0, 100)
    assert b"".join(b"%s\n" % message.value() for message in found) == text


def test_a_bad_line_is_named_and_those_before_it_are_written(cli: Runner, name: str) -> None:
    cli.ok("topic", "create", name)
    result = cli.run("produce", name, "--key-separator", ":", stdin=b"a:1\nb:2\nno key\nd:4\n")
    assert result.code == Exit.BAD_DATA
    assert "line 3" in result.stderr
    assert cli.ok("tail", name, "-e").lines == ["1", "2"]


def test_a_record_that_is_too_large_is_bad_data(cli: Runner, name: str) -> None:
    cli.ok("topic", "create", name, "-c", "max.message.bytes=2000")
    result = cli.run("produce", name, stdin=b"x" * 5000 + b"\n")
    assert result.code == Exit.BAD_DATA
    assert f"headwater topic config {name} max.message.bytes=" in result.stderr


def test_a_line_without_an_end_is_named_and_those_before_it_are_written(
    cli: Runner, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.cli.produce._LINE_BYTES_MAX", 600_000)
    cli.ok("topic", "create", name)
    refused = cli.run("produce", name, stdin=b"one\n" + b"y" * 600_000 + b"\n" + b"x" * 900_000)
    assert refused.code == Exit.BAD_DATA
    assert "line 3: more than 600,000 bytes" in refused.stderr
    assert "the 2 before it are written" in refused.stderr
    assert [len(line) for line in cli.ok("tail", name, "-e").lines] == [3, 600_000]


def acknowledged(stderr: str) -> int:
    found = re.search(r"after line \d+; ([\d,]+) records? acknowledged", stderr)
    assert found, stderr
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize("too_large_at", [0, 1, 2])
def test_what_a_refused_record_leaves_behind_is_counted(
    cli: Runner, name: str, too_large_at: int
) -> None:
    """Whichever partition refuses: the count is what is in the log."""
    cli.ok("topic", "create", name, "-p", "3", "-c", "max.message.bytes=2000")

    def records(*sizes: int) -> bytes:
        return lines(
            *(json.dumps({"partition": at, "payload": "x" * size}) for at, size in enumerate(sizes))
        )

    # A partition of Apache Kafka that is not ready yet would be asked again, alone.
    cli.ok("produce", name, "--json", "--keep-partitions", stdin=records(5, 5, 5))
    sizes = [5_000 if number == too_large_at else 5 for number in range(3)]
    refused = cli.run("produce", name, "--json", "--keep-partitions", stdin=records(*sizes))
    assert refused.code == Exit.BAD_DATA
    assert f"headwater tail {name}" in refused.error()["hint"]
    written = cli.ok("tail", name, "-e").lines
    assert acknowledged(refused.stderr) == len(written) - 3 == 2


def test_what_was_sent_before_the_last_flush_is_counted(cli: Runner, name: str) -> None:
    """The producer sends by itself when enough waits; that counts too, and only once."""
    cli.ok("topic", "create", name, "-c", "max.message.bytes=1000000")
    good = ["y" * 400_000] * 25
    refused = cli.run("produce", name, stdin=lines(*good, "x" * 1_200_000, "after"))
    assert refused.code == Exit.BAD_DATA
    written = cli.ok("tail", name, "-e").lines
    assert acknowledged(refused.stderr) == len(written)
    assert 20 <= len(written) <= 25


def test_what_a_broker_took_before_it_fell_silent_is_counted(
    lone_cli: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = 0

    def answer(key: int, version: int, request: Any) -> Any:  # noqa: ANN401 - any message
        nonlocal taken
        if key == METADATA:
            return one_node(broker.port, "t")
        if key == INIT_PRODUCER_ID:
            return messages.InitProducerIdResponse(producer_id=1, producer_epoch=0)
        taken += 1
        response = messages.ProduceResponse
        partition = response.PartitionProduceResponse(index=0, base_offset=0)
        topic = response.TopicProduceResponse(name="t", partition_responses=[partition])
        return response(responses=[topic]) if taken == 1 else None

    with ScriptedBroker(answer) as broker:
        monkeypatch.setenv("HEADWATER_BOOTSTRAP", broker.address)
        # Too large for one batch: the first is acknowledged, the second never.
        text = lines(*["y" * 300_000] * 2)
        result = lone_cli.run("produce", "t", "--timeout", "1", stdin=text)

    assert result.code == Exit.UNREACHABLE
    assert acknowledged(result.stderr) == 1


def test_produce_creates_only_when_told_to(cli: Runner, name: str) -> None:
    assert cli.run("produce", name, stdin=b"a\n").code == Exit.NOT_FOUND
    cli.ok("produce", name, "--create", stdin=b"a\n")
    assert cli.ok("tail", name, "-e").lines == ["a"]


def test_produce_json_says_what_is_wrong(cli: Runner, name: str) -> None:
    cli.ok("topic", "create", name)
    for line, reason in (
        (b"not json", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"payload": "a", "colour": 1}', "unknown field 'colour'"),
        (b'{"payload_b64": "***"}', "not base64"),
        (b'{"headers": ["a"]}', "flat list"),
        (b'{"ts": "now"}', "whole number"),
    ):
        result = cli.run("produce", name, "--json", stdin=line + b"\n")
        assert result.code == Exit.BAD_DATA
        assert reason in result.error()["message"]


def test_a_payload_may_be_json_itself(cli: Runner, bootstrap: str, name: str) -> None:
    cli.ok("topic", "create", name)
    report = cli.ok("produce", name, "--json", stdin=b'{"key": "k", "payload": {"a": [1, 2]}}\n')
    assert report.json() == {"topic": name, "records": 1, "partitions": {"0": 1}}
    (message,) = read(bootstrap, name, 0, 1)
    assert message.value() == b'{"a":[1,2]}'


# --- reading ------------------------------------------------------------------------------------


def test_tail_json_has_the_fields_of_kcat(cli: Runner, bootstrap: str, name: str) -> None:
    cli.ok("topic", "create", name)
    headers = [("a", b"1"), ("a", b"2"), ("none", None)]
    write(
        bootstrap,
        name,
        [
            {"value": "ä", "key": "k", "headers": headers, "timestamp": 1_700_000_000_123},
            {"value": b"\xff\x00", "key": b"\xfe"},
            {"value": None, "key": None, "headers": [("bin", b"\xff")]},
        ],
    )
    first, second, third = cli.ok("tail", name, "-e", "--json").json_lines()
    assert first == {
        "topic": name,
        "partition": 0,
        "offset": 0,
        "tstype": "create",
        "ts": 1_700_000_000_123,
        "broker": 1,
        "headers": ["a", "1", "a", "2", "none", None],
        "key": "k",
        "payload": "ä",
    }
    assert (second["key_b64"], second["payload_b64"]) == ("/g==", "/wA=")
    assert "key" not in second
    assert third["key"] is None
    assert third["payload"] is None
    assert third["headers_b64"] == ["bin", "/w=="]


def test_tail_json_into_produce_json_loses_nothing(cli: Runner, bootstrap: str, name: str) -> None:
    source, target = f"{name}-a", f"{name}-b"
    cli.ok("topic", "create", source, target, "-p", "3")
    write(
        bootstrap,
        source,
        [
            {
                "value": bytes([number, 255 - number]),
                "key": f"key-{number}",
                "headers": [("h", bytes([number]))],
                "timestamp": 1_600_000_000_000 + number,
            }
            for number in range(200)
        ]
        + [{"value": None, "key": "gone"}, {"value": "", "key": ""}],
    )
    text = cli.ok("tail", source, "-e", "--json").stdout
    cli.ok("produce", target, "--json", "--keep-partitions", stdin=text)

    def content(topic: str) -> list[dict[str, object]]:
        records = cli.ok("tail", topic, "-e", "--json").json_lines()
        return sorted(
            ({**record, "topic": ""} for record in records),
            key=lambda record: (record["partition"], record["offset"]),
        )

    assert content(target) == content(source)
    assert len(content(target)) == 202


def test_tail_takes_a_format(cli: Runner, bootstrap: str, name: str) -> None:
    cli.ok("topic", "create", name)
    write(
        bootstrap,
        name,
        [{"value": "v", "key": "k", "headers": [("a", b"1")], "timestamp": 1_700_000_000_123}],
    )
    text = r"%t/%p@%o\t%k=%s %T %D %h %S %K %%\n"
    assert cli.ok("tail", name, "-e", "-f", text).text == (
        f"{name}/0@0\tk=v 1700000000123 2023-11-14T22:13:20.123Z a=1 1 1 %\n"
    )
    assert cli.run("tail", name, "-e", "-f", "%q").code == Exit.USAGE


@pytest.fixture
def numbers(cli: Runner, bootstrap: str, name: str) -> str:
    """Give a topic with the numbers 0 to 9, a minute apart, up to a minute ago."""
    cli.ok("topic", "create", name)
    now_ms = time.time_ns() // 1_000_000
    write(
        bootstrap,
        name,
        [
            {"value": str(number), "timestamp": now_ms - (10 - number) * 60_000}
            for number in range(10)
        ],
    )
    return name


@pytest.mark.parametrize(
    "bounds, expected",
    [
        (["-e"], range(10)),
        (["--from", "beginning", "--to", "end"], range(10)),
        (["--from", "4", "-e"], range(4, 10)),
        (["--from", "-3", "-e"], range(7, 10)),
        (["--from", "-100", "-e"], range(10)),
        (["--from", "-210s", "-e"], range(7, 10)),
        (["--from", "-3m30s", "-e"], range(7, 10)),
        (["--to", "4"], range(4)),
        (["--from", "2", "--to", "5"], range(2, 5)),
        (["--from", "-450s", "--to", "-210s"], range(3, 7)),
        (["--from", "5", "--to", "2"], range(0)),
        (["--from", "end", "-e"], range(0)),
        (["-e", "-n", "3"], range(3)),
        (["--from", "0", "-n", "2"], range(2)),
    ],
)
def test_tail_shows_exactly_the_range(
    cli: Runner, numbers: str, bounds: list[str], expected: range
) -> None:
    shown = cli.ok("tail", numbers, *bounds)
    assert shown.lines == [str(number) for number in expected]


def test_tail_by_moment(cli: Runner, numbers: str) -> None:
    moment_ms = cli.ok("tail", numbers, "--from", "6", "-n", "1", "--json").json()["ts"]
    shown = cli.ok("tail", numbers, "--from", f"@{moment_ms}", "-e")
    assert shown.lines == ["6", "7", "8", "9"]
    iso = cli.ok("tail", numbers, "--from", "6", "-n", "1", "-f", "%D").text
    assert cli.ok("tail", numbers, "--from", iso, "-e").lines == ["6", "7", "8", "9"]


def test_tail_says_what_it_did_not_show(cli: Runner, numbers: str) -> None:
    assert cli.ok("tail", numbers, "-e").stderr == f"10 records of {numbers}\n"
    assert "there may be more" in cli.ok("tail", numbers, "-e", "-n", "2").stderr
    where = cli.ok("tail", numbers, "-e", "--where", "value > 7")
    assert where.lines == ["8", "9"]
    assert where.stderr == f"2 records of {numbers}; 10 scanned\n"
    assert cli.ok("tail", numbers, "-e", "-q").stderr == ""


def test_beside_json_there_is_only_json(cli: Runner, numbers: str) -> None:
    cli.ok("topic", "trim", numbers, "--before", "4", "--yes")
    shown = cli.ok(
        "tail", numbers, "--from", "1", "-e", "--json", "--where", "value > 4", "-n", "2"
    )
    assert [record["offset"] for record in shown.json_lines()] == [5, 6]
    note, summary = map(json.loads, shown.stderr.splitlines())
    assert note == {"note": f"{numbers}-0 has offsets 4 to 10: 1 became 4"}
    facts = summary["summary"]
    assert facts.pop("scanned") >= 3
    assert facts == {"topics": [numbers], "records": 2, "stopped_at_limit": True, "lost": 0}
    assert cli.ok("tail", numbers, "-e", "--json", "-q").stderr == ""


def test_an_offset_that_is_gone_is_reported(cli: Runner, numbers: str) -> None:
    cli.ok("topic", "trim", numbers, "--before", "4", "--yes")
    shown = cli.ok("tail", numbers, "--from", "1", "-e")
    assert shown.lines == ["4", "5", "6", "7", "8", "9"]
    assert f"{numbers}-0 has offsets 4 to 10: 1 became 4" in shown.stderr


def test_tail_of_one_partition_and_of_several_topics(cli: Runner, name: str) -> None:
    cli.ok("topic", "create", f"{name}-a", f"{name}-b", "-p", "2")
    cli.ok("produce", f"{name}-a", "-p", "1", stdin=b"a1\n")
    cli.ok("produce", f"{name}-b", "-p", "0", stdin=b"b0\n")
    assert cli.ok("tail", f"{name}-a", "-p", "1", "-e").lines == ["a1"]
    assert cli.ok("tail", f"{name}-a", "-p", "0", "-e").lines == []
    assert sorted(cli.ok("tail", f"{name}-a", f"{name}-b", "-e").lines) == ["a1", "b0"]
    assert cli.run("tail", f"{name}-a", "-p", "7", "-e").code == Exit.USAGE


def test_a_group_goes_on_where_it_was(cli: Runner, numbers: str) -> None:
    as_member = ["tail", numbers, "--group", numbers, "--from", "beginning", "-e"]
    assert cli.ok(*as_member, "-n", "4").lines == ["0", "1", "2", "3"]
    assert cli.ok(*as_member).lines == ["4", "5", "6", "7", "8", "9"]
    assert cli.ok(*as_member).lines == []
    assert cli.run("tail", numbers, "--group", numbers, "--from", "3").code == Exit.USAGE


def test_options_that_exclude_each_other(cli: Runner, numbers: str) -> None:
    for arguments in (
        ["-e", "--to", "end"],
        ["-e", "--json", "-v"],
        ["-e", "--from", "yesterday"],
        ["--group", "g", "-p", "0"],
    ):
        assert cli.run("tail", numbers, *arguments).code == Exit.USAGE


# --- as processes -------------------------------------------------------------------------------


def start(*arguments: str, **more: Any) -> subprocess.Popen[bytes]:  # noqa: ANN401 - Popen's
    program = "import sys; from headwater.cli import main; sys.exit(main())"
    return subprocess.Popen([sys.executable, "-c", program, *arguments], **more)


def test_what_is_typed_arrives_at_once(cli: Runner, numbers: str) -> None:
    """A follower sees a line while its writer's standard input is still open."""
    follower = start("tail", numbers, "--from", "beginning", "-q", stdout=subprocess.PIPE)
    writer = start("produce", numbers, "-q", stdin=subprocess.PIPE)
    try:
        assert writer.stdin is not None
        assert follower.stdout is not None
        assert [follower.stdout.readline() for _ in range(10)][-1] == b"9\n"
        for text in (b"one\n", b"two\n"):
            writer.stdin.write(text)
            writer.stdin.flush()
            assert follower.stdout.readline() == text
    finally:
        for process in (writer, follower):
            process.terminate()
            process.communicate()


def test_an_interrupted_tail_sums_up(cli: Runner, numbers: str) -> None:
    follower = start(
        "tail", numbers, "--from", "beginning", stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert follower.stdout is not None
    assert [follower.stdout.readline() for _ in range(10)][-1] == b"9\n"
    follower.send_signal(2)
    _, errors = follower.communicate(timeout=30)
    assert follower.returncode == Exit.INTERRUPTED
    assert errors == f"10 records of {numbers}\n".encode()


def test_a_reader_who_has_seen_enough_is_no_error(cli: Runner, name: str, tmp_path: Path) -> None:
    cli.ok("topic", "create", name)
    cli.ok("produce", name, stdin=b"x" * 1000 * 1000)
    cli.ok("produce", name, stdin=lines(*["y" * 1000] * 2000))
    reader, writer = os.pipe()
    process = start("tail", name, "-e", "--json", stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert json.loads(pipe.readline())["offset"] == 0
    _, errors = process.communicate(timeout=60)
    assert errors == b""
    assert process.returncode == Exit.OUTPUT_CLOSED
