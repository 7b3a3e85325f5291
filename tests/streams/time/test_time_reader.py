"""The time reader against both brokers, asked as Spark asks it, with a clock that a test moves."""

from collections.abc import Callable, Iterator

import pytest

from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster, TopicInfo
from headwater.streams.errors import CheckpointError
from headwater.streams.options import Choice
from headwater.streams.time import partitions, report, time_log
from headwater.streams.time.fold import END_US, Reach
from headwater.streams.time.reader_options import (
    Read,
    read_time_options,
    time_reader_options,
)
from headwater.streams.time.records import TIME_PLACE, TIME_TOPIC
from headwater.streams.time.report import Reporter
from headwater.streams.time.time_log import forget_query
from headwater.testing.broker import EmbeddedBroker
from tests.streams.brokers import HEADWATER, Broker
from tests.streams.time.planned import IDLE_MS, Query, send

# Kafka's number for topics among what has configs.
_TOPIC = 2


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.topic("time", partitions=2)


def test_the_slowest_partition_decides_and_a_change_is_a_batch(
    start: Callable[..., Query], topic: str
) -> None:
    query = start(topic)
    query.plan({0: (1000, 0, 9), 1: (100, 0, 9)})
    assert query.rows == [{"clock": query.offset["clock"], "watermark": None, "idle": False}]
    query.plan()
    assert query.decided == (90, False)
    assert query.rows == [{"clock": query.offset["clock"], "watermark": 90, "idle": False}]
    offset = query.offset
    assert query.plan() == offset, "nothing has changed, so there is no batch"
    query.plan({1: (50, 10, 19)})
    assert query.plan() == offset, "an older event moves nothing"
    query.plan({1: (200, 20, 29)})
    query.plan()
    assert query.decided == (190, False)


def test_two_queries_and_two_clocks_do_not_hear_each_other(
    start: Callable[..., Query], topic: str
) -> None:
    one, other = start(topic), start(topic)
    assert one.offset["clock"] != other.offset["clock"]
    one.plan({0: (9000, 0, 9), 1: (9000, 0, 9)})
    other.plan({0: (7000, 0, 9), 1: (7000, 0, 9)})
    Reporter(one.options.bootstrap, one.options.client, "at/any/p02", topic).report(
        {("", 0): Reach(9000, 0, 9), ("", 1): Reach(9000, 0, 9)}
    )
    other.plan()
    assert other.decided == (6990, False)


def test_an_idle_partition_is_not_waited_for_and_comes_back(
    start: Callable[..., Query], broker: Broker, topic: str
) -> None:
    query = start(topic)
    send(broker, topic, (10, 10))
    query.plan({0: (1000, 0, 9), 1: (100, 0, 9)})
    query.plan()
    assert query.decided == (90, False)
    query.clock.advance(IDLE_MS - 1)
    send(broker, topic, (5, 0))
    query.plan({0: (2000, 10, 14)})
    query.plan()
    assert query.decided == (90, False)
    query.clock.advance(1)
    query.plan()
    assert query.decided == (1990, False), "partition 1 is silent, and its end was reported"
    send(broker, topic, (0, 5))
    query.plan()
    assert query.decided == (1990, False)
    query.plan({0: (3000, 15, 15), 1: (150, 10, 14)})
    query.plan()
    assert query.decided == (1990, False), "it never goes back, and waits for partition 1 again"
    query.clock.advance(IDLE_MS)
    query.plan()
    assert query.decided == (2990, False), "first it says where the last one was"
    query.plan()
    assert query.decided == (2990, True)


def test_a_first_batch_that_takes_long_makes_nobody_idle(
    start: Callable[..., Query], broker: Broker, topic: str
) -> None:
    query = start(topic)
    send(broker, topic, (10, 10))
    query.plan({0: (1000, 0, 9), 1: (100, 0, 9)})
    query.clock.advance(10 * IDLE_MS)
    query.plan()
    assert query.decided == (90, False)


@pytest.mark.parametrize("jump_ms", [-3_000_000, 86_400_000])
def test_silence_is_not_measured_by_a_wall_clock_that_somebody_sets(
    start: Callable[..., Query], broker: Broker, topic: str, jump_ms: int
) -> None:
    query = start(topic)
    send(broker, topic, (10, 10))
    query.plan({0: (1000, 0, 9), 1: (100, 0, 9)})
    query.plan()
    query.clock.advance(IDLE_MS - 1)
    query.clock.set_calendar(query.clock.now_ms() + jump_ms)
    query.plan()
    assert query.decided == (90, False)
    query.clock.advance(1)
    query.plan()
    query.plan()
    assert query.decided == (990, True)


def test_a_partition_that_reports_is_awake_though_the_tasks_clock_was_set_back(
    start: Callable[..., Query], broker: Broker, topic: str
) -> None:
    query = start(topic)
    send(broker, topic, (4, 4))
    query.plan({0: (1000, 0, 0), 1: (100, 0, 0)})
    query.clock.set_calendar(query.clock.now_ms() - 3_000_000)
    for number in range(1, 4):
        query.clock.advance(IDLE_MS - 1)
        query.plan({0: (1000 + number, number, number), 1: (100 + number, number, number)})
    query.plan()
    assert query.decided == (93, False)


def test_a_partition_that_is_behind_is_waited_for(
    start: Callable[..., Query], broker: Broker, topic: str
) -> None:
    query = start(topic, bounded=True)
    send(broker, topic, (10, 50))
    query.plan({0: (1000, 0, 4), 1: (100, 0, 4)})
    for number in range(1, 4):
        query.clock.advance(2 * IDLE_MS)
        query.plan({0: (1000 + number, 4 + number, 4 + number)})
    assert query.decided == (90, False)


def test_a_partition_whose_rows_are_all_filtered_out_is_known_to_be_read(
    start: Callable[..., Query], broker: Broker, topic: str
) -> None:
    query = start(topic, bounded=True)
    send(broker, topic, (10, 10))
    query.plan({0: (1000, 0, 4), 1: (None, 0, 4)})
    query.clock.advance(IDLE_MS)
    query.plan({0: (2000, 5, 9)})
    query.clock.advance(IDLE_MS)
    query.plan()
    assert query.offset["watermark"] is None, "half of partition 1 is to be read, and is not"
    query.plan({1: (None, 5, 9)})
    query.plan()
    assert query.decided == (1990, False)


def test_with_available_now_empty_partitions_are_idle_at_once(
    start: Callable[..., Query], broker: Broker, topic: str
) -> None:
    send(broker, topic, (10, 0))
    query = start(topic)
    query.start(available_now=True)
    query.plan({0: (1000, 0, 9)})
    query.plan()
    assert query.decided == (990, False)
    offset = query.offset
    assert query.plan() == offset


def test_with_available_now_a_long_run_makes_nobody_idle(
    start: Callable[..., Query], broker: Broker, topic: str
) -> None:
    send(broker, topic, (10, 10))
    query = start(topic)
    query.start(available_now=True)
    query.plan({0: (1000, 0, 9), 1: (100, 0, 9)})
    query.clock.advance(100 * IDLE_MS)
    query.plan()
    query.clock.advance(100 * IDLE_MS)
    query.plan()
    assert query.decided == (90, False)


def test_what_closes_at_the_end_of_a_run_is_over_and_more_is_refused(
    start: Callable[..., Query], broker: Broker, topic: str
) -> None:
    send(broker, topic, (3, 2))
    query = start(topic, closes=True, idle_ms=None)
    query.start(available_now=True)
    query.plan({0: (100, 0, 2), 1: (None, 0, 0)})
    query.plan()
    assert query.decided == (END_US, False), "whatever was filtered, or has no time"
    (row,) = query.rows
    assert row["watermark"] == END_US
    broker.send(topic, [(None, b"x")], partition=1)
    end = query.offset
    assert query.plan() == end, "what came since is not read in this run"

    for available_now in (True, False):
        query.start(available_now=available_now)
        with pytest.raises(CheckpointError, match=f"at_end='close', and {topic}-1 has more"):
            query.plan()


def test_a_run_that_was_cut_off_before_its_end_is_ended_by_the_next(
    start: Callable[..., Query], broker: Broker, topic: str
) -> None:
    send(broker, topic, (3, 2))
    query = start(topic, closes=True)
    query.start(available_now=True)
    query.plan({0: (100, 0, 2), 1: (50, 0, 1)})

    query.start(available_now=True)
    query.plan()
    query.start(available_now=True)
    before = query.offset
    assert query.plan() != before, "there must be a batch for there to be another"
    assert query.decided == (40, False)
    query.plan()
    assert query.decided == (END_US, False)
    broker.send_aborted(topic, [(None, b"y")])
    query.start(available_now=True)
    end = query.offset
    assert query.plan() == end, "nothing came that is a row"


def test_a_query_that_goes_on_closes_nothing(
    start: Callable[..., Query], broker: Broker, topic: str
) -> None:
    send(broker, topic, (1, 1))
    query = start(topic, closes=True)
    query.plan({0: (100, 0, 0), 1: (50, 0, 0)})
    query.plan()
    query.plan()
    assert query.decided == (40, False)


def test_a_new_partition_is_waited_for(start: Callable[..., Query], broker: Broker) -> None:
    topic = broker.topic("time")
    query = start(topic)
    broker.send(topic, [(None, b"x")] * 10)
    query.plan({0: (1000, 0, 9)})
    query.plan()
    assert query.decided == (990, False)
    with Cluster(broker.bootstrap) as known:
        admin.add_partitions(known, topic, 2)
        known.await_topic(topic, partitions=2)
    query.clock.advance(IDLE_MS // 2)
    query.plan({0: (2000, 10, 19)})
    query.plan()
    assert query.decided == (990, False)
    query.plan({1: (1500, 0, 9)})
    query.plan()
    assert query.decided == (1490, False)


def test_a_topic_that_is_not_named_for_a_while_is_waited_for(
    start: Callable[..., Query], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a broker that has just started: time must not go on without its partitions."""
    query = start(topic)
    query.plan({0: (1000, 0, 9), 1: (100, 0, 9)})
    query.plan()
    query.start()
    whole = partitions.Partitions._topics
    answers = 0

    def topics(asked: partitions.Partitions) -> dict[str, TopicInfo]:
        nonlocal answers
        answers += 1
        found = dict(whole(asked))
        if answers < 3:
            found = {
                name: each._replace(partitions=each.partitions[:1]) for name, each in found.items()
            }
        return found

    monkeypatch.setattr(partitions.Partitions, "_topics", topics)
    query.plan({0: (2000, 10, 19)})
    query.plan()
    assert answers >= 3
    assert query.decided == (90, False)


def test_partitions_that_are_gone_are_not_waited_for(
    own_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = own_broker.topic("time", partitions=2)
    query = Query(own_broker, topic, monkeypatch, timeout_s=1.0)
    query.plan({0: (1000, 0, 9), 1: (100, 0, 9)})
    query.plan()
    own_broker.delete(topic)
    own_broker.create(topic, partitions=1)
    query.start()
    query.plan({0: (2000, 10, 19)})
    query.plan()
    assert query.decided == (1990, False)
    query.stop()


def test_surpassed_reports_are_removed(
    start: Callable[..., Query], broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_log, "_REMOVED_AT_ONCE", 4)
    query = start(topic)
    for number in range(6):
        query.plan({0: (number, number, number), 1: (number, number, number)})
    query.plan()
    own = [
        each for each in broker.read(TIME_TOPIC) if query.query_id.encode() in (each.key() or b"")
    ]
    gone = {each.key() for each in own if each.value() is None}
    left = {each.key() for each in own} - gone
    assert len(gone) >= 8
    assert len(left) <= 4
    query.start()
    query.plan({0: (100, 9, 9), 1: (100, 9, 9)})
    query.plan()
    assert query.decided == (90, False)


def test_all_that_is_remembered_of_a_query_can_be_forgotten(
    start: Callable[..., Query], broker: Broker, topic: str
) -> None:
    query = start(topic)
    query.plan({0: (1000, 0, 9), 1: (100, 0, 9)})
    with Cluster(broker.bootstrap) as known:
        assert forget_query(known, query.query_id) == 2
        assert forget_query(known, query.query_id) == 0


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    """Give a broker whose topics nobody else needs."""
    with EmbeddedBroker() as running:
        yield Broker(HEADWATER, running.bootstrap_servers)
    report._close()


def test_if_the_topic_is_deleted_the_time_holds_and_goes_on(
    own_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_log, "_TRY_S", 0.5)
    broker = own_broker
    query = Query(broker, broker.topic("time", partitions=2), monkeypatch)
    query.plan({0: (1000, 0, 9), 1: (100, 0, 9)})
    query.plan()
    broker.delete(TIME_TOPIC)
    query.start()
    query.plan()
    assert query.decided == (90, False)
    query.plan({0: (2000, 10, 19), 1: (200, 10, 19)})
    query.plan()
    assert query.decided == (190, False)
    broker.delete(TIME_TOPIC)
    query.run({0: (3000, 20, 29), 1: (300, 20, 29)})
    query.plan()
    query.plan()
    assert query.decided == (290, False)
    query.stop()


def test_reports_that_somebody_deletes_take_nothing_away(
    own_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(own_broker, own_broker.topic("time", partitions=2), monkeypatch)
    query.plan({0: (1000, 0, 9), 1: (100, 0, 9)})
    query.plan()
    with Cluster(own_broker.bootstrap) as known:
        place = TIME_PLACE
        end = admin.list_offsets(known, {place: admin.LATEST})[place]
        for policy in ("delete", "compact"):
            admin.alter_configs(known, _TOPIC, TIME_TOPIC, {"cleanup.policy": policy})
            if policy == "delete":
                admin.delete_records(known, {place: end})
        query.start()
        query.plan({0: (2000, 10, 19), 1: (200, 10, 19)})
        query.plan()
        assert query.decided == (190, False)
        assert forget_query(known, query.query_id) > 0
    query.stop()


def test_options_survive_their_way_through_spark() -> None:
    reads = (
        Read(Choice(topics=("a", "b")), read_committed=True, bounded=False, held=False),
        Read(Choice(pattern="x.*"), read_committed=False, bounded=True, held=False),
        Read(Choice(partitions={"c": (0, 2)}), read_committed=True, bounded=False, held=True),
    )
    client = {
        "kafka.bootstrap.servers": "here:1",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.password": "secret",
    }
    written = time_reader_options(
        client, name="n", delay_us=5, idle_ms=None, reads=reads, driver="/d", closes=True
    )
    assert [name for name, text in written.items() if "secret" in text] == ["kafka.sasl.password"]
    found = read_time_options({name.lower(): text for name, text in written.items()})
    assert (found.bootstrap, found.name, found.delay_us, found.idle_ms) == ("here:1", "n", 5, None)
    assert found.reads == reads
    assert found.driver == "/d"
    assert found.closes
    assert found.client.security["sasl.password"] == "secret"
