"""Members come, go, crash, time out and restart in any order; so does the broker.

Strategy: random consumers, static and dynamic, follow the protocol with random pauses. The disk
makes things durable when the machine says so, fails appends, and forgets what was not durable.

Invariants:
* All who are told of a generation are told the same leader and protocol; one of them gets the list
  of members, and is the leader.
* All assignments that are handed out in a generation come from one sync of its leader.
* Offsets are exactly those that were durable, in the order of the commits, through every crash.
* A stopped broker comes back with the groups it had.
* Nobody waits longer than the rebalance time-out: a join or sync is answered by then.
* When all consumers have gone, so have members, timers and memory.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from headwater.base.errors import ErrorCode, StorageError
from headwater.delivery.broker.groups.rebalancing import NEW_MEMBER_JOIN_TIMEOUT_MS
from headwater.delivery.broker.groups.states import GroupState
from headwater.delivery.broker.groups.values import JoinResult, LeavingMember, SyncResult
from tests.delivery.broker.groups.world import GROUP, Consumer, World

SESSION_MS = 2_000
REBALANCE_MS = 5_000
INITIAL_DELAY_MS = 1_000
KEYS = [("t", 0), ("t", 1), ("u", 0)]

numbers = st.integers(0, 7)


class Tracked(Consumer):
    """A consumer that notes since when it waits, and reports what it is told."""

    def __init__(self, machine: "Churn", instance: str | None, version: int) -> None:
        super().__init__(
            machine.world,
            instance=instance,
            version=version,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        self.machine = machine
        self.alive = True
        self.join_since_ms: int | None = None
        self.sync_since_ms: int | None = None
        self.synced_generation = -1

    def try_join(self) -> None:
        if self.join_since_ms is None:
            self.join_since_ms = self.machine.now_ms()
            self.join()

    def _joined(self, result: JoinResult) -> None:
        self.join_since_ms = None
        super()._joined(result)
        if result.error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
            self.member_id = ""
        self.machine.told_of_generation(self, result)

    def try_sync(self, assignments: dict[str, bytes]) -> None:
        if self.sync_since_ms is None:
            self.sync_since_ms = self.machine.now_ms()
            known = len(self.syncs)
            self.syncs = _Listened(self.syncs, self._synced)
            self.sync(assignments)
            assert len(self.syncs) - known in {0, 1}

    def _synced(self, result: SyncResult) -> None:
        self.sync_since_ms = None
        if not result.error:
            self.synced_generation = self.generation
        self.machine.told_of_assignment(self, result)

    def die(self) -> None:
        self.alive = False
        self.join_since_ms = self.sync_since_ms = None
        for waiting in (self.waiting_join, self.waiting_sync):
            if waiting is not None:
                waiting.abandon()

    def forget_requests(self) -> None:
        """The broker that held them is gone; so are the connections."""
        self.join_since_ms = self.sync_since_ms = None


class _Listened(list[SyncResult]):
    def __init__(self, items: list[SyncResult], listener: Callable[[SyncResult], None]) -> None:
        super().__init__(items)
        self._listener = listener

    def append(self, item: SyncResult) -> None:
        super().append(item)
        self._listener(item)


class Churn(RuleBasedStateMachine):
    """Drives one group until something is wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(auto_settle=False, topics=("t", "u"))
        self.consumers: list[Tracked] = []
        self.visible: dict[tuple[str, int], int] = {}
        self.on_its_way: list[dict[tuple[str, int], int] | None] = []
        self.incarnation = 0
        self.generations: dict[tuple[int, int], tuple[str, str | None]] = {}
        self.givers: dict[tuple[int, int], bytes] = {}
        self.nonce = 0
        self.passed_ms = 0

    @initialize(delay_ms=st.sampled_from([0, INITIAL_DELAY_MS]))
    def settings_of_the_broker(self, delay_ms: int) -> None:
        self.world.set(
            group_initial_rebalance_delay_ms=delay_ms, offsets_retention_minutes=2**31 - 1
        )

    def now_ms(self) -> int:
        return self.passed_ms

    def pick(self, number: int) -> Tracked | None:
        alive = [consumer for consumer in self.consumers if consumer.alive]
        return alive[number % len(alive)] if alive else None

    # What consumers do

    @precondition(lambda self: sum(c.alive for c in self.consumers) < 6)
    @rule(instance=st.sampled_from([None, None, "i1", "i2"]), version=st.sampled_from([3, 8, 9]))
    def start_consumer(self, instance: str | None, version: int) -> None:
        consumer = Tracked(self, instance, version)
        self.consumers.append(consumer)
        consumer.try_join()

    @rule(number=numbers)
    def join(self, number: int) -> None:
        if consumer := self.pick(number):
            consumer.try_join()

    @rule()
    def everybody_rejoins_who_must(self) -> None:
        for consumer in self.consumers:
            if consumer.alive and consumer.beat() is not ErrorCode.NONE:
                consumer.try_join()

    @rule(number=numbers)
    def sync(self, number: int) -> None:
        if consumer := self.pick(number):
            self._sync(consumer)

    @rule()
    def everybody_syncs(self) -> None:
        for consumer in self.consumers:
            if consumer.alive and consumer.synced_generation < consumer.generation:
                self._sync(consumer)

    def _sync(self, consumer: Tracked) -> None:
        self.nonce += 1
        consumer.try_sync(
            {
                member.member_id: f"{member.member_id}#{self.nonce}".encode()
                for result in consumer.joins[-1:]
                for member in result.members
            }
        )

    @rule(number=numbers)
    def beat(self, number: int) -> None:
        if consumer := self.pick(number):
            consumer.beat()

    @rule(number=numbers)
    def leave(self, number: int) -> None:
        if consumer := self.pick(number):
            consumer.leave()

    @rule(number=numbers)
    def die(self, number: int) -> None:
        if consumer := self.pick(number):
            consumer.die()

    @rule(instance=st.sampled_from(["i1", "i2"]))
    def remove_by_instance(self, instance: str) -> None:
        self.world.leave(LeavingMember("", instance))

    # Offsets

    @rule(number=numbers, key=st.sampled_from(KEYS), offset=st.integers(0, 1_000))
    def commit(self, number: int, key: tuple[str, int], offset: int) -> None:
        topic, partition = key
        consumer = self.pick(number)
        if consumer is None:
            answer = self.world.commit(offset, topic=topic, partition=partition)
        else:
            answer = consumer.commit(offset, topic=topic, partition=partition)
        if not answer:
            self.on_its_way.append({key: offset})

    @rule()
    def delete_group(self) -> None:
        if not self.world.delete():
            self.on_its_way.append(None)
            # A new group of the name begins to count again.
            self.incarnation += 1

    # What the machine does

    @rule()
    def settle(self) -> None:
        self.world.settle()
        for change in self.on_its_way:
            if change is None:
                self.visible.clear()
            else:
                self.visible |= change
        self.on_its_way.clear()

    @rule(duration_ms=st.sampled_from([1, 100, 900, 1_500, 2_000, 4_000]))
    def time_passes(self, duration_ms: int) -> None:
        # In small steps, with a disk that keeps up, so that bounds on waiting are exact.
        for _ in range(0, duration_ms, 100):
            self.settle()
            self.world.clock.advance(min(duration_ms, 100))
            self.passed_ms += min(duration_ms, 100)
        self.settle()

    @rule(number=numbers)
    def an_append_fails(self, number: int) -> None:
        self.world.append_error = StorageError("disk full")
        self.sync(number)
        self.world.append_error = None

    @rule()
    def crash(self) -> None:
        self.world.crash()
        self.on_its_way.clear()
        self._broker_is_new()

    @rule()
    def restart(self) -> None:
        self.settle()
        before = self.world.groups.describe(GROUP)
        self.world.restart()
        self.settle()
        after = self.world.groups.describe(GROUP)
        if before is not None and before.state is GroupState.STABLE:
            assert after == before
        self._broker_is_new()

    def _broker_is_new(self) -> None:
        self.incarnation += 1
        for consumer in self.consumers:
            consumer.forget_requests()

    # What must hold

    def told_of_generation(self, consumer: Tracked, result: JoinResult) -> None:
        if result.error:
            return
        assert result.member_id == consumer.member_id
        key = (self.incarnation, result.generation_id)
        said = (_who(result.leader), result.protocol_name)
        assert self.generations.setdefault(key, said) == said
        if result.members:
            assert result.leader == consumer.member_id
            assert consumer.member_id in {member.member_id for member in result.members}

    def told_of_assignment(self, consumer: Tracked, result: SyncResult) -> None:
        if result.error or not result.assignment:
            return
        owner, _, nonce = result.assignment.partition(b"#")
        assert _who(owner.decode()) == _who(consumer.member_id)
        key = (self.incarnation, consumer.generation)
        assert self.givers.setdefault(key, nonce) == nonce

    @invariant()
    def offsets_are_what_was_durable(self) -> None:
        stored: Any = self.world.groups.offsets.of_group(GROUP)
        assert {key: committed.offset for key, committed in stored.items()} == self.visible

    @invariant()
    def nobody_waits_too_long(self) -> None:
        bound_ms = REBALANCE_MS + INITIAL_DELAY_MS + 100
        for consumer in self.consumers:
            for since_ms in (consumer.join_since_ms, consumer.sync_since_ms):
                assert since_ms is None or self.passed_ms - since_ms <= bound_ms, consumer

    def teardown(self) -> None:
        self.world.append_error = None
        self.settle()
        for consumer in self.consumers:
            consumer.die()
        self.world.clock.advance(NEW_MEMBER_JOIN_TIMEOUT_MS + 4 * REBALANCE_MS)
        self.settle()
        group = self.world.groups.describe(GROUP)
        if group is not None:
            assert group.state is GroupState.EMPTY, group
            self.world.delete()
            self.settle()
        assert self.world.groups.listing() == []
        assert self.world.groups.offsets.of_group(GROUP) == {}
        assert self.world.clock.pending_timers == 1, "only the search for expired offsets goes on"


def _who(member_id: str) -> str:
    """A static member is the same one under each of its ids."""
    instance = member_id.split("-", maxsplit=1)[0]
    return instance if instance.startswith("i") else member_id


TestChurn = Churn.TestCase
TestChurn.settings = settings(max_examples=60, stateful_step_count=60)
