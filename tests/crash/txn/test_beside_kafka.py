"""The same clients against Apache Kafka: what it does is legal, or the checker is wrong."""

import contextlib
import random
import time

import pytest

from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.connection import Connection
from headwater.delivery.wire.kafka import messages
from tests.crash.broker.wire import connect
from tests.crash.txn.actors import GROUP, INPUT, PLACES, TIMEOUT_MS, Actor, Moment
from tests.crash.txn.checker import check
from tests.crash.txn.filtering import take
from tests.crash.txn.history import Ended, Entry, Event, Final, FinalOffset, Place
from tests.crash.txn.scripts import fetch, fetch_offset
from tests.crash.txn.simulation import cast
from tests.peers.kafka_server import running_kafka

pytestmark = [pytest.mark.peer, pytest.mark.timeout(180)]

SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}
STEPS = 800
COORDINATORS = {0: GROUP, 1: "any"}


def find_coordinators(connection: Connection) -> None:
    """Ask until Kafka has made the topics in which it keeps its state."""
    for kind, key in COORDINATORS.items():
        request = messages.FindCoordinatorRequest(key=key, key_type=kind)
        while connection.call(request, version_max=3).error_code:
            time.sleep(0.05)


def read_all(
    connection: Connection, place: Place, *, committed: bool
) -> tuple[tuple[Entry, ...], int, int]:
    request, version = fetch({place: 0}, committed=committed, wait_ms=0)
    (topic,) = connection.call(request, version_max=version).responses
    (data,) = topic.partitions
    aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
    entries, _ = take(bytes(data.records), 0, aborted if committed else None)
    return entries, data.last_stable_offset, data.high_watermark


def look(connection: Connection, place: Place) -> Final:
    """Read a partition when nothing in it is open any more."""
    end_s = time.monotonic() + 10 * TIMEOUT_MS / 1000
    while True:
        committed, stable, end = read_all(connection, place, committed=True)
        if stable == end or time.monotonic() > end_s:
            break
        time.sleep(0.05)
    uncommitted, *_ = read_all(connection, place, committed=False)
    return Final(place, committed, uncommitted, stable, end)


def act(actors: list[Actor], lines: list[Connection], refusals: list[str]) -> list[Event]:
    dice = random.Random(1)
    history: list[Event] = []
    for _ in range(STEPS):
        index = dice.randrange(len(actors))
        moment = Moment(dice, history, time.time_ns() // 1_000_000, refusals)
        asked = actors[index].next(moment)
        if asked is not None:
            answer = lines[index].call(asked[0], version_max=asked[1])
            moment.now_ms = time.time_ns() // 1_000_000
            actors[index].receive(moment, answer)
    return history


def test_a_history_of_apache_kafka_is_legal() -> None:
    refusals: list[str] = []
    actors = cast()
    with running_kafka(SETTINGS) as kafka, contextlib.ExitStack() as open_:
        with Cluster(f"127.0.0.1:{kafka.port}") as cluster:
            for name, partitions in {"a": 2, "b": 1, "in": 1}.items():
                admin.create_topic(cluster, name, partitions=partitions)
        address = ("127.0.0.1", kafka.port)
        lines = [open_.enter_context(connect(address, actor.name)) for actor in actors]
        find_coordinators(lines[0])
        history = act(actors, lines, refusals)
        history += [look(lines[0], place) for place in PLACES]
        request, version = fetch_offset(GROUP, INPUT)
        (topic,) = lines[0].call(request, version_max=version).topics
        (partition,) = topic.partitions
        history.append(FinalOffset(GROUP, INPUT, partition.committed_offset))
    assert sum(isinstance(event, Ended) for event in history) > 20
    assert check(history) == []
    assert refusals == []
