"""TxnOffsetCommit on the real broker over a disk in memory, with crashes between any two steps."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka.messages import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)
from tests.delivery.dialects.kafka.desk import Desk, WaitingCommits

NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
GROUP = "g"
TRANSACTIONAL_ID = "tid"
TIMEOUT_MS = 60_000


class TransactionalDesk(Desk):
    """A desk with one transactional producer in front of it."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        super().__init__(settings)
        self.producer = (-1, -1)
        self.broker.topics.create([NewTopic("t", 2, {})])
        self.init()

    def init(self) -> None:
        answer = self.ask(InitProducerIdRequest(TRANSACTIONAL_ID, TIMEOUT_MS, -1, -1), 5)
        assert answer.error_code == NONE
        self.producer = (answer.producer_id, answer.producer_epoch)

    def commit_request(self, offset: int, group: str = GROUP) -> TxnOffsetCommitRequest:
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, offset)
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic("t", [partition])
        return TxnOffsetCommitRequest(TRANSACTIONAL_ID, group, *self.producer, topics=[topic])

    def commit(self, offset: int, version: int = 5) -> ErrorCode:
        return code_of(self.ask(self.commit_request(offset), version))

    def end_request(self, *, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(TRANSACTIONAL_ID, *self.producer, committed)

    def end(self, *, committed: bool) -> None:
        answer = self.ask(self.end_request(committed=committed), 5)
        assert answer.error_code == NONE
        self.producer = (answer.producer_id, answer.producer_epoch)

    def add_offsets(self) -> None:
        request = AddOffsetsToTxnRequest(TRANSACTIONAL_ID, *self.producer, GROUP)
        assert self.ask(request, 4).error_code == NONE

    def stable_offset(self) -> tuple[int, ErrorCode]:
        topic = OffsetFetchRequest.OffsetFetchRequestTopics("t", partition_indexes=[0])
        group = OffsetFetchRequest.OffsetFetchRequestGroup(GROUP, topics=[topic])
        answer = self.ask(OffsetFetchRequest(groups=[group], require_stable=True), 9)
        partition = answer.groups[0].topics[0].partitions[0]
        return partition.committed_offset, ErrorCode(partition.error_code)

    def answer_to(self, call: Call) -> Any:  # noqa: ANN401 - its own class
        """The answer to a call that was begun; None while it is awaited."""
        return next((answer for answered, answer in self.line.answers if answered is call), None)

    def crash_keeping(self, seed: int) -> None:
        """Let the machine die; some of what was not synced is found again."""
        self.disk = self.disk.crash(seed)
        self.commits = WaitingCommits()
        self.broker = self._open()
        self.commits.run()


def code_of(answer: Any) -> ErrorCode:  # noqa: ANN401 - its own class
    return ErrorCode(answer.topics[0].partitions[0].error_code)


@pytest.fixture
def desk() -> TransactionalDesk:
    return TransactionalDesk()


@pytest.mark.parametrize("version", range(6))
def test_offsets_count_with_the_commit_in_every_version(
    desk: TransactionalDesk, version: int
) -> None:
    if version < 5:
        desk.add_offsets()
    assert desk.commit(7, version) is NONE
    assert desk.stable_offset() == (-1, UNSTABLE)

    desk.end(committed=True)

    assert desk.stable_offset() == (7, NONE)


def test_the_answer_waits_for_the_disk(desk: TransactionalDesk) -> None:
    call = desk.begin(desk.commit_request(7), 5)
    assert desk.answer_to(call) is None

    desk.commits.run()

    assert code_of(desk.answer_to(call)) is NONE


def test_joining_and_committing_share_a_round(desk: TransactionalDesk) -> None:
    """What is answered is durable, and so is its being part of the transaction."""
    assert desk.commit(7) is NONE

    desk.crash()
    desk.commits.run()

    assert desk.stable_offset() == (-1, UNSTABLE)
    desk.end(committed=True)
    assert desk.stable_offset() == (7, NONE)


def test_a_commit_that_comes_while_the_last_transaction_ends_waits(
    desk: TransactionalDesk,
) -> None:
    desk.commit(7)
    ending = desk.begin(desk.end_request(committed=True), 5)
    # The client learns its next epoch from the answer; one that is early guesses it.
    producer_id, epoch = desk.producer
    desk.producer = (producer_id, epoch + 1)
    call = desk.begin(desk.commit_request(8), 5)
    assert (desk.answer_to(ending), desk.answer_to(call)) == (None, None)

    desk.commits.run()

    assert desk.answer_to(ending).producer_epoch == epoch + 1
    assert code_of(desk.answer_to(call)) is NONE
    assert desk.stable_offset() == (-1, UNSTABLE)
    desk.end(committed=False)
    assert desk.stable_offset() == (7, NONE)


def test_a_transaction_that_takes_too_long_leaves_nothing(desk: TransactionalDesk) -> None:
    desk.commit(7)

    desk.clock.advance(TIMEOUT_MS + 10_000)
    desk.commits.run()

    assert desk.stable_offset() == (-1, NONE)
    assert desk.commit(8) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_new_producer_aborts_what_the_old_one_left(desk: TransactionalDesk) -> None:
    desk.commit(7)
    old = desk.producer

    desk.init()

    assert desk.stable_offset() == (-1, NONE)
    desk.producer = old
    assert desk.commit(8) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_plain_commit_beside_it_is_taken(desk: TransactionalDesk) -> None:
    desk.commit(7)
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, 5)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[partition])
    answer = desk.ask(OffsetCommitRequest(GROUP, topics=[topic]), 9)
    assert code_of(answer) is NONE

    desk.end(committed=True)

    assert desk.stable_offset() == (5, NONE)


@pytest.mark.parametrize("version", range(5))
def test_a_group_that_did_not_join_is_refused_before_v5(
    desk: TransactionalDesk, version: int
) -> None:
    refused = ErrorCode.TRANSACTION_ABORTABLE if version == 4 else ErrorCode.INVALID_TXN_STATE

    assert desk.commit(7, version) is refused
    assert desk.stable_offset() == (-1, NONE)


def test_without_a_producer_id_nobody_is_believed(desk: TransactionalDesk) -> None:
    desk.producer = (-1, -1)

    assert desk.commit(7) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert desk.commit(7, 3) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", [0, 3, 4])
def test_verification_of_older_clients_can_be_switched_off(version: int) -> None:
    desk = TransactionalDesk({"transaction.partition.verification.enable": "false"})

    assert desk.commit(7, version) is NONE
    assert desk.stable_offset() == (-1, UNSTABLE)

    # At the next start it finds its owner by the producer id, and ends with its transaction.
    desk.crash()
    desk.commits.run()
    assert desk.stable_offset() == (-1, UNSTABLE)
    desk.init()
    assert desk.stable_offset() == (-1, NONE)


STEPS = st.lists(
    st.tuples(
        st.sampled_from([4, 5]),
        st.booleans(),
        st.sampled_from([None, "commit begun", "committed", "end begun", "ended"]),
    ),
    min_size=3,
    max_size=8,
)


@given(STEPS, st.integers(0, 1 << 30))
@settings(max_examples=60)
def test_no_crash_loses_or_invents_an_offset(
    steps: list[tuple[int, bool, str | None]], seed: int
) -> None:
    """Each transaction commits the next offset; what is read afterwards is one that committed."""
    desk = TransactionalDesk()
    allowed = {-1}
    for offset, (version, committed, crash_at) in enumerate(steps):
        ended = one_transaction(desk, offset, version, committed=committed, crash_at=crash_at)
        if ended and committed:
            allowed = {offset}
        elif committed and crash_at == "end begun":
            # Nobody was told: it may have happened or not.
            allowed |= {offset}
        if crash_at is not None:
            desk.crash_keeping(seed + offset)
            desk.init()
        found, error = desk.stable_offset()
        assert error is NONE
        assert found in allowed
        allowed = {found}


def one_transaction(
    desk: TransactionalDesk, offset: int, version: int, *, committed: bool, crash_at: str | None
) -> bool:
    """Go on until the moment of the crash; tell whether the end was answered."""
    if version < 5:
        desk.add_offsets()
    call = desk.begin(desk.commit_request(offset), version)
    if crash_at == "commit begun":
        return False
    desk.commits.run()
    assert code_of(desk.answer_to(call)) is NONE
    if crash_at == "committed":
        return False
    if crash_at == "end begun":
        desk.begin(desk.end_request(committed=committed), 5)
        return False
    desk.end(committed=committed)
    return True
