"""Transactions of finished batches, read back by librdkafka."""

import time
from collections.abc import Iterator

import pytest

from headwater.base.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.base.record.codecs import Codec
from headwater.base.record.records import Record, build_batch
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.errors import ProducerFencedError, TransactionTimedOutError
from headwater.delivery.client.open_transactions import list_open_transactions
from headwater.delivery.client.transactor import Transactor
from tests.delivery.client.transactional import committed, transactional, wait_until_stable, write

MIB = 1 << 20


def batch(*values: str, codec: Codec = Codec.NONE) -> bytes:
    """Make a batch without a producer."""
    now_ms = time.time_ns() // 1_000_000
    records = [Record(0, now_ms, None, value.encode(), ()) for value in values]
    return bytes(build_batch(records, codec=codec))


@pytest.fixture
def topic(cluster: Cluster, name: str) -> str:
    """Give a topic of three partitions."""
    admin.create_topic(cluster, name, partitions=3)
    return name


@pytest.fixture
def transactor(cluster: Cluster, name: str) -> Transactor:
    return Transactor(cluster, name)


@pytest.fixture
def other_cluster(bootstrap: str) -> Iterator[Cluster]:
    """Give a second client, with connections of its own."""
    with Cluster(bootstrap) as cluster:
        yield cluster


def test_several_partitions_in_one_transaction(
    cluster: Cluster, bootstrap: str, topic: str, transactor: Transactor
) -> None:
    transactor.begin()
    transactor.send({(topic, 0): [batch("a", "b"), batch("c")], (topic, 2): [batch("d")]})
    transactor.send({(topic, 0): [batch("e")], (topic, 1): []})
    assert transactor.commit() == {(topic, 0): 4, (topic, 2): 1}
    wait_until_stable(cluster, topic, 5, 0)
    wait_until_stable(cluster, topic, 2, 2)
    assert committed(bootstrap, topic, 5) == {0: "a", 1: "b", 2: "c", 3: "e"}
    assert committed(bootstrap, topic, 2, partition=2) == {0: "d"}
    assert committed(bootstrap, topic, 0, partition=1) == {}


def test_nothing_shows_before_the_end_and_nothing_after_an_abort(
    cluster: Cluster, bootstrap: str, topic: str, transactor: Transactor
) -> None:
    place = (topic, 0)
    transactor.begin()
    transactor.send({place: [batch("never")]})
    asked = {place: admin.LATEST}
    assert admin.list_offsets(cluster, asked, read_committed=True) == {place: 0}
    assert admin.list_offsets(cluster, asked) == {place: 1}
    transactor.abort()
    transactor.begin()
    transactor.send({place: [batch("shown")]})
    assert transactor.commit() == {place: 3}
    wait_until_stable(cluster, topic, 4)
    assert committed(bootstrap, topic, 4) == {2: "shown"}


def test_a_transaction_without_records(transactor: Transactor, topic: str) -> None:
    for end in (transactor.abort, transactor.commit):
        transactor.begin()
        transactor.send({(topic, 0): []})
        assert not end()
    transactor.abort()


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_stay_as_they_are(
    cluster: Cluster, bootstrap: str, topic: str, transactor: Transactor, codec: Codec
) -> None:
    values = [f"value {number}" * 10 for number in range(100)]
    given = batch(*values, codec=codec)
    before = bytes(given)
    transactor.begin()
    transactor.send({(topic, 0): [given, memoryview(given), bytearray(given)]})
    assert transactor.commit() == {(topic, 0): 300}
    assert given == before
    wait_until_stable(cluster, topic, 301)
    found = committed(bootstrap, topic, 301)
    assert list(found.values()) == values * 3


def test_many_batches_arrive_in_order(
    cluster: Cluster, bootstrap: str, topic: str, transactor: Transactor
) -> None:
    """More requests than may be under way, and more bytes than fit into one."""
    filler = "x" * 200_000
    transactor.begin()
    transactor.send(
        {
            (topic, partition): [batch(f"{number} {filler}") for number in range(20)]
            for partition in range(3)
        }
    )
    assert transactor.commit() == {(topic, partition): 20 for partition in range(3)}
    for partition in range(3):
        wait_until_stable(cluster, topic, 21, partition)
        found = committed(bootstrap, topic, 21, partition=partition)
        assert [int(value.split()[0]) for value in found.values()] == list(range(20))


def test_a_batch_larger_than_a_request(
    cluster: Cluster, bootstrap: str, name: str, transactor: Transactor
) -> None:
    admin.create_topic(cluster, name, configs={"max.message.bytes": str(4 * MIB)})
    large = "x" * (2 * MIB)
    transactor.begin()
    transactor.send({(name, 0): [batch("small"), batch(large), batch("last")]})
    assert transactor.commit() == {(name, 0): 3}
    wait_until_stable(cluster, name, 4)
    assert committed(bootstrap, name, 4) == {0: "small", 1: large, 2: "last"}


def test_what_is_refused_can_only_be_aborted(
    cluster: Cluster, bootstrap: str, topic: str, transactor: Transactor
) -> None:
    transactor.begin()
    with pytest.raises(KafkaError) as refused:
        transactor.send({(topic, 0): [batch("fine"), batch("x" * (2 * MIB)), batch("behind")]})
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert "max.message.bytes" in refused.value.hint
    with pytest.raises(HeadwaterError, match="not sent"):
        transactor.commit()
    transactor.abort()
    transactor.begin()
    transactor.send({(topic, 0): [batch("again")]})
    end = transactor.commit()[topic, 0]
    wait_until_stable(cluster, topic, end + 1)
    assert list(committed(bootstrap, topic, end + 1).values()) == ["again"]


def test_a_newer_one_fences_the_older(
    cluster: Cluster, other_cluster: Cluster, bootstrap: str, topic: str
) -> None:
    older, newer = Transactor(cluster, topic), Transactor(other_cluster, topic)
    producer_id, producer_epoch = older.begin()
    older.send({(topic, 0): [batch("from the older")]})
    newer_id, newer_epoch = newer.begin()
    assert (newer_id, newer_epoch > producer_epoch) == (producer_id, True)
    with pytest.raises(ProducerFencedError, match=topic) as fenced:
        older.send({(topic, 0): [batch("late")]})
    assert fenced.value.code in {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
    assert fenced.value.hint
    older.abort()
    newer.send({(topic, 0): [batch("from the newer")]})
    end = newer.commit()[topic, 0]
    wait_until_stable(cluster, topic, end + 1)
    assert list(committed(bootstrap, topic, end + 1).values()) == ["from the newer"]


@pytest.mark.parametrize("step", ["commit", "abort", "first send"])
def test_the_fenced_one_learns_it_at_every_step(
    cluster: Cluster, other_cluster: Cluster, topic: str, step: str
) -> None:
    older = Transactor(cluster, topic)
    older.begin()
    if step != "first send":
        older.send({(topic, 0): [batch("from the older")]})
    Transactor(other_cluster, topic).begin()
    if step == "abort":
        older.abort()
        return
    late = {(topic, 0): [batch("late")]}
    with pytest.raises(ProducerFencedError):
        older.commit() if step == "commit" else older.send(late)


def test_going_on_as_the_same_producer(
    cluster: Cluster, other_cluster: Cluster, bootstrap: str, topic: str
) -> None:
    """Each driver's commit is a process of its own: it has only what was written down."""
    place = (topic, 0)
    first = Transactor(cluster, topic)
    producer = first.begin()
    first.send({place: [batch("one")]})
    first.commit()
    second = Transactor(other_cluster, topic)
    resumed = second.begin(producer)
    assert (resumed[0], resumed[1] > producer[1]) == (producer[0], True)
    second.send({place: [batch("two")]})
    assert second.commit() == {place: 3}
    wait_until_stable(cluster, topic, 4)
    assert committed(bootstrap, topic, 4) == {0: "one", 2: "two"}
    Transactor(cluster, topic).begin()
    with pytest.raises(ProducerFencedError):
        Transactor(other_cluster, topic).begin(resumed)
    with pytest.raises(ProducerFencedError):
        Transactor(other_cluster, topic).begin(producer)


def test_going_on_after_an_abort(cluster: Cluster, topic: str) -> None:
    transactor = Transactor(cluster, topic)
    producer = transactor.begin()
    transactor.send({(topic, 0): [batch("never")]})
    transactor.abort()
    assert transactor.begin(producer)[1] > producer[1]


def test_what_others_left_open_is_aborted(
    cluster: Cluster, bootstrap: str, topic: str, transactor: Transactor
) -> None:
    left = transactional(bootstrap, topic)
    left.begin_transaction()
    write(left, topic, "left open")
    transactor.begin()
    transactor.send({(topic, 0): [batch("mine")]})
    end = transactor.commit()[topic, 0]
    wait_until_stable(cluster, topic, end + 1)
    assert list(committed(bootstrap, topic, end + 1).values()) == ["mine"]


def test_a_timeout_that_the_broker_does_not_grant(cluster: Cluster, name: str) -> None:
    with pytest.raises(KafkaError) as refused:
        Transactor(cluster, name, timeout_ms=2**31 - 1).begin()
    assert refused.value.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert "transaction.max.timeout.ms" in refused.value.hint


def test_a_timeout_that_the_broker_grants_after_all(cluster: Cluster, topic: str) -> None:
    """Brokers grant a quarter of an hour, unless told otherwise: at least half of that is got."""
    granted = Transactor(cluster, topic, timeout_ms=2**31 - 1, timeout_ms_least=60_000)
    granted.begin()
    granted.send({(topic, 0): [batch("soon")]})
    (timeout_ms,) = {
        each.timeout_ms
        for each in list_open_transactions(cluster)
        if each.transactional_id == topic
    }
    granted.abort()
    assert timeout_ms is not None
    assert 450_000 <= timeout_ms <= 900_000


def test_transactions_that_the_broker_has_given_up(cluster: Cluster, topic: str) -> None:
    transactors = [Transactor(cluster, f"{topic}-{number}", timeout_ms=300) for number in (0, 1)]
    for number, each in enumerate(transactors):
        each.begin()
        each.send({(topic, number): [batch("too late")]})
    for number in (0, 1):
        wait_until_stable(cluster, topic, 2, number)
    commits, goes_on = transactors
    with pytest.raises(TransactionTimedOutError, match=r"given it up after 0\.3 s") as late:
        commits.commit()
    assert "transaction.timeout.ms" in late.value.hint
    with pytest.raises(TransactionTimedOutError):
        goes_on.send({(topic, 1): [batch("more")]})
    for each in transactors:
        each.abort()


def test_a_topic_that_does_not_exist(bootstrap: str, name: str) -> None:
    with Cluster(bootstrap, timeout_s=0.5) as hasty:
        transactor = Transactor(hasty, name)
        hasty.timeout_s = 30.0
        transactor.begin()
        hasty.timeout_s = 0.3
        with pytest.raises(KafkaError) as unknown:
            transactor.send({(name, 0): [batch("nowhere")]})
        hasty.timeout_s = 30.0
        assert unknown.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert unknown.value.hint
        transactor.abort()
