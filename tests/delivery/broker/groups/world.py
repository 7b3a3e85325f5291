"""A coordinator on a log that the test makes durable when it likes, and consumers to drive it."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.record.batch import BatchHeader, parse_header, scan, stamp
from headwater.base.record.control import EndTransactionMarker, build_end_transaction
from headwater.base.settings import BrokerSettings
from headwater.delivery.broker.groups import Groups
from headwater.delivery.broker.groups.committed_offset import CommittedOffset
from headwater.delivery.broker.groups.values import (
    CommitRequest,
    GroupDescription,
    JoinRequest,
    JoinResult,
    LeavingMember,
    PartitionCommit,
    Protocol,
    SyncRequest,
    SyncResult,
)
from headwater.delivery.broker.groups.waiting import Waiting
from headwater.delivery.broker.state_topic import ProducerKey
from headwater.delivery.broker.topics import PartitionKey, Topics
from headwater.testing.manual_clock import ManualClock
from headwater.testing.seeded_chance import SeededChance

GROUP = "group"
SETTINGS = BrokerSettings.parse(
    {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "offsets.topic.num.partitions": "2",
    }
)


class FakeLog:
    """Batches in memory; what is durable survives `crash`."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.batches: list[bytes] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0

    def read(
        self, offset: int, max_bytes: int, *, upto_offset: int, at_least_one: bool
    ) -> SimpleNamespace | None:
        data = b""
        for batch in self.batches:
            ((_, header),) = scan(batch)
            fits = len(data) + len(batch) <= max_bytes or (at_least_one and not data)
            if header.last_offset >= offset and header.base_offset < upto_offset:
                if not fits:
                    break
                data += batch
        return SimpleNamespace(read=lambda: data) if data else None


class FakePartition:
    """A partition whose appends become durable when the world says so."""

    def __init__(self, index: int, world: "World") -> None:
        self.log = FakeLog(index)
        self._world = world
        self.waiting: deque[tuple[int, Callable[[], None]]] = deque()

    def append(self, batch: bytearray, header: BatchHeader) -> SimpleNamespace:
        if self._world.append_error is not None:
            raise self._world.append_error
        log = self.log
        base_offset = log.log_end_offset
        stamp(batch, 0, base_offset, 0)
        log.batches.append(bytes(batch))
        log.log_end_offset += header.last_offset_delta + 1
        if self._world.auto_settle:
            self.settle()
        return SimpleNamespace(base_offset=base_offset, last_offset=log.log_end_offset - 1)

    def when_durable(
        self, last_offset: int, action: Callable[[], None], _: Callable[[], None] | None = None
    ) -> None:
        if self.log.high_watermark > last_offset:
            action()
        else:
            self.waiting.append((last_offset, action))

    def settle(self) -> None:
        self.log.high_watermark = self.log.log_end_offset
        while self.waiting and self.waiting[0][0] < self.log.high_watermark:
            self.waiting.popleft()[1]()

    def lose_what_is_not_durable(self) -> None:
        log = self.log
        self.waiting.clear()
        log.batches = [
            batch
            for batch in log.batches
            if next(iter(scan(batch)))[1].last_offset < log.high_watermark
        ]
        log.log_end_offset = log.high_watermark


class FakeTopics:
    """Topics by name; each has an id that is never used again."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._topics: dict[str, SimpleNamespace] = {}
        self._when_deleted: list[Callable[[str], None]] = []
        self._ids = iter(range(1, 1 << 30))

    def get(self, name: str) -> SimpleNamespace | None:
        return self._topics.get(name)

    def partition(self, topic: str, index: int) -> FakePartition | None:
        found = self._topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        partition: FakePartition = found.partitions[index]
        return partition

    def create(self, new_topics: Sequence[Any]) -> list[SimpleNamespace]:
        if self._world.append_error is not None:
            raise self._world.append_error
        created = []
        for new in new_topics:
            topic = SimpleNamespace(
                name=new.name,
                topic_id=next(self._ids).to_bytes(16, "big"),
                configs=dict(new.configs),
                partitions=[FakePartition(i, self._world) for i in range(new.partitions)],
            )
            self._topics[new.name] = topic
            created.append(topic)
        return created

    def delete(self, name: str) -> None:
        del self._topics[name]
        for action in self._when_deleted:
            action(name)

    def when_deleted(self, action: Callable[[str], None]) -> None:
        self._when_deleted.append(action)

    def forget_listeners(self) -> None:
        self._when_deleted.clear()

    def offsets_partitions(self) -> Iterator[FakePartition]:
        topic = self._topics.get("__consumer_offsets")
        yield from topic.partitions if topic is not None else ()


class World:
    """Everything that the coordinator needs, under the test's control."""

    def __init__(self, *, auto_settle: bool = True, topics: Sequence[str] = ("t",)) -> None:
        self.auto_settle = auto_settle
        self.append_error: KafkaError | None = None
        self.clock = ManualClock()
        self.settings = SETTINGS
        self.topics = FakeTopics(self)
        for name in topics:
            self.add_topic(name)
        self.groups = self._new_groups()
        self.groups.load()

    def set(self, **settings: Any) -> None:  # noqa: ANN401
        """Start again with other settings."""
        self.settings = replace(self.settings, **settings)
        self.restart()

    def restart(self) -> None:
        """Stop in order and start again."""
        self.settle()
        self.groups.close()
        self._start_again()

    def crash(self) -> None:
        """Lose all memory and whatever was not durable."""
        for partition in self.topics.offsets_partitions():
            partition.lose_what_is_not_durable()
        self._start_again()

    def _start_again(self) -> None:
        self.topics.forget_listeners()
        self.clock = ManualClock(now_ms=self.clock.now_ms())
        self.groups = self._new_groups()
        self.groups.load()

    def _new_groups(self) -> Groups:
        return Groups(
            topics=cast("Topics", self.topics),
            settings=self.settings,
            clock=self.clock,
            timers=self.clock,
            chance=SeededChance(len(self.topics._topics)),
        )

    def add_topic(self, name: str, partitions: int = 4) -> None:
        self.topics.create([SimpleNamespace(name=name, partitions=partitions, configs={})])

    def settle(self) -> None:
        """Make everything durable that was appended."""
        for partition in self.topics.offsets_partitions():
            partition.settle()

    def describe(self, group_id: str = GROUP) -> GroupDescription:
        description = self.groups.describe(group_id)
        assert description is not None
        return description

    def commit(
        self,
        offset: int,
        *,
        group: str = GROUP,
        topic: str = "t",
        partition: int = 0,
        member_id: str = "",
        generation_id: int = -1,
        metadata: str = "",
        retention_ms: int = -1,
        group_instance_id: str | None = None,
    ) -> list[ErrorCode]:
        """Commit one offset; the list is empty until the answer comes."""
        answer: list[ErrorCode] = []
        self.groups.committing.commit(
            CommitRequest(
                group_id=group,
                member_id=member_id,
                group_instance_id=group_instance_id,
                generation_id=generation_id,
                partitions=(PartitionCommit(topic, partition, offset, -1, metadata),),
                retention_ms=retention_ms,
            ),
            answer.extend,
        )
        return answer

    def commit_in_transaction(
        self,
        offset: int,
        *,
        producer: int = 1,
        epoch: int = 0,
        group: str = GROUP,
        topic: str = "t",
        partition: int = 0,
        member_id: str = "",
        generation_id: int = -1,
        metadata: str = "",
        group_instance_id: str | None = None,
    ) -> list[ErrorCode]:
        """Commit one offset in a transaction; the list is empty until the answer comes."""
        answer: list[ErrorCode] = []
        self.groups.committing.commit_in_transaction(
            CommitRequest(
                group_id=group,
                member_id=member_id,
                group_instance_id=group_instance_id,
                generation_id=generation_id,
                partitions=(PartitionCommit(topic, partition, offset, -1, metadata),),
            ),
            ProducerKey(producer, epoch),
            answer.extend,
        )
        return answer

    def end_transaction(
        self, *, committed: bool, producer: int = 1, epoch: int = 0, group: str = GROUP
    ) -> None:
        """Write the marker into the group's partition; the groups hear of it when it is durable."""
        index = self.groups.partition_of(group)
        partition = self.topics.partition("__consumer_offsets", index)
        assert partition is not None
        batch = build_end_transaction(
            EndTransactionMarker(committed, 0),
            timestamp=self.clock.now_ms(),
            producer_id=producer,
            producer_epoch=epoch,
        )
        appended = partition.append(batch, parse_header(batch))
        partition.when_durable(
            appended.last_offset,
            lambda: self.groups.committing.transaction_ended(
                producer, epoch, [index], committed=committed
            ),
        )

    def is_pending(self, partition: int = 0, *, group: str = GROUP, topic: str = "t") -> bool:
        return self.groups.offsets.pending.is_pending(group, (topic, partition))

    def committed(self, partition: int = 0, *, group: str = GROUP, topic: str = "t") -> int | None:
        found = self.groups.offsets.get(group, topic, partition)
        return found.offset if found is not None else None

    def leave(self, *leaving: LeavingMember, group: str = GROUP) -> list[ErrorCode]:
        answer: list[ErrorCode] = []

        def reply(error: ErrorCode, errors: Sequence[ErrorCode]) -> None:
            answer.extend([error] if error else errors)

        self.groups.membership.leave(group, leaving, reply)
        return answer

    def delete(self, group: str = GROUP) -> list[ErrorCode]:
        answer: list[ErrorCode] = []
        self.groups.forgetting.delete_group(group, answer.append)
        return answer

    def delete_offsets(
        self, *partitions: PartitionKey, group: str = GROUP
    ) -> list[tuple[ErrorCode, list[ErrorCode]]]:
        answer: list[tuple[ErrorCode, list[ErrorCode]]] = []
        self.groups.forgetting.delete_offsets(
            group, partitions, lambda error, errors: answer.append((error, list(errors)))
        )
        return answer

    def snapshot(self) -> dict[str, Any]:
        """All that must be the same after a restart."""
        offsets: dict[str, dict[PartitionKey, CommittedOffset]] = {
            group_id: dict(self.groups.offsets.of_group(group_id))
            for group_id, _, _ in self.groups.listing()
        }
        return {
            "offsets": offsets,
            "groups": sorted(self.groups.describe_all(), key=lambda group: group.group_id),
        }


def subscription(*topics: str) -> bytes:
    """What a consumer says about itself: version 0, topics, no user data."""
    listed = b"".join(len(t).to_bytes(2, "big") + t.encode() for t in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + listed + b"\xff\xff\xff\xff"


RANGE = (Protocol("range", subscription("t")),)


@dataclass
class Consumer:
    """A client that joins, syncs and beats as the protocol wants it to."""

    world: World
    group: str = GROUP
    member_id: str = ""
    instance: str | None = None
    protocols: tuple[Protocol, ...] = RANGE
    protocol_type: str = "consumer"
    session_ms: int = 10_000
    rebalance_ms: int = 60_000
    version: int = 9
    joins: list[JoinResult] = field(default_factory=list)
    syncs: list[SyncResult] = field(default_factory=list)
    generation: int = -1
    waiting_join: Waiting[JoinResult] | None = None
    waiting_sync: Waiting[SyncResult] | None = None

    def join(self) -> JoinResult | None:
        """Send one JoinGroup; return the answer if it came at once."""
        count = len(self.joins)
        self.waiting_join = self.world.groups.joining.join(
            JoinRequest(
                group_id=self.group,
                member_id=self.member_id,
                group_instance_id=self.instance,
                client_id="client",
                client_host="/127.0.0.1",
                session_timeout_ms=self.session_ms,
                rebalance_timeout_ms=self.rebalance_ms,
                protocol_type=self.protocol_type,
                protocols=self.protocols,
                member_id_required=self.version >= 4,
                can_skip_assignment=self.version >= 9,
            ),
            self._joined,
        )
        return self.joins[-1] if len(self.joins) > count else None

    def _joined(self, result: JoinResult) -> None:
        self.joins.append(result)
        if result.error in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
            self.member_id = result.member_id
        if not result.error:
            self.generation = result.generation_id

    def enter(self) -> JoinResult | None:
        """Join, with the id that the coordinator asks for if it does."""
        result = self.join()
        if result is not None and result.error is ErrorCode.MEMBER_ID_REQUIRED:
            result = self.join()
        return result

    def sync(
        self,
        assignments: dict[str, bytes] | None = None,
        **changes: Any,  # noqa: ANN401
    ) -> SyncResult | None:
        """Send one SyncGroup; return the answer if it came at once."""
        count = len(self.syncs)
        request = SyncRequest(
            group_id=self.group,
            member_id=self.member_id,
            group_instance_id=self.instance,
            generation_id=self.generation,
            protocol_type=None,
            protocol_name=None,
            assignments=assignments or {},
        )
        self.waiting_sync = self.world.groups.membership.sync(
            replace(request, **changes), self.syncs.append
        )
        return self.syncs[-1] if len(self.syncs) > count else None

    def beat(self, generation: int | None = None) -> ErrorCode:
        return self.world.groups.membership.heartbeat(
            self.group,
            self.member_id,
            self.instance,
            self.generation if generation is None else generation,
        )

    def commit(self, offset: int, **more: Any) -> list[ErrorCode]:  # noqa: ANN401
        return self.world.commit(
            offset,
            group=self.group,
            member_id=self.member_id,
            generation_id=self.generation,
            group_instance_id=self.instance,
            **more,
        )

    def leave(self) -> list[ErrorCode]:
        return self.world.leave(LeavingMember(self.member_id, self.instance), group=self.group)

    @property
    def joined(self) -> JoinResult:
        """The last answer to a join, which must be a good one."""
        result = self.joins[-1]
        assert not result.error, result
        return result

    @property
    def is_leader(self) -> bool:
        return self.joined.leader == self.member_id


def stable_group(world: World, count: int = 2, **options: Any) -> list[Consumer]:  # noqa: ANN401
    """Bring a group of consumers to Stable; the first one leads."""
    consumers = [Consumer(world, **options) for _ in range(count)]
    for consumer in consumers:
        consumer.enter()
    world.clock.advance(world.settings.group_initial_rebalance_delay_ms)
    settle_rebalance(consumers)
    return consumers


def settle_rebalance(consumers: Sequence[Consumer]) -> None:
    """Let everybody sync; each gets an assignment that names it and the generation."""
    leaders = [consumer for consumer in consumers if consumer.is_leader]
    (leader,) = leaders
    for consumer in consumers:
        assignments = {}
        if consumer is leader:
            assignments = {
                member.member_id: assignment_for(member.member_id, consumer.generation)
                for member in consumer.joined.members
            }
        consumer.sync(assignments)
    leader.world.settle()
    for consumer in consumers:
        assert consumer.syncs[-1].assignment == assignment_for(
            consumer.member_id, consumer.generation
        )


def assignment_for(member_id: str, generation: int) -> bytes:
    return f"{member_id}@{generation}".encode()
