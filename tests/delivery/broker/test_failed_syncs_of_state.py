"""A disk that fails under the broker's own topics: the next start shows what is durable alone."""

import errno
import itertools
import os
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.base.errors import ErrorCode
from headwater.base.schema import Message
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.wire.kafka.messages import (
    EndTxnRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    TxnOffsetCommitRequest,
)
from headwater.testing.memory_disk import MemoryDisk
from tests.delivery.dialects.kafka.desk import Desk

GROUPS = ("a", "b")
STATE_TOPICS = ("__consumer_offsets", "__transaction_state")
SETTINGS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}
BROKEN = OSError(errno.EIO, os.strerror(errno.EIO))


class Life:
    """A broker until its disk fails, with what it was asked for and what it has answered."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.desk = Desk(SETTINGS, disk=disk)
        self.acknowledged: dict[str, int] = {}
        self.asked: dict[str, int] = {}
        self.epochs: dict[str, int] = {}

    def run(self) -> bool:
        """Commit offsets, with and without transactions; tell whether the disk has failed."""
        try:
            for offset, group in itertools.product(range(1, 4), GROUPS):
                if not (
                    self._commit(group, 10 * offset)
                    and self._commit_in_transaction(group, 10 * offset + 1)
                ):
                    return True
        except OSError as error:
            # The round of syncs has failed, and a broker ends there.
            if error is not BROKEN:
                raise
            return True
        return bool(self.desk.broker.store.failed)

    def _ask(self, request: Message, version: int) -> Any:  # noqa: ANN401 - its own class
        """Return the answer of a broker that has not ended yet."""
        if self.desk.broker.store.failed:
            raise BROKEN
        return self.desk.ask(request, version)

    def _commit(self, group: str, offset: int) -> bool:
        self.asked[group] = offset
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, offset)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[partition])
        answer = self._ask(OffsetCommitRequest(group, topics=[topic]), 9)
        if answer.topics[0].partitions[0].error_code != ErrorCode.NONE:
            return False
        self.acknowledged[group] = offset
        return True

    def _commit_in_transaction(self, group: str, offset: int) -> bool:
        name = f"x{group}"
        begun = self._ask(InitProducerIdRequest(name, 900_000, -1, -1), 5)
        if begun.error_code != ErrorCode.NONE:
            return False
        self.epochs[name] = begun.producer_epoch
        self.asked[group] = offset
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, offset)
        topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic("t", [partition])
        producer = begun.producer_id, begun.producer_epoch
        answer = self._ask(TxnOffsetCommitRequest(name, group, *producer, topics=[topic]), 5)
        if answer.topics[0].partitions[0].error_code != ErrorCode.NONE:
            return False
        ended = self._ask(EndTxnRequest(name, *producer, committed=True), 5)
        if ended.error_code != ErrorCode.NONE:
            return False
        self.epochs[name] = ended.producer_epoch
        self.acknowledged[group] = offset
        return True

    def offsets(self) -> dict[str, int]:
        known = self.desk.broker.groups.offsets
        found = {group: known.get(group, "t", 0) for group in GROUPS}
        return {group: each.offset for group, each in found.items() if each is not None}

    def producers(self) -> dict[str, tuple[int, int]]:
        found = {f"x{group}": self.desk.broker.transactions.get(f"x{group}") for group in GROUPS}
        return {
            name: (each.producer_id, each.producer_epoch)
            for name, each in found.items()
            if each is not None
        }


def new_life() -> Life:
    life = Life()
    life.desk.broker.topics.create([NewTopic("t", 1, {})])
    return life


def operations_under_state_topics() -> Iterator[int]:
    """Return the numbers of a life's operations on files of the broker's own topics."""
    life = new_life()
    before = life.desk.disk.operations
    assert not life.run()
    for operation in life.desk.disk.trace[before:]:
        if any(topic in operation.path for topic in STATE_TOPICS):
            yield operation.number


@pytest.mark.parametrize("failing_once", [True, False], ids=["once", "from then on"])
def test_the_next_start_shows_what_is_durable_and_all_that_was_acknowledged(
    failing_once: bool,
) -> None:
    syncs = 0
    for number in operations_under_state_topics():
        life = new_life()
        life.desk.disk.fail_at(number, BROKEN)
        if not failing_once:
            for later in range(number + 1, number + 20):
                life.desk.disk.fail_at(later, BROKEN)
        assert life.run(), f"operation {number} fails, and the broker goes on"
        syncs += life.desk.disk.trace[number - 1].kind == "sync"
        disk = life.desk.disk.after_kill()
        if disk.read_only:
            # Names could not be synced: nothing starts before the file system is mounted anew.
            disk = life.desk.disk.after_power_cut(0, keep="nothing")

        # The page cache still shows what the failed sync has lost.
        again = Life(disk)
        shown = again.offsets(), again.producers()
        after = Life(disk.after_power_cut(0, keep="nothing"))
        assert (after.offsets(), after.producers()) == shown, number

        # A commit is answered when it is decided; a start writes the markers that are missing.
        after.desk.commits.run()
        for group, offset in life.acknowledged.items():
            assert offset <= after.offsets()[group] <= life.asked[group], number
        for name, epoch in life.epochs.items():
            assert after.producers()[name][1] >= epoch, number
    assert syncs > 10, "files of state topics are synced"
