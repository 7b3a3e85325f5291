"""The phases of a rebalance and the time-outs that end them.

This file alone decides when a group leaves one phase for the next, who is dropped on the way, and
what those who waited are told. It does not judge requests: `joining` and `membership` do, and call
in here with their verdict.

Join phase (PreparingRebalance): every member has to send JoinGroup again. It ends when all have,
or after the longest rebalance time-out, which costs the missing dynamic members their membership.
A group that was Empty waits ``group.initial.rebalance.delay.ms`` instead, again and again while
new members arrive, so that a fleet that starts up is assigned once, not member by member.

Sync phase (CompletingRebalance): the leader sends everybody's assignment, the others ask for
theirs and wait. It ends when the assignment is durable; whoever has not asked within the rebalance
time-out is dropped and the rest begins again.

Answers are given only after all state has changed: an answer may bring the next request with it.
"""

import logging
from collections.abc import Callable
from functools import partial

from headwater.base.clock import Clock, Timers
from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.append_errors import error_for_client
from headwater.delivery.broker.groups.deadline import Deadline
from headwater.delivery.broker.groups.group import Group
from headwater.delivery.broker.groups.member import Member
from headwater.delivery.broker.groups.needs import GroupSettings, OffsetsLog
from headwater.delivery.broker.groups.records import group_entry
from headwater.delivery.broker.groups.states import GroupState
from headwater.delivery.broker.groups.table import GroupTable
from headwater.delivery.broker.groups.values import JoinResult, SyncResult
from headwater.delivery.broker.groups.waiting import Waiting

_log = logging.getLogger(__name__)

# Kafka's bound on how long a member that has never completed a join may be waited for: it cannot
# send heartbeats yet, and a client that gave up has joined again under another id.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


class Rebalancing:
    """Moves groups through their phases."""

    def __init__(
        self,
        *,
        table: GroupTable,
        log: OffsetsLog,
        settings: GroupSettings,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._table = table
        self._log = log
        self._settings = settings
        self._clock = clock
        self._timers = timers

    # Sessions

    def start_session(self, group: Group, member: Member, timeout_ms: int) -> None:
        """Expect to hear of the member within the time-out."""
        if member.session is None:
            member.session = Deadline(
                self._clock, self._timers, partial(self._session_ended, group, member)
            )
        member.session.move(timeout_ms)

    def heard_of(self, group: Group, member: Member) -> None:
        """Prolong the member's session."""
        self.start_session(group, member, member.session_timeout_ms)

    def expect_join(self, group: Group, member_id: str, timeout_ms: int) -> None:
        """Keep a given-out id for as long as its session would last."""
        deadline = Deadline(
            self._clock, self._timers, partial(self._pending_join_ended, group, member_id)
        )
        group.pending_joins[member_id] = deadline
        deadline.move(timeout_ms)

    def drop_pending_join(self, group: Group, member_id: str) -> None:
        """Forget a given-out id."""
        group.pending_joins.pop(member_id).cancel()

    def _pending_join_ended(self, group: Group, member_id: str) -> None:
        if group.pending_joins.pop(member_id, None) is None:
            return
        _log.info("group %s: id %s was never used", group.group_id, member_id)
        self.maybe_complete_join(group)
        self._table.forget_if_void(group)

    def _session_ended(self, group: Group, member: Member) -> None:
        if group.members.get(member.member_id) is not member or member.may_be_silent():
            return
        _log.info("group %s: session of %s ended", group.group_id, member.member_id)
        self.remove_member(group, member)
        self.prepare_or_complete(group, f"the session of {member.member_id} ended")

    # Members

    def remove_member(self, group: Group, member: Member) -> None:
        """Take a member out; if it waits for an answer, it learns that it is no member."""
        group.remove(member)
        if member.session is not None:
            member.session.cancel()
        join, member.join = member.join, None
        sync, member.sync = member.sync, None
        if join is not None:
            join.answer(JoinResult(error=ErrorCode.UNKNOWN_MEMBER_ID))
        if sync is not None:
            sync.answer(SyncResult(error=ErrorCode.UNKNOWN_MEMBER_ID))

    def await_join(self, group: Group, member: Member, waiting: Waiting[JoinResult]) -> None:
        """Hold a join back until the join phase ends; an older one of the member is let go."""
        replaced, member.join = member.join, waiting
        waiting.when_abandoned(partial(self.heard_of, group, member))
        if replaced is not None:
            replaced.answer(
                JoinResult(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
            )

    def await_sync(self, group: Group, member: Member, waiting: Waiting[SyncResult]) -> None:
        """Hold a sync back until the assignment is durable; an older one is let go."""
        replaced, member.sync = member.sync, waiting
        waiting.when_abandoned(partial(self.heard_of, group, member))
        if replaced is not None:
            replaced.answer(SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS))

    # The join phase

    def prepare_or_complete(self, group: Group, reason: str) -> None:
        """Begin a rebalance, or see whether the one under way can go on."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self.maybe_complete_join(group)
        else:
            self.prepare(group, reason)

    def prepare(self, group: Group, reason: str) -> None:
        """Begin a rebalance."""
        _log.info("group %s: rebalance: %s", group.group_id, reason)
        answers = self._give_up_syncs(group)
        self._end_sync_timer(group)
        group.pending_syncs.clear()
        initial = group.state is GroupState.EMPTY
        group.transition(GroupState.PREPARING_REBALANCE, self._clock.now_ms())
        if initial:
            group.new_member_added = False
            delay_ms = self._settings.group_initial_rebalance_delay_ms
            self._delay_initial(group, delay_ms, group.rebalance_timeout_ms() - delay_ms)
        elif group.all_joined():
            self.complete_join(group)
        else:
            self._start_join_timer(group)
        for waiting, member in answers:
            self.heard_of(group, member)
            waiting.answer(SyncResult(error=ErrorCode.REBALANCE_IN_PROGRESS))

    def maybe_complete_join(self, group: Group) -> None:
        """End the join phase if all are there, unless the initial delay holds it open."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is not GroupState.EMPTY
            and group.all_joined()
        ):
            self.complete_join(group)

    def complete_join(self, group: Group) -> None:
        """End the join phase with those who are there."""
        if group.join_timer is not None:
            group.join_timer.cancel()
            group.join_timer = None
        for member in tuple(group.members.values()):
            if member.join is None and member.group_instance_id is None:
                _log.info("group %s: %s did not rejoin", group.group_id, member.member_id)
                self.remove_member(group, member)
        if group.members and not group.elect_joined_leader():
            # Only static members, none of which is back: their sessions decide.
            self._start_join_timer(group)
            return
        group.next_generation(self._clock.now_ms())
        if group.state is GroupState.EMPTY:
            _log.info("group %s: empty at generation %d", group.group_id, group.generation_id)
            self._store_empty(group)
        else:
            self._begin_sync_phase(group)

    def _delay_initial(self, group: Group, delay_ms: int, remaining_ms: int) -> None:
        group.join_timer = self._timers.after(
            delay_ms, partial(self._initial_delay_ended, group, delay_ms, max(0, remaining_ms))
        )

    def _initial_delay_ended(self, group: Group, delay_ms: int, remaining_ms: int) -> None:
        if not self._in_join_phase(group):
            return
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            delay_next_ms = min(self._settings.group_initial_rebalance_delay_ms, remaining_ms)
            self._delay_initial(group, delay_next_ms, remaining_ms - delay_ms)
        else:
            self.complete_join(group)

    def _start_join_timer(self, group: Group) -> None:
        group.join_timer = self._timers.after(
            group.rebalance_timeout_ms(), partial(self._join_time_ended, group)
        )

    def _join_time_ended(self, group: Group) -> None:
        if self._in_join_phase(group):
            self.complete_join(group)

    @staticmethod
    def _in_join_phase(group: Group) -> bool:
        group.join_timer = None
        return group.state is GroupState.PREPARING_REBALANCE

    def _store_empty(self, group: Group) -> None:
        try:
            self._log.append(group.group_id, [group_entry(group)], _nothing_more)
        except KafkaError as error:
            # After a restart the last generation would be found again, and its members time out.
            _log.warning(
                "group %s: could not record that it is empty: %s", group.group_id, error.message
            )

    # The sync phase

    def _begin_sync_phase(self, group: Group) -> None:
        _log.info(
            "group %s: generation %d with %d members, protocol %s",
            group.group_id,
            group.generation_id,
            len(group.members),
            group.protocol_name,
        )
        answers: list[tuple[Waiting[JoinResult], JoinResult]] = []
        for member in group.members.values():
            member.is_new = False
            group.pending_syncs.add(member.member_id)
            self.heard_of(group, member)
            if member.join is not None:
                answers.append((member.join, generation_result(group, member)))
                member.join = None
        group.sync_timer = self._timers.after(
            group.rebalance_timeout_ms(),
            partial(self._sync_time_ended, group, group.generation_id),
        )
        for waiting, result in answers:
            waiting.answer(result)

    def has_synced(self, group: Group, member: Member) -> None:
        """Note that a member has asked for its assignment."""
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            self._end_sync_timer(group)

    def store_assignment(self, group: Group, assignments: dict[str, bytes]) -> None:
        """Write the leader's assignment down, then hand it out."""
        generation_id = group.generation_id
        if group.storing_generation == generation_id:
            return
        group.storing_generation = generation_id
        try:
            self._log.append(
                group.group_id,
                [group_entry(group, assignments)],
                partial(self._assignment_stored, group, generation_id, assignments),
            )
        except KafkaError as error:
            code = error_for_client(error)
            _log.warning(
                "group %s: assignment could not be stored: %s", group.group_id, error.message
            )
            answers = self._give_up_syncs(group)
            self.prepare(group, "its assignment could not be stored")
            for waiting, member in answers:
                self.heard_of(group, member)
                waiting.answer(SyncResult(error=code))

    def _assignment_stored(
        self, group: Group, generation_id: int, assignments: dict[str, bytes]
    ) -> None:
        if (
            group.state is not GroupState.COMPLETING_REBALANCE
            or group.generation_id != generation_id
        ):
            # A member came or went meanwhile: the assignment is void, its waiters were told.
            return
        group.transition(GroupState.STABLE, self._clock.now_ms())
        answers: list[tuple[Waiting[SyncResult], SyncResult]] = []
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync is not None:
                self.heard_of(group, member)
                answers.append((member.sync, assignment_result(group, member)))
                member.sync = None
        for waiting, result in answers:
            waiting.answer(result)

    def _sync_time_ended(self, group: Group, generation_id: int) -> None:
        if group.generation_id != generation_id or group.state not in {
            GroupState.COMPLETING_REBALANCE,
            GroupState.STABLE,
        }:
            return
        group.sync_timer = None
        late = [group.members[member_id] for member_id in sorted(group.pending_syncs)]
        for member in late:
            _log.info("group %s: %s did not sync", group.group_id, member.member_id)
            self.remove_member(group, member)
        if late:
            self.prepare(group, f"{len(late)} members did not ask for their assignment")

    @staticmethod
    def _give_up_syncs(group: Group) -> list[tuple[Waiting[SyncResult], Member]]:
        """Collect the syncs that wait for an assignment that will not come."""
        if group.state is not GroupState.COMPLETING_REBALANCE:
            return []
        waiters: list[tuple[Waiting[SyncResult], Member]] = []
        for member in group.members.values():
            member.assignment = b""
            if member.sync is not None:
                waiters.append((member.sync, member))
                member.sync = None
        return waiters

    @staticmethod
    def _end_sync_timer(group: Group) -> None:
        if group.sync_timer is not None:
            group.sync_timer.cancel()
            group.sync_timer = None

    # The end

    def close(self, group: Group) -> None:
        """Stop all timers of a group and send whoever waits to look for another coordinator."""
        if group.join_timer is not None:
            group.join_timer.cancel()
        self._end_sync_timer(group)
        for deadline in group.pending_joins.values():
            deadline.cancel()
        answers: list[Callable[[], None]] = []
        for member in group.members.values():
            if member.session is not None:
                member.session.cancel()
            if member.join is not None:
                result = JoinResult(error=ErrorCode.NOT_COORDINATOR, member_id=member.member_id)
                answers.append(partial(member.join.answer, result))
            if member.sync is not None:
                answers.append(
                    partial(member.sync.answer, SyncResult(error=ErrorCode.NOT_COORDINATOR))
                )
            member.join = member.sync = None
        for answer in answers:
            answer()


def generation_result(group: Group, member: Member, *, skip_assignment: bool = False) -> JoinResult:
    """Tell a member of the generation; only the leader learns who else is in it."""
    is_leader = group.leader_id == member.member_id
    return JoinResult(
        member_id=member.member_id,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        skip_assignment=skip_assignment and is_leader,
        members=group.joined_members() if is_leader else (),
    )


def assignment_result(group: Group, member: Member) -> SyncResult:
    """Tell a member what it is to read."""
    return SyncResult(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def _nothing_more() -> None:
    pass
