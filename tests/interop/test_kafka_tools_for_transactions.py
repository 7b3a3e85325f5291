"""Kafka's tools for transactions: kafka-transactions, and the copier of Kafka's own system tests.

Each expectation holds for Headwater and for Apache Kafka.
"""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests import peers
from tests.interop.clients import WITNESS, Clients
from tests.interop.records import plain
from tests.interop.scenarios import create, read, send
from tests.interop.tools import TOOLS, Run, prints, prints_no_more

TRANSACTIONS = "TransactionsCommand"
PATIENCE_S = 30.0


@pytest.fixture
def producer(clients: Clients, address: str, name: str) -> Iterator[Producer]:
    """A transactional producer with one record in partition 1 of an open transaction."""
    create(clients, address, name, partitions=2)
    config = {"bootstrap.servers": address, "transactional.id": name, "log_level": 0}
    producer = Producer(config)
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(name, b"value", partition=1)
    assert producer.flush(PATIENCE_S) == 0
    yield producer
    producer.purge()


def rows(printed: str) -> list[dict[str, str]]:
    """Read a table with its heading."""
    head, *lines = [line for line in printed.splitlines() if "\t" in line]
    names = [cell.strip() for cell in head.split("\t")]
    return [
        dict(zip(names, (cell.strip() for cell in line.split("\t")), strict=True)) for line in lines
    ]


def listed(run: Run, name: str, *options: str) -> list[str]:
    """Give the state of the transactional id in the list, if it stands there."""
    found = rows(run(TRANSACTIONS, "list", *options))
    return [row["TransactionState"] for row in found if row["TransactionalId"] == name]


def committed(clients: Clients, address: str, topic: str, partition: int = 0) -> list[bytes | None]:
    """Give the values of committed records.

    Behind markers alone a reader waits for more; so one record is written for it to stop at.
    """
    last = replace(plain(1)[0], value=b"last", partition=partition)
    send(clients[WITNESS], address, topic, [last])
    *records, end = read(clients[WITNESS], address, topic, isolation="read_committed")
    assert end.value == b"last"
    return [record.value for record in records]


def test_an_open_transaction_is_shown(run: Run, producer: Producer, name: str) -> None:
    assert listed(run, name) == ["Ongoing"]
    assert listed(run, name, "--duration-filter", "1000000") == []
    assert listed(run, name, "--transactional-id-pattern", f"{name[:4]}.*") == ["Ongoing"]
    assert listed(run, name, "--transactional-id-pattern", "other") == []

    described = rows(run(TRANSACTIONS, "describe", "--transactional-id", name))[0]
    shown = {
        key: described[key]
        for key in ("TransactionalId", "TransactionState", "TopicPartitions", "ProducerEpoch")
    }
    assert shown == {
        "TransactionalId": name,
        "TransactionState": "Ongoing",
        "TopicPartitions": f"{name}-1",
        "ProducerEpoch": "0",
    }
    partition = ("--topic", name, "--partition", "1")
    (writer,) = rows(run(TRANSACTIONS, "describe-producers", *partition))
    assert writer["ProducerId"] == described["ProducerId"]
    assert writer["CurrentTransactionStartOffset"] == "0"
    # Its coordinator knows of it, so that it does not hang.
    assert rows(run(TRANSACTIONS, "find-hanging", "--broker-id", "1")) == []

    producer.commit_transaction(PATIENCE_S)
    (writer,) = rows(run(TRANSACTIONS, "describe-producers", *partition))
    assert writer["CurrentTransactionStartOffset"] == "None"


@pytest.mark.usefixtures("producer")
def test_a_partition_is_freed_by_hand(run: Run, clients: Clients, address: str, name: str) -> None:
    partition = ("--topic", name, "--partition", "1")
    refused = run(TRANSACTIONS, "abort", *partition, "--start-offset", "77", status=1)
    assert f"Could not find any open transactions starting at offset 77 on partition {name}-1" in (
        refused
    )
    run(TRANSACTIONS, "abort", *partition, "--start-offset", "0")
    (writer,) = rows(run(TRANSACTIONS, "describe-producers", *partition))
    assert writer["CurrentTransactionStartOffset"] == "None"
    assert committed(clients, address, name, partition=1) == []


def test_a_transaction_is_ended_by_hand(run: Run, producer: Producer, name: str) -> None:
    run(TRANSACTIONS, "forceTerminateTransaction", "--transactionalId", name)
    assert "Ongoing" not in listed(run, name)
    with pytest.raises(KafkaException) as fenced:
        producer.commit_transaction(PATIENCE_S)
    assert fenced.value.args[0].code() == KafkaError._FENCED


def test_unknown_transactions(run: Run) -> None:
    refused = run(TRANSACTIONS, "describe", "--transactional-id", "nobody", status=1)
    assert "the ID could not be found" in refused


@pytest.fixture(params=[2, 1], ids=["newer-protocol", "older-protocol"])
def transaction_version(request: pytest.FixtureRequest, run: Run) -> Iterator[int]:
    """Let clients speak KIP-890, and what came before it."""
    level: int = request.param
    if level == 1:
        run("FeatureCommand", "downgrade", "--feature", "transaction.version=1")
        prints_no_more(run, "FinalizedVersionLevel: 2 ", "FeatureCommand", "describe")
    yield level
    if level == 1:
        run("FeatureCommand", "upgrade", "--feature", "transaction.version=2")
        prints(run, "FinalizedVersionLevel: 2 ", "FeatureCommand", "describe")


def test_records_are_copied_exactly_once(
    run: Run, clients: Clients, address: str, name: str, transaction_version: int
) -> None:
    peers.require("kafka")
    source, target = f"{name}-source", f"{name}-target"
    create(clients, address, source)
    create(clients, address, target)
    count = 300
    to_source = ("--bootstrap-server", address, "--topic", source, "--max-messages", str(count))
    peers.java(f"{TOOLS}.VerifiableProducer", *to_source)
    copied = peers.java(
        f"{TOOLS}.TransactionalMessageCopier",
        *("--broker-list", address, "--transactional-id", name, "--consumer-group", name),
        *("--input-topic", source, "--input-partition", "0", "--output-topic", target),
        *("--max-messages", str(count), "--transaction-size", "10", "--enable-random-aborts"),
        *("--group-mode", "--use-group-metadata"),
    )
    last = json.loads(copied.stdout.splitlines()[-1])
    assert (last["stage"], last["consumed"], last["remaining"]) == ("ShutdownComplete", count, 0)
    numbers = [str(number).encode() for number in range(count)]
    assert committed(clients, address, target) == numbers
    # Since KIP-890 every end of a transaction raises the epoch.
    (described,) = rows(run(TRANSACTIONS, "describe", "--transactional-id", name))
    assert (int(described["ProducerEpoch"]) > 0) is (transaction_version == 2)
