"""What a reader of committed data is shown: how far, which records, and what it must leave out."""

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import (
    HEADWATER,
    Subject,
    Talk,
    Topic,
    batch_of,
    code,
    create_topic,
    fetch,
    list_offset,
    offsets_of,
    produce,
    produce_request,
)
from tests.contracts.transactional import Transactional, until

COMMITTED = 1
LATEST = -1
FETCH_VERSIONS = (4, 7, 11, 12, 16)


class Writer(Transactional):
    """A transactional producer of one partition; each write is a batch of its own."""

    def __init__(self, talk: Talk, topic: Topic) -> None:
        super().__init__(talk)
        self._topic = topic
        self._sequence = 0

    def write(self, *values: bytes) -> int:
        """Write a batch; gives its first offset."""
        batch = batch_of(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self._sequence,
            is_transactional=True,
        )
        request = produce_request(self._topic, {0: batch})
        request.transactional_id = self.transactional_id

        answer = messages.ProduceResponse.PartitionProduceResponse()

        def sent() -> ErrorCode:
            nonlocal answer
            answer = self.talk.ask(request, 12).responses[0].partition_responses[0]
            return code(answer)

        until(ErrorCode.NONE, sent)
        self._sequence += len(values)
        return int(answer.base_offset)

    def close(self, *, committed: bool) -> None:
        """End the transaction, and wait until readers know."""
        assert self.end(committed=committed) is ErrorCode.NONE
        self._sequence = 0


def stable(talk: Talk, topic: Topic) -> int:
    return int(list_offset(talk, topic.name, LATEST, isolation_level=COMMITTED).offset)


def settle(talk: Talk, topic: Topic, offset: int) -> None:
    """Wait for markers, which Apache Kafka writes by and by."""
    until(offset, lambda: stable(talk, topic))


def aborted(
    talk: Talk, topic: Topic, offset: int, *, version: int = 12, **limits: int
) -> list[tuple[int, int]]:
    """List the aborted transactions that come with a fetch."""
    answer = fetch(talk, topic, offset, version=version, isolation_level=COMMITTED, **limits)
    assert answer.aborted_transactions is not None
    return [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_an_open_transaction_hides_all_behind_it(talk: Talk, topic: Topic, version: int) -> None:
    produce(talk, topic, batch_of(b"plain"))
    writer = Writer(talk, topic)
    writer.write(b"open", b"open")
    produce(talk, topic, batch_of(b"plain too"))

    answer = fetch(talk, topic, 0, version=version, isolation_level=COMMITTED)

    assert offsets_of(answer.records) == [0]
    assert (answer.high_watermark, answer.last_stable_offset) == (4, 1)
    assert offsets_of(fetch(talk, topic, 0, version=version).records) == [0, 1, 2, 3]
    writer.close(committed=True)
    settle(talk, topic, 5)
    answer = fetch(talk, topic, 0, version=version, isolation_level=COMMITTED)
    assert offsets_of(answer.records)[:4] == [0, 1, 2, 3]
    assert answer.aborted_transactions == []


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_an_aborted_transaction_is_named(talk: Talk, topic: Topic, version: int) -> None:
    writer = Writer(talk, topic)
    writer.write(b"a")
    writer.write(b"b", b"c")
    writer.close(committed=False)
    settle(talk, topic, 4)
    writer.write(b"d")
    writer.close(committed=True)
    settle(talk, topic, 6)

    assert aborted(talk, topic, 0, version=version) == [(writer.producer_id, 0)]
    # Also to one who begins in its middle; no more to one who begins behind its end.
    assert aborted(talk, topic, 2, version=version) == [(writer.producer_id, 0)]
    assert aborted(talk, topic, 3, version=version) == [(writer.producer_id, 0)]
    assert aborted(talk, topic, 4, version=version) == []


def test_transactions_that_overlap_end_one_by_one(talk: Talk, topic: Topic) -> None:
    first, second, third = (Writer(talk, topic) for _ in range(3))
    first.write(b"1")
    second.write(b"2")
    third.write(b"3")
    second.close(committed=False)
    # The oldest that is open decides.
    assert stable(talk, topic) == 0
    first.close(committed=True)
    settle(talk, topic, 2)
    third.close(committed=False)
    settle(talk, topic, 6)

    # In the order of their ends.
    assert aborted(talk, topic, 0) == [(second.producer_id, 1), (third.producer_id, 2)]


def test_a_fetch_names_what_its_own_records_need(broker: Subject, talk: Talk, topic: Topic) -> None:
    writers = []
    for number in range(3):
        writer = Writer(talk, topic)
        writer.write(b"x" * 2_000)
        writer.close(committed=False)
        settle(talk, topic, 2 * number + 2)
        writers.append(writer)
    everything = [(writer.producer_id, 2 * index) for index, writer in enumerate(writers)]

    assert aborted(talk, topic, 0) == everything
    found = aborted(talk, topic, 2, partition_max_bytes=1)

    # Kafka rounds the range up to what its index knows; what lies before it never comes.
    assert found in (everything[1:2], everything[1:])
    # Ours reads where its records end.
    assert found == everything[1:2] or broker.name != HEADWATER


def test_transactions_over_many_segments(talk: Talk) -> None:
    topic = create_topic(talk, configs={"segment.bytes": str(1 << 20)})
    writer = Writer(talk, topic)
    for _ in range(4):
        writer.write(b"x" * 600_000)
    writer.close(committed=False)
    settle(talk, topic, 5)

    for offset in range(4):
        assert aborted(talk, topic, offset) == [(writer.producer_id, 0)], offset


def test_the_end_of_committed_data_is_told(talk: Talk, topic: Topic) -> None:
    produce(talk, topic, batch_of(b"plain", timestamp=1_000))
    writer = Writer(talk, topic)
    writer.write(b"open")

    assert stable(talk, topic) == 1
    assert list_offset(talk, topic.name, LATEST).offset == 2
    # Of records that may be aborted nobody is told a time.
    by_time = list_offset(talk, topic.name, 2_000, isolation_level=COMMITTED)
    assert (code(by_time), by_time.offset) == (ErrorCode.NONE, -1)
    writer.close(committed=True)
    settle(talk, topic, 3)


def test_a_reader_at_the_stable_end_waits_for_the_commit(talk: Talk, topic: Topic) -> None:
    writer = Writer(talk, topic)
    writer.write(b"open")

    answer = fetch(talk, topic, 0, isolation_level=COMMITTED, max_wait_ms=100, min_bytes=1)

    assert (bytes(answer.records), answer.last_stable_offset) == (b"", 0)
    writer.close(committed=True)
    # The end is what it waits for, not another write.
    answer = fetch(talk, topic, 0, isolation_level=COMMITTED, max_wait_ms=20_000, min_bytes=1)
    assert offsets_of(answer.records)[:1] == [0]


def test_a_position_beyond_the_stable_end(talk: Talk, topic: Topic) -> None:
    writer = Writer(talk, topic)
    writer.write(b"open", b"open")

    answer = fetch(talk, topic, 1, isolation_level=COMMITTED)

    assert (code(answer), bytes(answer.records)) == (ErrorCode.NONE, b"")
    writer.close(committed=False)
