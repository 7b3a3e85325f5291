"""The requests of a transactional client, one after the other.

This file alone decides how they are put, in the old protocol and in that of KIP-890. A transaction
is a script of steps; a step that was not answered is asked again as it was, which is what makes a
repetition recognizable.

    old    AddPartitionsToTxn, Produce v11, AddOffsetsToTxn, TxnOffsetCommit v4, EndTxn v4
    new    Produce v12, TxnOffsetCommit v5, EndTxn v5, which gives the next epoch
"""

import random
from dataclasses import dataclass

from headwater.base.record.records import Record, build_batch
from headwater.base.schema import Message
from headwater.delivery.wire.kafka import messages
from tests.crash.txn.history import Entry, Place

Asked = tuple[Message, int]
"""A request and the version to ask it in."""


@dataclass(frozen=True)
class Enlist:
    """Add a partition to the transaction: the old protocol only."""

    place: Place


@dataclass(frozen=True)
class Write:
    """Send records to a partition: in one batch, or ``piped``, each on its own without waiting."""

    place: Place
    values: tuple[str, ...]
    piped: bool = False

    def batches(self) -> list[tuple[str, ...]]:
        """Return the values of each batch."""
        return [(value,) for value in self.values] if self.piped else [self.values]


@dataclass(frozen=True)
class EnlistGroup:
    """Add a group to the transaction: the old protocol only."""

    group: str


@dataclass(frozen=True)
class Commit:
    """Let the group go on behind these inputs if the transaction commits."""

    group: str
    place: Place
    offsets: tuple[int, ...]
    next: int


@dataclass(frozen=True)
class Finish:
    """Commit or abort."""

    commit: bool


Step = Enlist | Write | EnlistGroup | Commit | Finish


@dataclass
class Identity:
    """Who a producer is at the moment."""

    transactional_id: str
    producer_id: int = -1
    epoch: int = -1


def compose(
    dice: random.Random, name: str, places: list[Place], *, new: bool, commit: bool
) -> list[Step]:
    """Plan a transaction that writes here and there."""
    steps: list[Step] = []
    enlisted: set[Place] = set()
    for number in range(dice.randint(1, 3)):
        place = dice.choice(places)
        if not new and place not in enlisted:
            steps.append(Enlist(place))
        enlisted.add(place)
        values = tuple(f"{name}/{number}.{i}" for i in range(dice.randint(1, 3)))
        steps.append(Write(place, values, piped=dice.random() < 0.5))
    return [*steps, Finish(commit)]


def transform(
    name: str, group: str, source: Place, entries: tuple[Entry, ...], target: Place, *, new: bool
) -> list[Step]:
    """Plan a transaction that turns records of one partition into records of another."""
    steps: list[Step] = [] if new else [Enlist(target)]
    steps.append(Write(target, tuple(f"{name}<{offset}" for offset, _ in entries)))
    if not new:
        steps.append(EnlistGroup(group))
    offsets = tuple(offset for offset, _ in entries)
    steps.append(Commit(group, source, offsets, offsets[-1] + 1))
    return [*steps, Finish(commit=True)]


def initialize(identity: Identity, timeout_ms: int) -> Asked:
    """Ask for an id."""
    request = messages.InitProducerIdRequest(
        transactional_id=identity.transactional_id, transaction_timeout_ms=timeout_ms
    )
    return request, 4


def ask(identity: Identity, step: Step, sequence: int, now_ms: int, *, new: bool) -> list[Asked]:
    """Return the requests of a step; ``sequence`` is that of the first record of a write."""
    if isinstance(step, Write):
        asked: list[Asked] = []
        for values in step.batches():
            request = produce(identity, step.place, values, sequence, now_ms)
            asked.append((request, 12 if new else 11))
            sequence += len(values)
        return asked
    return [_ask(identity, step, new=new)]


def _ask(identity: Identity, step: Enlist | EnlistGroup | Commit | Finish, *, new: bool) -> Asked:
    who = (identity.transactional_id, identity.producer_id, identity.epoch)
    match step:
        case Enlist((topic, partition)):
            added = messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(topic, [partition])
            return (
                messages.AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=who[0],
                    v3_and_below_producer_id=who[1],
                    v3_and_below_producer_epoch=who[2],
                    v3_and_below_topics=[added],
                ),
                3,
            )
        case EnlistGroup(group):
            return messages.AddOffsetsToTxnRequest(*who, group), 3
        case Commit():
            return _commit(identity, step), 5 if new else 4
        case Finish(commit):
            return messages.EndTxnRequest(*who, commit), 5 if new else 4


def produce(
    identity: Identity, place: Place, values: tuple[str, ...], sequence: int, now_ms: int
) -> messages.ProduceRequest:
    """Send one batch; outside of transactions where the identity has no transactional id."""
    batch = build_batch(
        # Each has a key of its own: compaction finds nothing that a later one replaces.
        [Record(0, now_ms, value.encode(), value.encode()) for value in values],
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=sequence,
        is_transactional=identity.transactional_id != "",
    )
    data = messages.ProduceRequest.PartitionProduceData(place[1], batch)
    topic = messages.ProduceRequest.TopicProduceData(name=place[0], partition_data=[data])
    transactional_id = identity.transactional_id or None
    return messages.ProduceRequest(transactional_id, acks=-1, timeout_ms=1000, topic_data=[topic])


def _commit(identity: Identity, step: Commit) -> messages.TxnOffsetCommitRequest:
    request = messages.TxnOffsetCommitRequest
    offset = request.TxnOffsetCommitRequestPartition(
        partition_index=step.place[1], committed_offset=step.next
    )
    return request(
        transactional_id=identity.transactional_id,
        group_id=step.group,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        topics=[request.TxnOffsetCommitRequestTopic(step.place[0], [offset])],
    )


def fetch(positions: dict[Place, int], *, committed: bool, wait_ms: int) -> Asked:
    """Read some partitions."""
    request = messages.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=int(committed),
        session_id=0,
        session_epoch=-1,
    )
    for (topic, partition), offset in positions.items():
        wanted = messages.FetchRequest.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        request.topics.append(messages.FetchRequest.FetchTopic(topic=topic, partitions=[wanted]))
    return request, 12


def fetch_offset(group: str, place: Place) -> Asked:
    """Ask for a group's offset, a stable one."""
    topic = messages.OffsetFetchRequest.OffsetFetchRequestTopic(place[0], [place[1]])
    return messages.OffsetFetchRequest(group_id=group, topics=[topic], require_stable=True), 7
