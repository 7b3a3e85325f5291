"""Requests that find no free descriptor: each is answered, and the next try succeeds."""

import errno
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.base.errors import ErrorCode
from headwater.base.record.records import Record, build_batch
from headwater.base.schema import Message, Struct
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.wire.kafka.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeLogDirsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    ProduceRequest,
)
from tests.delivery.dialects.kafka.desk import Desk

FIRST_MOMENTS = range(1, 30)
OPEN_NOTHING = {
    "describe log dirs",
    "init producer",
    "find coordinator",
    "create topics",
    "create partitions",
}
PARTITIONS = 3
MINUTE_MS = 60_000


def make_desk() -> Desk:
    """Return a broker with closed segments whose handles and indexes were let go."""
    desk = Desk({"headwater.max.open.files": "64"})
    configs = {"segment.bytes": "1048576", "index.interval.bytes": "100"}
    desk.broker.topics.create([NewTopic("t", PARTITIONS, configs)])
    for partition in range(PARTITIONS):
        desk.append("t", partition, count=6, size=400_000)
    desk.broker.topics.create([NewTopic("new", 2, {})])
    for _ in range(3):
        desk.broker.store.checkpoint()
    return desk


def produce(name: str, *partitions: int) -> ProduceRequest:
    data = [
        ProduceRequest.PartitionProduceData(
            index, build_batch([Record(0, 1_700_000_000_000, b"k", bytes(400_000))])
        )
        for index in partitions
    ]
    topic = ProduceRequest.TopicProduceData(name=name, partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[topic])


def fetch(*, offset: int = 0, min_bytes: int = 0, max_wait_ms: int = 0) -> FetchRequest:
    asked = [
        FetchRequest.FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=1_000_000, log_start_offset=-1
        )
        for index in range(PARTITIONS)
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=10_000_000,
        isolation_level=1,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic="t", partitions=asked)],
    )


def list_offsets() -> ListOffsetsRequest:
    asked = [ListOffsetsRequest.ListOffsetsPartition(index, -1, 1) for index in range(PARTITIONS)]
    return ListOffsetsRequest(-1, 0, [ListOffsetsRequest.ListOffsetsTopic("t", asked)])


def commit_offset() -> OffsetCommitRequest:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, 2, committed_metadata="")
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
    return OffsetCommitRequest("g", -1, "", topics=[topic])


def trim() -> DeleteRecordsRequest:
    partitions = [DeleteRecordsRequest.DeleteRecordsPartition(0, 3)]
    return DeleteRecordsRequest([DeleteRecordsRequest.DeleteRecordsTopic("t", partitions)], 1_000)


REQUESTS: dict[str, tuple[Callable[[], Message], int | None]] = {
    "produce": (lambda: produce("t", 0, 1), 12),
    "first produce": (lambda: produce("new", 0, 1), 12),
    "fetch": (fetch, 12),
    "list offsets": (list_offsets, None),
    "commit offset": (commit_offset, 8),
    "delete records": (trim, None),
    "describe log dirs": (lambda: DescribeLogDirsRequest(None), None),
    "init producer": (lambda: InitProducerIdRequest(None, 1_000), None),
    "init transactions": (lambda: InitProducerIdRequest("txn", 1_000), None),
    "find coordinator": (lambda: FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), None),
    "metadata": (lambda: MetadataRequest([MetadataRequest.MetadataRequestTopic(name="auto")]), 9),
    "create topics": (
        lambda: CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("other", 1, 1)]),
        None,
    ),
    "create partitions": (
        lambda: CreatePartitionsRequest(
            [CreatePartitionsRequest.CreatePartitionsTopic("new", 5, None)], 1_000
        ),
        None,
    ),
    "delete topics": (
        lambda: DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState("t")], timeout_ms=1_000),
        None,
    ),
}


def codes(found: Any) -> Iterator[ErrorCode]:  # noqa: ANN401 - any message, and what is in it
    """Go through all error codes of an answer."""
    if isinstance(found, list | tuple):
        for each in found:
            yield from codes(each)
    elif isinstance(found, Struct):
        names: tuple[str, ...] = type(found).__plain__.__slots__
        for name in names:
            if name == "error_code":
                yield ErrorCode(getattr(found, name))
            else:
                yield from codes(getattr(found, name))


def answer_of(desk: Desk, request: Message, version: int | None) -> list[ErrorCode]:
    """Ask, and let the broker's timer run until it has answered."""
    call = desk.begin(request, version)
    for _ in range(5):
        desk.commits.run()
        answers = [answer for asked, answer in desk.line.answers if asked is call]
        if answers:
            return list(codes(answers[0]))
        desk.disk.on_open = lambda _: None
        desk.clock.advance(1_000)
    raise AssertionError("it is not answered")


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE], ids=["process", "machine"])
@pytest.mark.parametrize("name", REQUESTS)
def test_every_request_is_answered_and_succeeds_later(name: str, code: int) -> None:
    """The process has too many files open, or the whole machine."""
    make, version = REQUESTS[name]
    refusals: set[ErrorCode] = set()
    for first in FIRST_MOMENTS:
        desk = make_desk()
        opens = 0

        def refuse(path: str, first: int = first) -> None:
            nonlocal opens
            opens += 1
            if opens >= first:
                raise OSError(code, os.strerror(code), path)

        desk.disk.on_open = refuse
        refused = answer_of(desk, make(), version)
        desk.disk.on_open = lambda _: None
        desk.clock.advance(2_000)
        desk.commits.run()
        assert not desk.broker.store.failed
        if any(refused):
            refusals.update(refused)
            assert not any(answer_of(desk, make(), version)), "the next try succeeds"
        if opens < first:
            break
    else:
        pytest.fail("there are moments that were not tried")
    retriable = {
        ErrorCode.NONE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        # The first answer about a topic that comes into being.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert refusals <= retriable
    assert bool(refusals) == (name not in OPEN_NOTHING)


def test_an_answer_ends_where_the_files_run_out() -> None:
    """The partitions behind have nothing this time, as when the answer is full; no error."""
    desk = make_desk()
    # Half of them may be handed out.
    desk.disk.handles.most = 4
    desk.begin(fetch(), 12)
    ((_, answer),) = desk.line.answers
    partitions = answer.responses[0].partitions
    assert {each.error_code for each in partitions} == {ErrorCode.NONE}
    assert [each.partition_index for each in partitions if each.records] == [0, 1]
    assert {each.high_watermark for each in partitions} == {6}


def test_a_first_partition_that_cannot_be_read_is_told() -> None:
    desk = make_desk()
    desk.disk.handles.most = 0
    (topic,) = desk.ask(fetch(), 12).responses
    told = {each.error_code for each in topic.partitions}
    assert told == {ErrorCode.KAFKA_STORAGE_ERROR}


def test_a_fetch_that_waits_for_more_keeps_no_file_open() -> None:
    desk = make_desk()
    open_before = len(desk.disk.handles)
    call = desk.begin(fetch(min_bytes=9_000_000, max_wait_ms=MINUTE_MS), 12)
    assert desk.line.answers == []
    while desk.disk.handles.close_one():
        pass
    assert len(desk.disk.handles) == open_before

    desk.clock.advance(MINUTE_MS)
    (answer,) = [answer for asked, answer in desk.line.answers if asked is call]
    partitions = answer.responses[0].partitions
    assert [each.error_code for each in partitions] == [ErrorCode.NONE] * PARTITIONS
    assert all(each.records for each in partitions)
