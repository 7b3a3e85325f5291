"""``__transaction_state`` is Kafka's: the same history leaves the same records in both brokers."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.base.record.batch import scan
from headwater.base.record.records import iterate
from headwater.delivery.broker.transactions.records import decode_transaction
from headwater.delivery.broker.transactions.transaction import Transaction
from headwater.testing.broker import EmbeddedBroker
from tests import peers
from tests.contracts.kit import APACHE_KAFKA, HEADWATER, Subject, Topic, create_topic
from tests.contracts.producers import OK, Client
from tests.peers.kafka_server import ApacheKafka

RECORD = re.compile(r"key: (?P<key>\{.*?\}) payload: (?P<payload>\{.*\}|<DELETE>|null)?$")

DONE = ("Empty", "CompleteCommit", "CompleteAbort")


def newer_protocol(client: Client, topics: list[Topic]) -> None:
    client.send(topics[0], b"a")
    client.send(topics[1], b"a")
    client.end(commit=True)
    client.wait_for(*DONE)
    client.send(topics[1], b"b")
    client.end(commit=False)
    client.wait_for(*DONE)
    client.end(commit=False)
    client.wait_for(*DONE)


def older_protocol(client: Client, topics: list[Topic]) -> None:
    client.add(topics[0])
    client.add_all({(topic.name, 0) for topic in topics})
    client.end(commit=True, version=4)
    client.wait_for(*DONE)
    client.add(topics[1])
    client.end(commit=False, version=4)
    client.wait_for(*DONE)


def fenced(client: Client, topics: list[Topic]) -> None:
    client.send(topics[0], b"a")
    client.init(timeout_ms=30_000)
    client.init(expected=client.me)
    client.wait_for(*DONE)


def still_open(client: Client, topics: list[Topic]) -> None:
    client.send(topics[1], b"a")


HISTORIES: dict[str, Callable[[Client, list[Topic]], None]] = {
    each.__name__: each for each in (newer_protocol, older_protocol, fenced, still_open)
}


def live(subject: Subject) -> list[Client]:
    """Let every history happen, one after the other."""
    clients = []
    with subject.connect() as talk:
        topics = [create_topic(talk, name=f"state-{number}") for number in range(2)]
        for name, history in HISTORIES.items():
            client = Client(talk, f"state-{name}")
            client.find()
            assert client.init()[0] is OK
            history(client, topics)
            clients.append(client)
            described = client.describe()
            client.me = client.me._replace(
                producer_id=described.producer_id, epoch=described.producer_epoch
            )
    return clients


def dumped(folder: Path, clients: list[Client]) -> dict[str, list[dict[str, Any]]]:
    """All records of our ids, by id, as Kafka's own tool decodes them."""
    files = ",".join(str(path) for path in sorted(folder.glob("__transaction_state-*/*.log")))
    done = peers.java(
        "org.apache.kafka.tools.DumpLogSegments",
        "--deep-iteration",
        "--print-data-log",
        "--transaction-log-decoder",
        "--files",
        files,
    )
    ids = {client.transactional_id: client.me.producer_id for client in clients}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ids}
    for line in done.stdout.splitlines():
        match = RECORD.search(line)
        if match is None:
            continue
        name = json.loads(match["key"])["data"]["transactionalId"]
        if name in found:
            found[name].append(comparable(json.loads(match["payload"]), ids[name]))
    return found


def comparable(payload: dict[str, Any], producer_id: int) -> dict[str, Any]:
    """Leave out when it happened, and which numbers the broker happened to give."""
    data = payload["data"]
    for field in ("producerId", "previousProducerId"):
        assert data.pop(field, producer_id) == producer_id
    began = data.pop("transactionStartTimestampMs")
    updated = data.pop("transactionLastUpdateTimestampMs")
    assert began <= updated
    partitions = data.pop("transactionPartitions")
    if partitions is not None:
        partitions = sorted((each["topic"], sorted(each["partitionIds"])) for each in partitions)
    return {**data, "version": payload["version"], "began": began >= 0, "reached": partitions}


def test_both_write_the_same_records(tmp_path: Path, apache_kafka_node: ApacheKafka) -> None:
    peers.require("kafka")
    with EmbeddedBroker(data_directory=str(tmp_path)) as broker:
        our_clients = live(Subject(HEADWATER, broker.bootstrap_servers))
    their_clients = live(Subject(APACHE_KAFKA, apache_kafka_node.bootstrap))

    ours = dumped(tmp_path / "log", our_clients)
    theirs = dumped(apache_kafka_node.log_dir, their_clients)

    assert set(ours) == {f"state-{name}" for name in HISTORIES}
    assert min(map(len, theirs.values())) > 1
    assert ours == theirs
    check_that_we_read_what_kafka_wrote(apache_kafka_node, their_clients)


def check_that_we_read_what_kafka_wrote(node: ApacheKafka, clients: list[Client]) -> None:
    known: dict[str, Transaction] = {}
    for path in sorted(node.log_dir.glob("__transaction_state-*/*.log")):
        data = path.read_bytes()
        for position, header in scan(data[: written(data)]):
            assert not header.is_control
            for record in iterate(data, position):
                assert record.key is not None
                if record.value is not None:
                    transaction = decode_transaction(record.key, record.value)
                    assert transaction is not None
                    known[transaction.transactional_id] = transaction
    for client in clients:
        found = known[client.transactional_id]
        assert (found.producer_id, found.producer_epoch) == client.me
    assert known["state-still_open"].partitions == {("state-1", 0)}
    assert known["state-still_open"].state.label == "Ongoing"


def written(data: bytes) -> int:
    """Return where the batches end; Kafka may have made room beyond."""
    end = 0
    while end + 12 <= len(data):
        length = int.from_bytes(data[end + 8 : end + 12], "big")
        if not length:
            break
        end += 12 + length
    return end
