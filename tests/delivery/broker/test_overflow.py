"""A producer that is faster than its consumers: three answers."""

import errno
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import ErrorCode
from headwater.base.record.records import Record, build_batch
from headwater.delivery.broker.overflow import DELAY_MS_MAX, Overflow
from headwater.delivery.broker.partition import Partition
from headwater.delivery.broker.refused import PATIENCE_MS
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.wire.kafka.messages import (
    FetchRequest,
    ListOffsetsRequest,
    ProduceRequest,
    ProduceResponse,
)
from headwater.log.checkpoints import read_offsets
from tests.delivery.dialects.kafka.desk import Desk

BOUND = 10_000
EARLIEST = -2


class Readers:
    """Groups that say how far they are."""

    def __init__(self) -> None:
        self.offsets: dict[str, int] = {}

    def committed_offsets(self, topic: str, partition: int) -> Iterable[tuple[str, int]]:
        assert (topic, partition) == ("a", 0)
        return self.offsets.items()


class Bench:
    """One partition under one policy."""

    def __init__(self, policy: str, bound: int = BOUND) -> None:
        self.desk = Desk()
        configs = {"headwater.overflow": policy, "headwater.overflow.bytes": str(bound)}
        self.desk.broker.topics.create([NewTopic("a", 1, configs)])
        self.readers = Readers()
        self.overflow = Overflow(self.readers, self.desk.broker.store.reclaim)
        self.desk.broker.overflow = self.overflow

    @property
    def partition(self) -> Partition:
        partition = self.desk.broker.topics.partition("a", 0)
        assert partition is not None
        return partition

    def produce(
        self, size: int = 900, *, sequence: int = -1
    ) -> ProduceResponse.PartitionProduceResponse:
        idempotent = sequence >= 0
        batch = build_batch(
            [Record(0, self.desk.clock.now_ms(), b"k", b"v" * size)],
            producer_id=7 if idempotent else -1,
            producer_epoch=0 if idempotent else -1,
            base_sequence=sequence,
        )
        data = ProduceRequest.PartitionProduceData(0, bytes(batch))
        request = ProduceRequest(None, -1, 1000, [ProduceRequest.TopicProduceData("a")])
        request.topic_data[0].partition_data.append(data)
        response = self.desk.ask(request, 9)
        self.throttle_ms = response.throttle_time_ms
        answer: ProduceResponse.PartitionProduceResponse
        (answer,) = response.responses[0].partition_responses
        return answer


def test_buffer_lets_the_log_grow() -> None:
    bench = Bench("buffer")
    for _ in range(50):
        assert bench.produce().error_code == ErrorCode.NONE
        assert bench.throttle_ms == 0
    assert bench.partition.log.size_bytes() > 4 * BOUND
    assert bench.overflow.counters == {}


# Drop.


def test_drop_keeps_the_newest_within_the_bound() -> None:
    bench = Bench("drop")
    for _ in range(50):
        assert bench.produce().error_code == ErrorCode.NONE
    log = bench.partition.log
    one = log.bytes_from(log.log_end_offset - 1)
    assert BOUND - one < log.bytes_from(log.log_start_offset) <= BOUND
    assert log.log_end_offset == 50


def test_drop_leaves_alone_what_is_not_yet_durable() -> None:
    bench = Bench("drop")
    log = bench.partition.log
    for _ in range(30):
        bench.desk.append_unsynced("a", size=900)
        bench.overflow.after_append(bench.partition)
    assert log.log_start_offset == log.high_watermark == 0
    bench.desk.commits.run()
    assert 0 < log.bytes_from(log.log_start_offset) <= BOUND


def test_drop_of_a_page_cache_topic_needs_no_commit() -> None:
    bench = Bench("drop")
    configs = {**bench.desk.broker.store.topics["a"].configs, "flush.messages": "1000000"}
    bench.desk.broker.topics.set_configs("a", configs)
    log = bench.partition.log
    for _ in range(30):
        bench.desk.append_unsynced("a", size=900)
        bench.overflow.after_append(bench.partition)
        assert log.bytes_from(log.log_start_offset) <= BOUND


@pytest.mark.parametrize("flush_messages", ["1", "1000000"])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_what_cannot_be_dropped_now_fails_no_producer(
    flush_messages: str, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench("drop", bound=300)
    configs = {**bench.desk.broker.store.topics["a"].configs, "flush.messages": flush_messages}
    bench.desk.broker.topics.set_configs("a", configs)
    for _ in range(4):
        assert bench.produce(50).error_code == ErrorCode.NONE
    log = bench.partition.log
    start = log.log_start_offset
    log.segments[0]._reader = None

    def refuse(path: str) -> None:
        raise OSError(number, "cannot be opened", path)

    bench.desk.disk.on_open = refuse
    answer = bench.produce(50)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 4)
    assert (log.log_start_offset, log.log_end_offset) == (start, 5)
    bench.desk.clock.advance(2_000)
    assert caplog.text.count("a-0: dropping is put off") == 1

    bench.desk.disk.on_open = lambda _: None
    bench.desk.clock.advance(2_000)
    assert log.log_start_offset > start
    assert log.bytes_from(log.log_start_offset) <= 300


def test_appends_during_a_commit_are_looked_at_after_the_next() -> None:
    bench = Bench("drop")
    log = bench.partition.log
    for _ in range(20):
        bench.desk.append_unsynced("a", size=900)
        bench.overflow.after_append(bench.partition)
    files = bench.partition.begin_commit()
    for _ in range(20):
        bench.desk.append_unsynced("a", size=900)
        bench.overflow.after_append(bench.partition)
    for file in files:
        file.sync()
    bench.partition.end_commit()
    assert 0 < log.log_start_offset < log.high_watermark == 20
    bench.desk.commits.run()
    assert 20 < log.log_start_offset < 40
    assert log.bytes_from(log.log_start_offset) <= BOUND
    assert not bench.overflow._awaited


def test_what_had_been_dropped_is_dropped_again_after_a_start() -> None:
    bench = Bench("drop")
    for _ in range(50):
        bench.produce()
    log = bench.partition.log
    start = log.log_start_offset
    log.log_start_offset = 0
    bench.overflow.after_start(bench.partition)
    assert log.log_start_offset == start > 0


def test_a_default_for_topics_drops_nothing_of_the_brokers_own() -> None:
    desk = Desk({"headwater.overflow": "drop", "headwater.overflow.bytes": "1000"})
    desk.broker.create_on_demand(["__consumer_offsets"], allowed=True)
    desk.broker.topics.create([NewTopic("a", 1, {})])
    for name in ("__consumer_offsets", "a"):
        partition = desk.broker.topics.partition(name, 0)
        assert partition is not None
        desk.append(name, count=50)
        desk.broker.overflow.after_start(partition)
        assert (partition.log.log_start_offset == 0) is (name != "a")


def test_a_larger_bound_brings_nothing_back() -> None:
    bench = Bench("drop")
    for _ in range(50):
        bench.produce()
    start = bench.partition.log.log_start_offset
    store = bench.desk.broker.store
    configs = {**store.topics["a"].configs, "headwater.overflow.bytes": "1000000"}
    bench.desk.broker.topics.set_configs("a", configs)
    checkpoint = read_offsets(store._disk, f"{store.directory}/log-start-offset-checkpoint")
    assert checkpoint["a", 0] == start > 0


def test_the_newest_batch_stays_even_if_it_is_larger_than_the_bound() -> None:
    bench = Bench("drop")
    for offset in range(3):
        assert bench.produce(BOUND * 2).error_code == ErrorCode.NONE
        assert bench.partition.log.log_start_offset == offset
        assert fetch(bench, offset)[1]


def test_drop_is_counted() -> None:
    bench = Bench("drop")
    for _ in range(50):
        bench.produce()
    log = bench.partition.log
    counters = bench.overflow.counters["a", 0]
    assert counters.dropped_records == log.log_start_offset
    assert counters.dropped_bytes + log.bytes_from(log.log_start_offset) == log.size_bytes()


def test_a_slow_consumer_of_a_dropping_topic_is_out_of_range_and_starts_again() -> None:
    bench = Bench("drop")
    for _ in range(50):
        bench.produce()
    assert fetch(bench, 0) == (ErrorCode.OFFSET_OUT_OF_RANGE, b"")
    earliest = earliest_offset(bench)
    assert earliest == bench.partition.log.log_start_offset > 0
    code, records = fetch(bench, earliest)
    assert code == ErrorCode.NONE
    assert records


def test_drop_frees_segments_without_waiting_for_the_retention_check() -> None:
    bench = Bench("drop", bound=2 << 20)
    bench.desk.broker.topics.set_configs(
        "a",
        {
            "headwater.overflow": "drop",
            "headwater.overflow.bytes": str(2 << 20),
            "segment.bytes": str(1 << 20),
            "file.delete.delay.ms": "0",
        },
    )
    for _ in range(80):
        bench.produce(100_000)
    assert bench.partition.log.size_bytes() > 7 << 20
    bench.desk.clock.advance(3_000)
    assert bench.partition.log.size_bytes() <= 4 << 20
    assert bench.desk.disk.used_bytes() <= 5 << 20


def test_without_a_bound_nothing_is_dropped_or_refused() -> None:
    for policy in ("drop", "backpressure"):
        bench = Bench(policy, bound=-1)
        for _ in range(30):
            assert bench.produce().error_code == ErrorCode.NONE
        assert bench.partition.log.log_start_offset == 0


# Backpressure.


def test_backpressure_slows_then_refuses_then_resumes() -> None:
    bench = Bench("backpressure")
    delays = []
    while (answer := bench.produce()).error_code == ErrorCode.NONE:
        delays.append(bench.throttle_ms)
    log = bench.partition.log
    end = log.log_end_offset
    assert delays[:4] == [0, 0, 0, 0], "the first half is free"
    assert delays == sorted(delays)
    assert 500 < delays[-1] <= DELAY_MS_MAX
    assert bench.desk.line.muted_ms == delays[-1]
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert answer.base_offset == -1
    assert "no group has committed" in (answer.error_message or "")
    assert log.size_bytes() <= BOUND

    bench.readers.offsets = {"fast": end, "slow": 2}
    answer = bench.produce()
    assert answer.error_code == ErrorCode.NONE
    assert bench.throttle_ms > 0

    bench.readers.offsets = {"fast": end, "slow": 1}
    message = bench.produce().error_message or ""
    assert "a-0 is full: group 'slow' is" in message
    assert f"headwater.overflow.bytes is {BOUND}" in message
    assert log.log_end_offset == end + 1, "a refused batch leaves no trace"

    bench.readers.offsets = {"fast": log.log_end_offset, "slow": log.log_end_offset}
    assert bench.produce().error_code == ErrorCode.NONE
    assert bench.throttle_ms == 0


def test_what_is_sent_again_is_answered_where_nothing_new_is_taken() -> None:
    bench = Bench("backpressure")
    sequence = 0
    while (answer := bench.produce(sequence=sequence)).error_code == ErrorCode.NONE:
        last_offset = answer.base_offset
        sequence += 1
    end = bench.partition.log.log_end_offset

    again = bench.produce(sequence=sequence - 1)
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, last_offset)
    assert bench.partition.log.log_end_offset == end
    assert bench.produce(sequence=sequence).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert bench.overflow.counters["a", 0].refused == 2


def test_batches_after_a_refused_one_are_refused_alike() -> None:
    """Told that they are out of order, a client would give up its transaction."""
    bench = Bench("backpressure")
    sequence = 0
    while bench.produce(sequence=sequence).error_code == ErrorCode.NONE:
        sequence += 1
    for ahead in range(5):
        refused = bench.produce(sequence=sequence + ahead)
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS

    end = bench.partition.log.log_end_offset
    bench.readers.offsets = {"g": end}
    assert [bench.produce(sequence=sequence + ahead).base_offset for ahead in range(3)] == [
        end,
        end + 1,
        end + 2,
    ]


def test_no_batch_of_a_new_producer_is_taken_before_the_one_that_was_refused() -> None:
    """Where nothing is known of the producer, a smaller batch would pass and be its first."""
    bench = Bench("backpressure")
    bench.produce(size=5_000)
    assert bench.produce(size=6_000, sequence=0).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    for sequence in (1, 2, 1):
        later = bench.produce(size=1, sequence=sequence)
        assert later.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert "sequence number 0 was refused and has to come first" in (later.error_message or "")
    assert bench.produce(size=1).error_code == ErrorCode.NONE, "others do not wait"

    end = bench.partition.log.log_end_offset
    bench.readers.offsets = {"g": end}
    sent = [bench.produce(size=6_000, sequence=0)] + [
        bench.produce(size=1, sequence=sequence) for sequence in (1, 2)
    ]
    assert [each.base_offset for each in sent] == [end, end + 1, end + 2]


def test_a_producer_that_gave_its_first_batch_up_goes_on() -> None:
    bench = Bench("backpressure")
    bench.produce(size=5_000)
    bench.produce(size=6_000, sequence=0)
    for _ in range(3):
        bench.desk.clock.advance(PATIENCE_MS - 1)
        assert bench.produce(size=1, sequence=1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        bench.produce(size=6_000, sequence=0)
    bench.desk.clock.advance(PATIENCE_MS)
    assert bench.produce(size=1, sequence=1).error_code == ErrorCode.NONE


def test_backpressure_is_counted() -> None:
    bench = Bench("backpressure")
    sent = [bench.produce().error_code for _ in range(20)]
    counters = bench.overflow.counters["a", 0]
    assert counters.refused == sum(code != 0 for code in sent)
    assert counters.refused_bytes > counters.refused * 900
    assert counters.delayed > 0
    assert 0 < counters.delayed_ms <= counters.delayed * DELAY_MS_MAX


def test_a_batch_larger_than_the_bound_passes_when_nothing_is_owed() -> None:
    bench = Bench("backpressure")
    assert bench.produce(BOUND * 2).error_code == ErrorCode.NONE
    assert bench.produce(1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    bench.readers.offsets = {"g": 1}
    assert bench.produce(BOUND * 2).error_code == ErrorCode.NONE


def test_offsets_outside_the_log_count_as_its_ends() -> None:
    bench = Bench("backpressure")
    while bench.produce().error_code == ErrorCode.NONE:
        pass
    bench.readers.offsets = {"ahead": 10**9}
    assert bench.produce().error_code == ErrorCode.NONE
    bench.readers.offsets = {"never": -1}
    assert bench.produce().error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    bench.partition.log.trim(bench.partition.log.high_watermark)
    assert bench.produce().error_code == ErrorCode.NONE, "what was trimmed is owed to nobody"


def test_a_full_partition_refuses_only_itself() -> None:
    bench = Bench("backpressure")
    bench.desk.broker.topics.create([NewTopic("b", 1, {})])
    while bench.produce().error_code == ErrorCode.NONE:
        pass
    request = ProduceRequest(None, -1, 1000)
    for name in ("a", "b"):
        batch = build_batch([Record(0, bench.desk.clock.now_ms(), b"k", b"v" * 900)])
        topic = ProduceRequest.TopicProduceData(name)
        topic.partition_data = [ProduceRequest.PartitionProduceData(0, bytes(batch))]
        request.topic_data.append(topic)
    response = bench.desk.ask(request, 9)
    codes = [topic.partition_responses[0].error_code for topic in response.responses]
    assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE]


def test_real_groups_release_the_pressure() -> None:
    """The same with offsets that were committed through the coordinator's own store."""
    bench = Bench("backpressure")
    bench.desk.broker.overflow = Overflow(
        bench.desk.broker.groups.offsets, bench.desk.broker.store.reclaim
    )
    while bench.produce().error_code == ErrorCode.NONE:
        pass
    assert bench.produce().error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    commit(bench.desk, "g", bench.partition.log.log_end_offset)
    assert bench.produce().error_code == ErrorCode.NONE


@given(
    st.lists(st.integers(1, 4_000), min_size=1, max_size=60),
    st.lists(st.integers(0, 60), min_size=1, max_size=60),
)
def test_what_is_owed_never_outgrows_the_bound(sizes: list[int], reads: list[int]) -> None:
    """Whatever producers send and consumers commit: refused or within, and never lost."""
    bench = Bench("backpressure")
    log = bench.partition.log
    accepted = 0
    committed = 0
    for index, size in enumerate(sizes):
        committed = max(committed, min(reads[index % len(reads)], log.log_end_offset))
        bench.readers.offsets = {"g": committed}
        owed = log.bytes_from(committed)
        answer = bench.produce(size)
        if answer.error_code == ErrorCode.NONE:
            accepted += 1
            assert answer.base_offset == log.log_end_offset - 1
            assert not owed or log.bytes_from(committed) <= BOUND
    assert log.log_end_offset == accepted
    assert log.log_start_offset == 0


@given(st.lists(st.integers(1, 9_000), min_size=1, max_size=60))
def test_a_dropping_log_holds_the_newest_and_no_more_than_it_must(sizes: list[int]) -> None:
    bench = Bench("drop")
    log = bench.partition.log
    for size in sizes:
        assert bench.produce(size).error_code == ErrorCode.NONE
        start = log.log_start_offset
        last = log.bytes_from(log.log_end_offset - 1)
        assert log.bytes_from(start) <= max(BOUND, last)
        if start:
            assert log.bytes_from(start - 1) > BOUND


def test_counters_go_with_their_topic() -> None:
    desk = Desk()
    configs = {"headwater.overflow": "backpressure", "headwater.overflow.bytes": "10"}
    desk.broker.topics.create([NewTopic("a", 1, configs)])
    desk.append("a")
    partition = desk.broker.topics.partition("a", 0)
    assert partition is not None
    assert desk.broker.overflow.before_append(partition, 100).error is not None
    desk.broker.overflow.count_refused(partition, 100)
    assert desk.broker.overflow.counters
    desk.broker.topics.delete("a")
    assert desk.broker.overflow.counters == {}


@pytest.mark.parametrize("policy", ["buffer", "drop"])
def test_only_backpressure_asks_before(policy: str) -> None:
    bench = Bench(policy)
    for _ in range(30):
        bench.produce()
    assert bench.overflow.before_append(bench.partition, 10**9).error is None


def fetch(bench: Bench, offset: int) -> tuple[ErrorCode, bytes]:
    partition = FetchRequest.FetchPartition(
        0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1
    )
    topic = FetchRequest.FetchTopic("a", partitions=[partition])
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic])
    call = bench.desk.begin(request, 11)
    (response,) = [answer for asked, answer in bench.desk.line.answers if asked is call]
    answer = response.responses[0].partitions[0]
    return ErrorCode(answer.error_code), answer.records.read() if answer.records else b""


def earliest_offset(bench: Bench) -> int:
    partition = ListOffsetsRequest.ListOffsetsPartition(0, -1, EARLIEST)
    topic = ListOffsetsRequest.ListOffsetsTopic("a", [partition])
    response = bench.desk.ask(ListOffsetsRequest(topics=[topic]), 5)
    offset: int = response.topics[0].partitions[0].offset
    return offset


def commit(desk: Desk, group: str, offset: int) -> None:
    from headwater.delivery.wire.kafka.messages import OffsetCommitRequest  # noqa: PLC0415

    partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, offset)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic("a", partitions=[partition])
    response = desk.ask(OffsetCommitRequest(group, topics=[topic]), 7)
    assert response.topics[0].partitions[0].error_code == 0
