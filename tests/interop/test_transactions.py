"""Transactions with every client that has them, and readers of committed data with all."""

import uuid
from collections.abc import Iterator

import pytest

from headwater.delivery.client.admin import LATEST, list_offsets
from headwater.delivery.client.cluster import Cluster
from headwater.testing.broker import EmbeddedBroker
from tests.interop.clients import WITNESS, ClientError, Clients, Program, Speaker, eventually
from tests.interop.records import Record, an_hour_ago_ms
from tests.interop.scenarios import create, read, send

CLIENTS = (
    "confluent",
    "kafka-python",
    "aiokafka",
    "kafkajs",
    "java-4.3",
    "java-3.9",
    "java-2.8",
)
LONG_MS = 60_000
SHORT_MS = 1_000
# A reader that stops at the last offset would wait for ever for a marker, which no reader is given.
END = "end"

pytestmark = pytest.mark.parametrize("client", CLIENTS)


@pytest.fixture(scope="module")
def hasty_broker() -> Iterator[EmbeddedBroker]:
    """A broker that looks for overdue transactions all the time."""
    interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    with EmbeddedBroker(settings={interval: "50"}) as running:
        yield running


class Producer:
    """A transactional producer inside a client's program."""

    def __init__(
        self,
        speaker: Speaker,
        bootstrap: str,
        transactional_id: str,
        timeout_ms: int = LONG_MS,
    ) -> None:
        self._speaker = speaker
        self._name = uuid.uuid4().hex
        self._step(
            "open",
            bootstrap=bootstrap,
            transactional_id=transactional_id,
            timeout_ms=timeout_ms,
        )

    def write(self, topic: str, *values: str) -> None:
        """Write in the open transaction."""
        self._step("write", topic=topic, values=list(values))

    def transaction(self, topic: str, *values: str, commit: bool = True) -> None:
        """Do a whole one."""
        self.begin()
        self.write(topic, *values)
        if commit:
            self.commit()
        else:
            self.abort()

    def begin(self) -> None:
        self._step("begin")

    def commit(self) -> None:
        self._step("commit")

    def abort(self) -> None:
        self._step("abort")

    def close(self) -> None:
        self._step("close")

    def _step(self, step: str, **arguments: object) -> None:
        self._speaker.call("transaction", step=step, name=self._name, **arguments)


def finish(clients: Clients, bootstrap: str, topic: str) -> None:
    """Write the record that readers stop at."""
    send(clients[WITNESS], bootstrap, topic, [Record(b"", END.encode(), (), an_hour_ago_ms())])


def committed(clients: Clients, reader: str, bootstrap: str, topic: str) -> list[str]:
    """Give the values that a reader of committed data sees before the end."""
    return values(clients, reader, bootstrap, topic, "read_committed")


def values(clients: Clients, reader: str, bootstrap: str, topic: str, isolation: str) -> list[str]:
    records = read(clients[reader], bootstrap, topic, isolation=isolation)
    found = [(record.value or b"").decode() for record in records]
    assert found.pop() == END
    return found


def test_commits_count_and_aborts_do_not(
    clients: Clients, bootstrap: str, name: str, client: str
) -> None:
    create(clients, bootstrap, name)
    producer = Producer(clients[client], bootstrap, name)
    producer.transaction(name, "a", "b")
    producer.transaction(name, "x", "y", commit=False)
    producer.transaction(name, "c")
    producer.transaction(name, "z", commit=False)
    producer.close()
    finish(clients, bootstrap, name)

    assert committed(clients, client, bootstrap, name) == ["a", "b", "c"]
    assert committed(clients, WITNESS, bootstrap, name) == ["a", "b", "c"]
    everything = values(clients, client, bootstrap, name, "read_uncommitted")
    assert everything == ["a", "b", "x", "y", "c", "z"]


def test_a_transaction_reaches_several_topics(
    clients: Clients, bootstrap: str, name: str, client: str
) -> None:
    topics = [f"{name}-{number}" for number in range(3)]
    producer = Producer(clients[client], bootstrap, name)
    for topic in topics:
        create(clients, bootstrap, topic)
    for commit in (True, False):
        producer.begin()
        for topic in topics:
            producer.write(topic, f"{topic} {commit}")
        producer.commit() if commit else producer.abort()
    producer.close()

    for topic in topics:
        finish(clients, bootstrap, topic)
        assert committed(clients, WITNESS, bootstrap, topic) == [f"{topic} True"]


def test_a_second_producer_fences_the_first(
    clients: Clients, bootstrap: str, name: str, client: str
) -> None:
    create(clients, bootstrap, name)
    first = Producer(clients[client], bootstrap, name)
    first.transaction(name, "a")
    first.begin()
    first.write(name, "x")

    second = Producer(clients[client], bootstrap, name)
    second.transaction(name, "b")

    with pytest.raises(ClientError):
        first.commit()
    second.transaction(name, "c")
    second.close()
    finish(clients, bootstrap, name)
    assert committed(clients, client, bootstrap, name) == ["a", "b", "c"]


def test_whoever_takes_over_from_a_crash_finds_nothing_half_done(
    clients: Clients, bootstrap: str, name: str, client: str
) -> None:
    create(clients, bootstrap, name)
    program: Program = clients.start(client)
    try:
        crashed = Producer(program, bootstrap, name)
        crashed.transaction(name, "a")
        crashed.begin()
        crashed.write(name, "x")
    finally:
        program.kill()

    heir = Producer(clients[client], bootstrap, name)
    heir.transaction(name, "b")
    heir.close()

    finish(clients, bootstrap, name)
    assert committed(clients, client, bootstrap, name) == ["a", "b"]


def test_a_transaction_that_takes_too_long_is_aborted(
    clients: Clients, hasty_broker: EmbeddedBroker, name: str, client: str
) -> None:
    bootstrap = hasty_broker.bootstrap_servers
    create(clients, bootstrap, name)
    late = Producer(clients[client], bootstrap, name, SHORT_MS)
    late.begin()
    late.write(name, "x")

    # Readers get past it when its time is up, without its help.
    with Cluster(bootstrap) as cluster:
        for _ in eventually(20):
            found = list_offsets(cluster, {(name, 0): LATEST}, read_committed=True)
            if found[name, 0] > 1:
                break
    finish(clients, bootstrap, name)
    assert committed(clients, WITNESS, bootstrap, name) == []
    with pytest.raises(ClientError):
        late.commit()


def test_reading_and_writing_are_one_step(
    clients: Clients, bootstrap: str, name: str, client: str
) -> None:
    source, target = f"{name}-in", f"{name}-out"
    create(clients, bootstrap, source)
    create(clients, bootstrap, target)
    producer = Producer(clients[WITNESS], bootstrap, f"{name}-source")
    inputs = [f"order {number}" for number in range(6)]
    producer.transaction(source, *inputs[:3])
    producer.transaction(source, "never was", commit=False)
    producer.transaction(source, *inputs[3:])
    producer.close()

    def relay(count: int, *, commit: bool) -> None:
        clients[client].call(
            "relay",
            bootstrap=bootstrap,
            transactional_id=f"{name}-relay",
            group=name,
            source=source,
            target=target,
            count=count,
            commit=commit,
        )

    relay(3, commit=True)
    relay(2, commit=False)
    relay(3, commit=True)

    finish(clients, bootstrap, target)
    assert committed(clients, client, bootstrap, target) == inputs
    assert committed(clients, WITNESS, bootstrap, target) == inputs
