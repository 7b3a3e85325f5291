"""The writer's commit against real brokers: drivers that come and go, as messages of their tasks.

No Spark runs here: what a driver does is a call of `commit` with messages in its run's name.
"""

import json
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.base.errors import KafkaError
from headwater.base.record.records import Record, build_batch
from headwater.base.uuids import uuid_to_text
from headwater.delivery.client import admin
from headwater.delivery.client.batch_reader import BatchReader, Fetched
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.transactor import Transactor
from headwater.delivery.wire.kafka import messages
from headwater.streams.sink import batch_writer, marker_log, message, writer
from headwater.streams.sink.batch_writer import HeadwaterBatchWriter
from headwater.streams.sink.commit import Attempt, Batches
from headwater.streams.sink.errors import (
    BatchTooSlowError,
    CheckpointBehindError,
    FeedbackError,
    OlderDriverError,
)
from headwater.streams.sink.marker import MARKER_TOPIC, Marker
from headwater.streams.sink.marker_log import MarkerLog, forget_query
from headwater.streams.sink.message import TaskMessage
from headwater.streams.sink.options import sink_options
from headwater.streams.sink.transaction import timeout_ms
from headwater.streams.sink.writer import HeadwaterStreamWriter
from headwater.testing.broker import EmbeddedBroker
from tests.delivery.client.transactional import wait_until_stable
from tests.streams.brokers import HEADWATER, Broker
from tests.streams.sink.messages import make_message
from tests.streams.sink.reading import values


def _dotted(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): text for name, text in options.items()}


class Query:
    """A query with a topic of its own."""

    def __init__(self, broker: Broker, **options: str) -> None:
        self.broker = broker
        self.id = str(uuid.uuid4())
        self.topic = broker.topic("out", partitions=2)
        self.writer = HeadwaterStreamWriter(
            sink_options({"bootstrap": broker.bootstrap, "topic": self.topic} | _dotted(options))
        )

    def task(self, run: str, batch_id: int, *rows: str, partition: int = 0) -> TaskMessage:
        # Retention would remove records that are dated long ago.
        now_ms = time.time_ns() // 1_000_000
        records = [Record(at, now_ms, None, row.encode()) for at, row in enumerate(rows)]
        attempt = Attempt(self.id, run, batch_id)
        batches = [bytes(build_batch(records))] if records else []
        return make_message(attempt, {(self.topic, partition): batches}, None)

    def commit(self, run: str, batch_id: int, *rows: str) -> None:
        self.writer.commit([self.task(run, batch_id, *rows)], batch_id)

    def written(self) -> list[bytes]:
        return values(self.broker.bootstrap, self.topic)

    def marker(self) -> Marker | None:
        with Cluster(self.broker.bootstrap) as cluster:
            seen = MarkerLog(cluster, self.id, "sink").read()
            return seen.undecided or seen.committed


@pytest.fixture(params=[True, False], ids=["one process", "new processes"])
def query(request: pytest.FixtureRequest, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Query:
    """Give a query whose commits run in one process, or each in a new one, as far as it knows."""
    if not request.param:
        monkeypatch.setattr(MarkerLog, "recall", lambda *_: None)
    return Query(broker)


def test_batches_of_one_run_follow_each_other(query: Query) -> None:
    for batch_id in range(4):
        query.commit("a", batch_id, f"row-{batch_id}")

    assert query.written() == [b"row-%d" % each for each in range(4)]
    marker = query.marker()
    assert marker is not None
    assert (marker.batch_id, marker.run_id, marker.earlier) == (3, "a", ())
    # Each transaction leaves its end in the partition, too.
    assert marker.ends == {(query.topic, 0): 7}


def test_processes_may_commit_in_turn(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where two pipelines of a driver have had two processes started."""
    query = Query(broker)
    memories: list[dict[object, object]] = [{}, {}]
    for batch_id in range(6):
        monkeypatch.setattr(marker_log, "_remembered", memories[batch_id % 2])
        query.commit("a", batch_id, f"row-{batch_id}")

    assert query.written() == [b"row-%d" % each for each in range(6)]


def test_a_batch_that_is_written_is_not_written_again(query: Query) -> None:
    query.commit("a", 0, "first")

    query.commit("b", 0, "in", "another", "shape")
    query.commit("b", 1, "second")

    assert query.written() == [b"first", b"second"]


def test_the_newer_driver_wins_and_the_older_stops(query: Query) -> None:
    query.commit("older", 0, "first")
    query.commit("newer", 0, "first")

    with pytest.raises(OlderDriverError, match="has taken over as run newer") as caught:
        query.commit("older", 1, "second, of the older")
    query.commit("newer", 1, "second")

    assert query.written() == [b"first", b"second"]
    assert "one checkpoint is for one driver" in str(caught.value.__notes__)


def test_a_driver_that_is_fenced_in_its_transaction_leaves_nothing(query: Query) -> None:
    query.commit("older", 0, "first")
    with Cluster(query.broker.bootstrap) as cluster:
        older = Transactor(cluster, f"hw.{query.id}.sink")
        marker = query.marker()
        assert marker is not None
        older.begin(marker.producer)
        older.send(query.task("older", 1, "of the older").batches)

        query.commit("newer", 1, "second")

        with pytest.raises(KafkaError):
            older.commit()
    with pytest.raises(OlderDriverError):
        query.commit("older", 1, "of the older, again")
    assert query.written() == [b"first", b"second"]


def test_a_checkpoint_that_was_set_back_is_refused(query: Query) -> None:
    for batch_id in range(3):
        query.commit("a", batch_id, f"row-{batch_id}")

    with pytest.raises(CheckpointBehindError, match=r"batch 1 .* but batch 2 has been"):
        query.commit("b", 1, "other rows than the first time")

    query.commit("a", 3, "row-3")
    assert query.written() == [b"row-%d" % each for each in range(4)]


def test_a_checkpoint_that_was_set_back_is_refused_by_its_first_batch_without_rows(
    query: Query,
) -> None:
    for batch_id in range(3):
        query.commit("a", batch_id, f"row-{batch_id}")

    with pytest.raises(CheckpointBehindError, match=r"batch 1 .* but batch 2 has been"):
        query.commit("b", 1)

    query.commit("a", 3)
    query.commit("a", 4, "row-4")
    assert query.written() == [b"row-%d" % each for each in (0, 1, 2, 4)]


def test_another_query_or_sink_is_somebody_else(broker: Broker) -> None:
    one, other = Query(broker), Query(broker)
    named = Query(broker, sinkName="second")
    named.id = one.id

    for each in (one, other, named):
        each.commit("a", 0, "row")

    assert [each.written() for each in (one, other, named)] == [[b"row"]] * 3


def test_a_transaction_that_another_query_leaves_open_hides_no_marker(query: Query) -> None:
    query.commit("a", 0, "first")
    with Cluster(query.broker.bootstrap) as cluster:
        open_one = Transactor(cluster, f"other-{uuid.uuid4()}")
        log = MarkerLog(cluster, str(uuid.uuid4()), "sink")
        open_one.begin()
        open_one.send(log.batches(Marker(1, "run", (1, 1))))
        try:
            query.commit("a", 1, "second")
            query.commit("b", 1, "second, again")
        finally:
            open_one.abort()

    assert query.written() == [b"first", b"second"]


def test_a_batch_without_rows_writes_nothing_and_hinders_nothing(query: Query) -> None:
    query.writer.commit([], 0)
    query.writer.commit([make_message(Attempt(query.id, "a", 1), {}, None)], 1)
    assert query.marker() is None

    query.commit("a", 2, "row")

    assert query.written() == [b"row"]


@pytest.mark.parametrize("topic_is", ["named for all rows", "a column"])
def test_rows_that_have_come_back_by_a_pattern_are_refused_also_where_nothing_is_written(
    near: Broker, tmp_path: Path, topic_is: str
) -> None:
    """What has come back might stay in state, and come out of it when the pattern is changed."""
    query = Query(near)
    if topic_is == "a column":
        query.writer = HeadwaterStreamWriter(sink_options({"bootstrap": near.bootstrap}))

    def commit(batch_id: int, *rows: str) -> None:
        task = query.task("a", batch_id, *rows)
        attempt = replace(task.attempt, checkpoint=str(tmp_path))
        query.writer.commit([replace(task, attempt=attempt)], batch_id)

    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": query.id}))
    for batch_id, topics in enumerate((["in"], ["in", query.topic], ["in", query.topic])):
        source = {"version": 1, "pattern": ".*", "topics": {key: {} for key in topics}}
        text = f"v1\n{{}}\n{json.dumps(source)}"
        (tmp_path / "offsets" / str(batch_id)).write_text(text)
    commit(0, "row")

    if topic_is == "a column":
        commit(1)  # where rows go is not known before there are any
    else:
        with pytest.raises(FeedbackError, match="and reads it as well"):
            commit(1)
    with pytest.raises(FeedbackError) as caught:
        commit(2, "another")

    assert "and use a new checkpointLocation" in caught.value.hint
    assert query.written() == [b"row"]


def test_a_topic_that_has_the_same_name_elsewhere_is_no_feedback(
    near: Broker, tmp_path: Path
) -> None:
    query = Query(near)
    with Cluster(near.bootstrap) as cluster:
        own = uuid_to_text(cluster.topic(query.topic).topic_id)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": query.id}))

    def commit(batch_id: int, topic_id: str) -> None:
        topics = {query.topic: {"id": topic_id, "partitions": {"0": batch_id}}}
        mirrored = {"version": 1, "pattern": "out.*", "topics": topics}
        (tmp_path / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{json.dumps(mirrored)}")
        task = query.task("a", batch_id, f"row-{batch_id}")
        attempt = replace(task.attempt, checkpoint=str(tmp_path))
        query.writer.commit([replace(task, attempt=attempt)], batch_id)

    commit(0, uuid_to_text(uuid.uuid4().bytes))
    for topic_id in (own, ""):  # brokers without ids leave the name alone
        with pytest.raises(FeedbackError, match="and reads it as well"):
            commit(1, topic_id)

    assert query.written() == [b"row-0"]


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Give a process that has read no markers, and how much it has read with each fetch."""
    sizes: list[int] = []
    fetch = BatchReader.fetch

    def counted(reader: BatchReader, offset: int, *, wait_ms: int = 500) -> Fetched:
        fetched = fetch(reader, offset, wait_ms=wait_ms)
        sizes.append(len(fetched.records))
        return fetched

    monkeypatch.setattr(BatchReader, "fetch", counted)
    marker_log._scans.clear()
    yield sizes
    marker_log._scans.clear()


def test_after_an_empty_batch_only_new_markers_are_read(
    broker: Broker, read_bytes: list[int]
) -> None:
    query, other = Query(broker), Query(broker)
    for batch_id in range(100):
        other.commit("a", batch_id, "row")
    query.commit("a", 0, "first")
    all_of_it = sum(read_bytes)
    other.commit("a", 100, "row")

    read_bytes.clear()
    query.commit("a", 2, "after an empty batch")
    read_bytes_then = sum(read_bytes)
    read_bytes.clear()
    query.commit("a", 4, "after another one")

    assert query.written() == [b"after an empty batch", b"after another one", b"first"]
    assert all_of_it > 100 * 200
    # Two markers with the ends of their transactions, then one.
    assert 0 < read_bytes_then < 2_000
    assert 0 < sum(read_bytes) < 1_000


def test_a_process_reads_no_markers_for_empty_batches_but_for_the_first_of_a_run(
    broker: Broker, read_bytes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    query, other = Query(broker), Query(broker)
    for batch_id in range(20):
        other.commit("a", batch_id, "row")
    query.commit("a", 0)
    all_of_it = sum(read_bytes)
    read_bytes.clear()
    with monkeypatch.context() as patch:
        patch.setattr(writer, "lent_cluster", lambda _: pytest.fail("a broker was asked"))
        for batch_id in range(1, 5):
            query.commit("a", batch_id)

    other.commit("a", 20, "row")
    read_bytes.clear()
    query.commit("b", 5)

    assert all_of_it > 20 * 200
    # A marker and the end of its transaction.
    assert 0 < sum(read_bytes) < 1_000


@pytest.mark.usefixtures("read_bytes")
def test_a_marker_topic_that_was_made_again_is_read_from_its_start() -> None:
    with EmbeddedBroker() as fresh:
        broker = Broker(HEADWATER, fresh.bootstrap_servers)
        query = Query(broker)
        for batch_id in range(3):
            query.commit("a", batch_id, "before")
        assert query.marker() is not None
        broker.delete(MARKER_TOPIC)
        other = Query(broker)
        for batch_id in range(10):
            other.commit("a", batch_id, "row")

        assert query.marker() is None
        assert other.marker() is not None


def test_the_marker_topic_is_compacted_and_has_one_partition(query: Query) -> None:
    query.commit("a", 0, "row")

    with Cluster(query.broker.bootstrap) as cluster:
        configs = {
            config.name: config.value
            for config in admin.describe_configs(cluster, admin.TOPIC_RESOURCE, MARKER_TOPIC)
        }
        assert configs["cleanup.policy"] == "compact"
        assert len(cluster.topic(MARKER_TOPIC).partitions) == 1


def test_a_query_can_be_forgotten(query: Query) -> None:
    other = Query(query.broker)
    for each in (query, other):
        each.commit("a", 0, "row")

    with Cluster(query.broker.bootstrap) as cluster:
        assert forget_query(cluster, query.id) == 1
        assert forget_query(cluster, query.id) == 0
        assert forget_query(cluster, str(uuid.uuid4())) == 0

    assert query.marker() is None
    assert other.marker() is not None
    query.commit("b", 0, "again")
    assert query.written() == [b"again", b"row"]


def test_an_error_aborts_and_the_next_run_writes(query: Query) -> None:
    query.commit("a", 0, "first")
    tasks = [query.task("a", 1, "second"), query.task("a", 1, "nowhere", partition=99)]

    with pytest.raises(KafkaError):
        HeadwaterStreamWriter(
            sink_options({"bootstrap": query.broker.bootstrap, "kafka.request.timeout.ms": "1500"})
        ).commit(tasks, 1)
    assert query.written() == [b"first"]
    query.commit("b", 1, "second")

    assert query.written() == [b"first", b"second"]


def test_a_batch_that_takes_too_long_says_what_to_set(
    embedded_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(HEADWATER, embedded_broker.bootstrap_servers)
    query = Query(broker, kafka__transaction__timeout__ms="300")

    def slow_parts(tasks: list[TaskMessage]) -> Iterator[Batches]:
        for task in tasks:
            yield task.batches
            with Cluster(broker.bootstrap) as cluster:
                wait_until_stable(cluster, query.topic, 2)

    monkeypatch.setattr(writer, "parts", slow_parts)
    with pytest.raises(BatchTooSlowError, match=r"batch 0 of query .* open for") as caught:
        query.commit("a", 0, "first")
    monkeypatch.undo()

    assert "maxOffsetsPerTrigger" in caught.value.hint
    assert "kafka.transaction.timeout.ms" in caught.value.hint
    query.writer = HeadwaterStreamWriter(sink_options({"bootstrap": broker.bootstrap}))
    query.commit("b", 0, "first")
    assert query.written() == [b"first"]


def test_a_large_batch_is_given_more_time() -> None:
    assert timeout_ms(10_000) == 60_000 + 2
    assert timeout_ms(300 << 20) == pytest.approx(60_000 + 75_000, rel=0.01)
    assert timeout_ms(100 << 30) == 900_000


def test_staged_files_are_sent_and_removed(
    query: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message, "INLINE_BYTES_MAX", 10)
    task = query.task("a", 0, "row")
    staged = make_message(task.attempt, task.batches, str(tmp_path))
    assert staged.staged is not None

    query.writer.commit([staged], 0)

    assert query.written() == [b"row"]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_aborting_removes_what_tasks_have_left(
    query: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message, "INLINE_BYTES_MAX", 10)
    task = query.task("a", 0, "row")

    query.writer.abort([None, make_message(task.attempt, task.batches, str(tmp_path))], 0)

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert query.written() == []


@pytest.mark.parametrize("fails", [False, True], ids=["whole", "broken off"])
def test_a_batch_write_is_whole_or_nothing(query: Query, fails: bool) -> None:
    options = {"bootstrap": query.broker.bootstrap, "kafka.request.timeout.ms": "1500"}
    writer = HeadwaterBatchWriter(sink_options(options))
    tasks = [query.task("", 0, "one"), query.task("", 0, "two", partition=99 if fails else 1)]
    commit: Callable[[], None] = lambda: writer.commit(tasks)  # noqa: E731

    if fails:
        with pytest.raises(KafkaError):
            commit()
    else:
        commit()

    assert query.written() == ([] if fails else [b"one", b"two"])


def _transactional_ids(broker: Broker) -> set[str]:
    with Cluster(broker.bootstrap) as cluster:
        cluster.topics()
        found = [
            cluster.broker(number).call(messages.ListTransactionsRequest())
            for number in cluster.brokers
        ]
    return {each.transactional_id for answer in found for each in answer.transaction_states}


def test_batch_writes_one_after_the_other_leave_one_transactional_id(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    query, before = Query(broker), _transactional_ids(broker)
    for number in range(5):
        writer = HeadwaterBatchWriter(sink_options({"bootstrap": broker.bootstrap}))
        writer.commit([query.task("", 0, f"row-{number}")])

    assert query.written() == [b"row-%d" % number for number in range(5)]
    assert len(_transactional_ids(broker) - before) == 1


def test_batch_writes_at_the_same_time_do_not_fence_each_other(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(broker)
    options = sink_options({"bootstrap": broker.bootstrap})
    real_parts = message.parts

    def with_another_write_meanwhile(tasks: list[TaskMessage]) -> Iterator[Batches]:
        yield from real_parts(tasks)
        monkeypatch.setattr(batch_writer, "parts", real_parts)
        HeadwaterBatchWriter(options).commit([query.task("", 0, "meanwhile")])

    monkeypatch.setattr(batch_writer, "parts", with_another_write_meanwhile)
    HeadwaterBatchWriter(options).commit([query.task("", 0, "first")])

    assert query.written() == [b"first", b"meanwhile"]
