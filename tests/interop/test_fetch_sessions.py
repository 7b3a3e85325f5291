"""Fetch sessions (KIP-227) with the clients that use them: they name partitions only once."""

import pytest

from headwater.delivery.broker.fetch_sessions import FetchSessions
from headwater.delivery.wire.kafka import framing, messages
from headwater.testing.broker import EmbeddedBroker
from tests.interop.clients import WITNESS, Clients
from tests.interop.proxy import FETCH, wire_to
from tests.interop.records import by_partition, plain
from tests.interop.scenarios import create, read, send

CLIENTS = ("java-4.3", "java-3.9", "java-2.8", "kafka-python")
PARTITIONS = 20
RECORDS = 600
# So small that reading everything takes many fetches.
FETCH_BYTES = 8_000

pytestmark = pytest.mark.parametrize("client", CLIENTS)


def filled(clients: Clients, broker: EmbeddedBroker, name: str) -> dict[int, list[bytes]]:
    """Fill a topic; give the values of each partition."""
    create(clients, broker.bootstrap_servers, name, PARTITIONS)
    sent = plain(RECORDS, partitions=PARTITIONS)
    send(clients[WITNESS], broker.bootstrap_servers, name, sent)
    return {
        partition: [each.value or b"" for each in records]
        for partition, records in by_partition(sent).items()
    }


def read_through(
    clients: Clients,
    broker: EmbeddedBroker,
    name: str,
    client: str,
    fetches: list[messages.FetchRequest],
    forget_after: int = 0,
) -> dict[int, list[bytes]]:
    """Have everything read; note every fetch, and lose all sessions after some of them."""

    def look(frame: bytes) -> None:
        _, request = framing.decode_request(frame)
        fetches.append(request)
        if len(fetches) == forget_after:
            node = broker.node.broker
            node.fetch_sessions = FetchSessions(node.clock, node.chance, slots=1_000)

    with wire_to(broker) as wire:
        wire.watch(FETCH, look)
        found = read(clients[client], wire.bootstrap, name, fetch_max_bytes=FETCH_BYTES)
    return {
        partition: [each.value or b"" for each in records]
        for partition, records in by_partition(found).items()
    }


def named(request: messages.FetchRequest) -> int:
    return sum(len(topic.partitions) for topic in request.topics)


def test_a_session_names_what_has_changed(
    clients: Clients, broker: EmbeddedBroker, name: str, client: str
) -> None:
    sent = filled(clients, broker, name)
    fetches: list[messages.FetchRequest] = []

    assert read_through(clients, broker, name, client, fetches) == sent

    in_session = [each for each in fetches if each.session_epoch > 0]
    assert len(in_session) > 10
    assert len({each.session_id for each in in_session}) == 1
    assert named(fetches[0]) == PARTITIONS
    assert min(map(named, in_session)) < PARTITIONS // 2


def test_a_session_that_the_broker_forgot_begins_anew(
    clients: Clients, broker: EmbeddedBroker, name: str, client: str
) -> None:
    sent = filled(clients, broker, name)
    fetches: list[messages.FetchRequest] = []

    assert read_through(clients, broker, name, client, fetches, forget_after=5) == sent

    assert len({each.session_id for each in fetches if each.session_epoch > 0}) >= 2
