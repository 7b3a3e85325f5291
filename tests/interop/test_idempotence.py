"""Producers whose connection is cut after the broker has written and before they have heard.

A wire between them loses the answers to some Produce requests and cuts the connection. An
idempotent producer asks again, and the log must hold each record once, in order. A producer that
is not idempotent shows that the wire really does what it should: it writes some records twice.
"""

import confluent_kafka
import pytest

from headwater.testing.broker import EmbeddedBroker
from tests.interop.clients import WITNESS, Clients
from tests.interop.proxy import PRODUCE, wire_to
from tests.interop.records import plain
from tests.interop.scenarios import create, read, send

COUNT = 300
# Small batches, so that there are many requests to lose, some of them next to each other.
SETTINGS: dict[str, dict[str, object]] = {
    "confluent": {"batch.num.messages": 10, "retry.backoff.ms": 20},
    "kafka-python": {"batch_size": 3_000},
    "aiokafka": {"max_batch_size": 3_000},
    "kafkajs": {"batchRecords": 10, "retry": {"initialRetryTime": 20}},
    "java-4.3": {"batch.size": 3_000, "reconnect.backoff.ms": 10},
    "java-3.9": {"batch.size": 3_000, "reconnect.backoff.ms": 10},
}
# Several of these may be in flight on one connection, and are then lost with one cut.
LOST = (1, 3, 4, 8, 13, 20)


@pytest.mark.parametrize("client", list(SETTINGS))
def test_nothing_is_lost_doubled_or_reordered(
    clients: Clients, broker: EmbeddedBroker, name: str, client: str
) -> None:
    create(clients, broker.bootstrap_servers, name)
    sent = plain(COUNT)
    with wire_to(broker) as wire:
        wire.cut_after(PRODUCE, *LOST)
        answers = send(
            clients[client],
            wire.bootstrap,
            name,
            sent,
            idempotent=True,
            settings=SETTINGS[client],
        )
        assert wire.cuts >= 2, "the wire was not cut often enough"
    assert read(clients[WITNESS], broker.bootstrap_servers, name) == sent
    # Where a duplicate is recognised, the answer is the place of the original.
    assert [offset for _, offset in answers] == list(range(COUNT))


def test_a_producer_that_is_not_idempotent_writes_twice(
    clients: Clients, broker: EmbeddedBroker, name: str
) -> None:
    create(clients, broker.bootstrap_servers, name)
    sent = plain(COUNT)
    with wire_to(broker) as wire:
        wire.cut_after(PRODUCE, *LOST)
        send(clients[WITNESS], wire.bootstrap, name, sent, settings=SETTINGS[WITNESS])
    found = read(clients[WITNESS], broker.bootstrap_servers, name)
    assert len(found) > COUNT
    assert set(found) == set(sent)


def test_a_restarted_broker_still_knows_its_producers(
    clients: Clients, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    folder = str(tmp_path_factory.mktemp("restarted"))
    sent = plain(COUNT)
    with EmbeddedBroker(data_directory=folder) as first:
        create(clients, first.bootstrap_servers, name)
        with wire_to(first) as wire:

            def restart() -> None:
                if wire.cuts == 2:
                    first.stop()
                    wire.advertise(first.start())

            wire.cut_after(PRODUCE, *LOST, action=restart)
            send(
                clients[WITNESS],
                wire.bootstrap,
                name,
                sent,
                idempotent=True,
                settings=SETTINGS[WITNESS],
            )
            assert wire.cuts >= 2
        found = read(clients[WITNESS], first.bootstrap_servers, name)
    assert found == sent


def test_a_number_that_is_given_twice_loses_nothing_in_silence(
    broker: EmbeddedBroker, name: str
) -> None:
    """A client that aborts and forgets what waited to be sent again gives its number away.

    Librdkafka does. By Kafka's rules the next record counts as repeated and is never written.
    """
    settings: dict[str, object] = {"transactional.id": name, "retry.backoff.ms": 1_000}
    delivered = []

    def note(error: object, message: confluent_kafka.Message) -> None:
        delivered.append((message.value(), error is None))

    with wire_to(broker) as wire:
        producer = confluent_kafka.Producer({"bootstrap.servers": wire.bootstrap, **settings})
        producer.init_transactions(30)
        wire.cut_after(PRODUCE, wire.count(PRODUCE) + 1)
        producer.begin_transaction()
        producer.produce(name, b"written, and not heard of", partition=0, on_delivery=note)
        while wire.cuts == 0:
            producer.poll(0.01)
        producer.abort_transaction(30)
        producer.begin_transaction()
        producer.produce(name, b"new", partition=0, on_delivery=note)

        with pytest.raises(confluent_kafka.KafkaException) as refused:
            producer.commit_transaction(30)
        producer.purge()
        producer.flush(30)

    assert refused.value.args[0].name() == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert delivered == [(b"written, and not heard of", False), (b"new", False)]
