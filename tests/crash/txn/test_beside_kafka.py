"""The same clients against Apache Kafka: what it does is legal, or the checker is wrong."""

import contextlib
import random
import time
from functools import partial
from typing import Any

import pytest

from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.connection import Connection
from headwater.delivery.wire.kafka import messages
from tests import peers
from tests.crash.broker.wire import connect
from tests.crash.txn.actors import GROUP, INPUT, PLACES, TIMEOUT_MS, Actor, Moment
from tests.crash.txn.checker import check
from tests.crash.txn.ending import is_quiet, read_final, read_final_offset
from tests.crash.txn.history import Ended, Event
from tests.crash.txn.scripts import Asked
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


def ask_it(connection: Connection, asked: Asked) -> Any:  # noqa: ANN401 - any message class
    request, version = asked
    return connection.call(request, version_max=version)


def act(actors: list[Actor], lines: list[Connection], refusals: list[str]) -> list[Event]:
    dice = random.Random(1)
    history: list[Event] = []
    for _ in range(STEPS):
        index = dice.randrange(len(actors))
        moment = Moment(dice, history, time.time_ns() // 1_000_000, refusals)
        asked = actors[index].next(moment)
        for request, version in asked:
            lines[index].send(request, version_max=version)
        if asked:
            answers = [lines[index].receive() for _ in asked]
            moment.now_ms = time.time_ns() // 1_000_000
            actors[index].receive(moment, answers)
    return history


def test_a_history_of_apache_kafka_is_legal() -> None:
    peers.require("kafka")
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
        ask = partial(ask_it, lines[0])
        end_s = time.monotonic() + 10 * TIMEOUT_MS / 1000
        while not is_quiet(ask, PLACES) and time.monotonic() < end_s:
            time.sleep(0.05)
        history += [read_final(ask, place) for place in PLACES]
        history.append(read_final_offset(ask, GROUP, INPUT))
    assert sum(isinstance(event, Ended) for event in history) > 5
    assert check(history) == []
    assert refusals == []
