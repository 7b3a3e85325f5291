"""Transactional producers that commit offsets, one request at a time.

This file alone decides how the suite spells the requests around TxnOffsetCommit. Like `kit` it
judges nothing.
"""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import Talk, Topic, code, unique

NONE = ErrorCode.NONE
KIP_890 = 5
_PATIENCE_S = 20.0
_POLL_S = 0.005

Answer = TypeVar("Answer")


def until(expected: Answer, ask: Callable[[], Answer]) -> None:
    """Ask until the answer is the expected one: Apache Kafka writes its markers by and by."""
    end_s = time.monotonic() + _PATIENCE_S
    while (found := ask()) != expected:
        assert time.monotonic() < end_s, (found, expected)
        time.sleep(_POLL_S)


class Transactional:
    """A transactional producer, one request at a time, by the protocol of a TxnOffsetCommit."""

    def __init__(self, talk: Talk, version: int = KIP_890) -> None:
        self.talk = talk
        self.version = version
        self.transactional_id = unique("transaction")
        self.producer_id = self.producer_epoch = -1
        self.init()

    def init(self) -> None:
        """Become the producer of the transactional id; another one is fenced."""
        request = messages.InitProducerIdRequest(self.transactional_id, 60_000, -1, -1)
        answer = self._ask(request, 5 if self.version >= KIP_890 else 4)
        assert code(answer) is NONE
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch

    def add(self, group: str) -> ErrorCode:
        """Let the group's offsets join the transaction, where committing does not do that."""
        if self.version >= KIP_890:
            return NONE
        request = messages.AddOffsetsToTxnRequest(
            self.transactional_id, self.producer_id, self.producer_epoch, group
        )
        return code(self._ask(request, 3))

    def commit(
        self,
        group: str,
        topic: Topic,
        offsets: dict[int, tuple[int, int, str | None]],
        *,
        generation: int = -1,
        member_id: str = "",
        instance: str | None = None,
    ) -> dict[int, ErrorCode]:
        """Commit offset, leader epoch and metadata of partitions; gives their errors."""
        partition = messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
        wanted = messages.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
            topic.name, [partition(index, *each) for index, each in offsets.items()]
        )
        request = messages.TxnOffsetCommitRequest(
            self.transactional_id,
            group,
            self.producer_id,
            self.producer_epoch,
            generation,
            member_id,
            instance,
            [wanted],
        )
        (answer,) = self._ask(request, self.version).topics
        assert answer.name == topic.name
        return {each.partition_index: code(each) for each in answer.partitions}

    def commit_one(self, group: str, topic: Topic, offset: int, **who: Any) -> ErrorCode:  # noqa: ANN401 - as commit
        """Commit one offset of partition 0."""
        return self.commit(group, topic, {0: (offset, -1, "")}, **who)[0]

    def end(self, *, committed: bool) -> ErrorCode:
        """End the transaction."""
        request = messages.EndTxnRequest(
            self.transactional_id, self.producer_id, self.producer_epoch, committed
        )
        answer = self._ask(request, 5 if self.version >= KIP_890 else 4)
        if self.version >= KIP_890 and not answer.error_code:
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        return code(answer)

    def _ask(self, request: Any, version: int) -> Any:  # noqa: ANN401 - any message
        """Ask again while Apache Kafka is busy with the last transaction or with starting."""
        end_s = time.monotonic() + _PATIENCE_S
        while True:
            answer = self.talk.ask(request, version)
            errors = {each.error_code for each in _with_codes(answer)}
            if not errors & _BUSY:
                return answer
            assert time.monotonic() < end_s, errors
            self.talk.ask(messages.FindCoordinatorRequest(self.transactional_id, 1), 3)
            time.sleep(_POLL_S)


_BUSY = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


def _with_codes(answer: Any) -> list[Any]:  # noqa: ANN401 - any answer
    if hasattr(answer, "error_code"):
        return [answer]
    return [partition for topic in answer.topics for partition in topic.partitions]


def stable_offset(
    talk: Talk, group: str, topic: Topic, version: int = 7, *, partition: int = 0
) -> tuple[int, ErrorCode]:
    """Fetch an offset with require_stable."""
    fetch = messages.OffsetFetchRequest
    if version >= 8:
        asked = fetch.OffsetFetchRequestGroup(
            group,
            None,
            -1,
            [fetch.OffsetFetchRequestTopics(topic.name, topic.topic_id, [partition])],
        )
        (answer,) = talk.ask(fetch(groups=[asked], require_stable=True), version).groups
    else:
        request = fetch(group, [fetch.OffsetFetchRequestTopic(topic.name, [partition])])
        request.require_stable = True
        answer = talk.ask(request, version)
    assert code(answer) is NONE
    ((found,),) = [each.partitions for each in answer.topics]
    if found.error_code:
        assert (found.committed_leader_epoch, found.metadata) == (-1, "")
    return found.committed_offset, code(found)
