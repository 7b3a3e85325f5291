"""A broker that goes away under the sink and returns: each step waits for it.

The broker is down when a step begins, and started again at the first pause that the client makes.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.record.records import Record, build_batch
from headwater.delivery.client import admin, batch_sender, cluster
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.compacted_topic import CompactedTopic, ForgetfulTopicError
from headwater.delivery.client.errors import BrokerUnreachableError, UnsupportedByBrokerError
from headwater.streams.errors import UnknownTopicError
from headwater.streams.sink import limits
from headwater.streams.sink.commit import Attempt
from headwater.streams.sink.connections import lent_cluster
from headwater.streams.sink.limits import TopicLimits, topic_limits
from headwater.streams.sink.marker import MARKER_TOPIC
from headwater.streams.sink.marker_log import MarkerLog
from headwater.streams.sink.message import Outbox
from headwater.streams.sink.options import SinkOptions, sink_options
from headwater.streams.sink.task import encode_rows
from headwater.streams.sink.writer import HeadwaterStreamWriter
from headwater.testing.broker import EmbeddedBroker
from tests.streams.sink.messages import make_message
from tests.streams.sink.reading import values


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(data_directory=str(tmp_path / "data")) as running:
        with Cluster(running.bootstrap_servers) as known:
            admin.create_topic(known, "out", partitions=1)
        yield running


@pytest.fixture
def options(own_broker: EmbeddedBroker) -> SinkOptions:
    return sink_options({"bootstrap": own_broker.bootstrap_servers, "topic": "out"})


@pytest.fixture
def away(own_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[float]]:
    """Give what stops the broker until somebody pauses; it returns the pauses that were made."""

    def stop() -> list[float]:
        pauses: list[float] = []

        class Clock:
            monotonic = staticmethod(time.monotonic)

            @staticmethod
            def sleep(pause_s: float) -> None:
                pauses.append(pause_s)
                if len(pauses) == 1:
                    own_broker.start()

        for module in (cluster, batch_sender):
            monkeypatch.setattr(module, "time", Clock)
        own_broker.stop()
        return pauses

    return stop


def _commit(options: SinkOptions, query: str, batch_id: int) -> None:
    batch = bytes(build_batch([Record(0, 1, None, b"row-%d" % batch_id)]))
    message = make_message(Attempt(query, "run", batch_id), {("out", 0): [batch]}, None)
    HeadwaterStreamWriter(options).commit([message], batch_id)


def test_a_task_waits(options: SinkOptions, away: Callable[[], list[float]]) -> None:
    pauses = away()

    with Outbox(Attempt("query", "run", 0), None) as outbox:
        encode_rows([pa.record_batch({"value": [b"row"]})], options, outbox)
        message = outbox.message()

    assert message.size_bytes
    assert pauses


@pytest.mark.parametrize("remembers", [True, False], ids=["one process", "new processes"])
@pytest.mark.parametrize("batches_before", [0, 1])
def test_a_commit_waits(
    options: SinkOptions,
    away: Callable[[], list[float]],
    monkeypatch: pytest.MonkeyPatch,
    batches_before: int,
    remembers: bool,
) -> None:
    if not remembers:
        monkeypatch.setattr(MarkerLog, "recall", lambda *_: None)
    query = str(uuid.uuid4())
    for batch_id in range(batches_before):
        _commit(options, query, batch_id)
    pauses = away()

    _commit(options, query, batches_before)

    assert pauses
    assert values(options.bootstrap, "out") == [b"row-%d" % at for at in range(batches_before + 1)]


def test_one_that_does_not_return_is_named(own_broker: EmbeddedBroker) -> None:
    bootstrap = own_broker.bootstrap_servers
    own_broker.stop()
    with Cluster(bootstrap, timeout_s=0.2) as hasty:
        with pytest.raises(BrokerUnreachableError):
            topic_limits(hasty, "out")
        with pytest.raises(BrokerUnreachableError):
            MarkerLog(hasty, "query", "sink").read()


def test_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again(
    own_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cluster(own_broker.bootstrap_servers) as known:

        class Clock:
            monotonic = staticmethod(time.monotonic)
            sleep = staticmethod(lambda _: admin.create_topic(known, "later", partitions=3))

        monkeypatch.setattr(limits, "time", Clock)

        assert topic_limits(known, "later").partitions == 3


def test_partitions_that_were_added_are_seen_by_a_client_that_was_kept(
    options: SinkOptions,
) -> None:
    with lent_cluster(options) as first:
        assert topic_limits(first, "out").partitions == 1
    with Cluster(options.bootstrap) as other:
        admin.add_partitions(other, "out", 3)
    with lent_cluster(options) as second:
        assert second is first
        assert topic_limits(second, "out").partitions == 3


def test_a_client_is_not_kept_when_something_went_wrong(options: SinkOptions) -> None:
    def fail() -> Cluster:
        with lent_cluster(options) as lent:
            failed.append(lent)
            raise ZeroDivisionError

    failed: list[Cluster] = []
    with pytest.raises(ZeroDivisionError):
        fail()
    with lent_cluster(options) as another:
        assert another is not failed[0]


def test_a_topic_that_stays_unknown_is_named(
    own_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "_UNKNOWN_WITHIN_S", 0.2)
    with (
        Cluster(own_broker.bootstrap_servers) as known,
        pytest.raises(UnknownTopicError, match="there is no topic 'nowhere'"),
    ):
        topic_limits(known, "nowhere")


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        UnsupportedByBrokerError("no such API"),
    ],
    ids=["topic", "cluster", "unsupported"],
)
def test_who_may_not_read_configs_can_write(
    own_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(admin, "describe_configs", refuse)
    with Cluster(own_broker.bootstrap_servers) as known:
        assert topic_limits(known, "out") == TopicLimits(1, None)


def test_another_error_is_not_taken_for_a_missing_right(
    own_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    monkeypatch.setattr(admin, "describe_configs", refuse)
    with (
        Cluster(own_broker.bootstrap_servers) as known,
        pytest.raises(KafkaError, match="UNKNOWN_SERVER_ERROR"),
    ):
        topic_limits(known, "out")


def test_markers_that_were_there_are_not_held_for_none(
    own_broker: EmbeddedBroker, options: SinkOptions
) -> None:
    """A moment's "unknown topic" behind the takeover would write the batch again."""
    query = str(uuid.uuid4())
    _commit(options, query, 0)
    with Cluster(own_broker.bootstrap_servers) as known:
        log = MarkerLog(known, query, "sink")
        log.prepare()
        admin.delete_topic(known, MARKER_TOPIC)
        known.timeout_s = 0.3

        with pytest.raises(KafkaError, match="was there, and is not any more"):
            log.read()


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_of_ours_that_would_forget_is_refused(
    own_broker: EmbeddedBroker, policy: str
) -> None:
    with Cluster(own_broker.bootstrap_servers) as known:
        admin.create_topic(known, "__hw_x", partitions=1, configs={"cleanup.policy": policy})

        with pytest.raises(ForgetfulTopicError, match="would forget") as caught:
            CompactedTopic(known, "__hw_x").prepare()

    assert caught.value.hint == "headwater topic config __hw_x cleanup.policy=compact"
