"""Transactions in ``__consumer_offsets``: Kafka's tool reads ours, and we read Kafka's."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing.broker import EmbeddedBroker
from tests import peers
from tests.contracts.kit import HEADWATER, Subject, Talk, create_topic, unique
from tests.contracts.members import commit, wait_for_coordinator
from tests.contracts.transactional import NONE, Transactional, stable_offset, until
from tests.delivery.broker.groups.world import World
from tests.interop.test_offsets_topic_beside_kafka import dumped, their_records
from tests.peers.kafka_server import ApacheKafka

BATCH = re.compile(
    r"^baseOffset: .*? baseSequence: (?P<sequence>\S+) .*? producerId: (?P<producer>\S+)"
    r" producerEpoch: (?P<epoch>\S+) .*? isTransactional: (?P<transactional>\S+)"
    r" isControl: (?P<control>\S+) .*? isvalid: (?P<valid>\S+)"
)
MARKER = re.compile(r"endTxnMarker: (?P<outcome>\S+)")


class Written:
    """One transaction of each kind, in one group; left as they are."""

    def __init__(self, talk: Talk) -> None:
        self.group = unique("group")
        self.topic = create_topic(talk, partitions=4)
        commit(talk, self.group, self.topic, dict.fromkeys(range(4), (1, -1, "plain")))
        self.committing, self.aborting, self.open = (Transactional(talk) for _ in range(3))
        self.committing.commit(self.group, self.topic, {0: (10, 5, "note"), 3: (10, -1, "")})
        self.aborting.commit(self.group, self.topic, {1: (20, -1, "")})
        self.open.commit(self.group, self.topic, {2: (30, -1, "")})
        # Behind the transaction's record, so that it has the last word on partition 3.
        commit(talk, self.group, self.topic, {3: (7, -1, "")})
        self.producers = [each.producer_id for each in (self.committing, self.aborting, self.open)]
        self.committing.end(committed=True)
        self.aborting.end(committed=False)
        until((10, NONE), lambda: stable_offset(talk, self.group, self.topic))
        until((1, NONE), lambda: stable_offset(talk, self.group, self.topic, partition=1))


def test_kafkas_tool_decodes_our_transactions(tmp_path: Path) -> None:
    peers.require("kafka")
    with (
        EmbeddedBroker(data_directory=str(tmp_path)) as broker,
        Subject(HEADWATER, broker.bootstrap_servers).connect() as talk,
    ):
        written = Written(talk)
    folder = tmp_path / "log"

    records = dumped(folder)

    offsets = [
        (key["data"]["partition"], value["data"]["offset"], value["data"]["metadata"])
        for key, value in records
        if key["type"] == "1" and key["data"]["group"] == written.group and value is not None
    ]
    plain = [(each, 1, "plain") for each in range(4)]
    assert offsets == [*plain, (0, 10, "note"), (3, 10, ""), (1, 20, ""), (2, 30, ""), (3, 7, "")]
    lines = dump(folder)
    batches = [match for line in lines if (match := BATCH.search(line))]
    assert batches
    assert {each["valid"] for each in batches} == {"true"}
    data = [each for each in batches if each["transactional"] == "true" == _not(each["control"])]
    assert [int(each["producer"]) for each in data] == written.producers
    assert {each["sequence"] for each in data} == {"-1"}
    outcomes = [match["outcome"] for line in lines if (match := MARKER.search(line))]
    assert sorted(outcomes) == ["ABORT", "COMMIT"]


def _not(flag: str) -> str:
    return {"true": "false", "false": "true"}[flag]


def dump(folder: Path) -> list[str]:
    """Describe all batches of the offsets topic with Kafka's own tool."""
    files = ",".join(str(path) for path in sorted(folder.glob("__consumer_offsets-*/*.log")))
    done = peers.java(
        "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", files
    )
    return done.stdout.splitlines()


@pytest.fixture
def their_talk(apache_kafka_node: ApacheKafka) -> Iterator[Talk]:
    with Subject("apache-kafka", apache_kafka_node.bootstrap).connect() as talk:
        wait_for_coordinator(talk)
        yield talk


def test_we_load_the_transactions_that_kafka_wrote(
    their_talk: Talk, apache_kafka_node: ApacheKafka
) -> None:
    written = Written(their_talk)
    group, name = written.group, written.topic.name
    world = World(topics=())
    world.add_topic(name)
    topic = world.topics.get(name)
    assert topic is not None
    topic.topic_id = written.topic.topic_id
    their_records(world, apache_kafka_node.log_dir)

    world.restart()

    found = {each: world.committed(each, group=group, topic=name) for each in range(4)}
    assert found == {0: 10, 1: 1, 2: 1, 3: 7}
    pending = [each for each in range(4) if world.is_pending(each, group=group, topic=name)]
    assert pending == [2]
    world.end_transaction(producer=written.open.producer_id, group=group, committed=True)
    assert world.committed(2, group=group, topic=name) == 30
    written.open.end(committed=False)
