"""Reads topics as a member of a consumer group.

This file alone decides how a member joins, shares, keeps alive and leaves. Partitions are shared
out by range, as Kafka's default assignor does it, so that members written in other languages fit
in. Offsets are committed by `commit`, and when partitions are taken away.

Heartbeats are sent by a thread of their own, on a connection of their own, because a reader may
take its time with what it got.
"""

import contextlib
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from headwater.base.errors import RETRIABLE, ErrorCode, KafkaError
from headwater.delivery.client import admin
from headwater.delivery.client.assignment import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from headwater.delivery.client.cluster import Cluster, Place
from headwater.delivery.client.consumer import Consumer, Message
from headwater.delivery.client.errors import BrokerUnreachableError
from headwater.delivery.wire.kafka import messages

_PROTOCOL_TYPE = "consumer"
_ASSIGNOR = "range"
_RETRY_PAUSE_S = 0.1
_HEARTBEATS_PER_SESSION = 3

REJOIN = {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
}
"""Errors that say: the group goes on without us until we have joined again."""

_FINAL = {
    ErrorCode.FENCED_INSTANCE_ID: "another member has our instance id: give each one its own",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "ask whoever runs the broker to be let in",
}
"""Errors after which joining again would be wrong, with what to do."""


class GroupConsumer:
    """One member of a group; `poll` joins, reads and rejoins as needed."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Sequence[str],
        *,
        from_start: bool = True,
        read_committed: bool = False,
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        instance_id: str | None = None,
    ) -> None:
        """Prepare to join.

        Args:
            cluster: Where from; the consumer uses connections of its own on it.
            group: The group's name.
            topics: What to read.
            from_start: Where to begin in partitions without a committed offset.
            read_committed: Whether records of open and aborted transactions are left out.
            session_timeout_ms: After this silence the group gives our partitions to others.
            rebalance_timeout_ms: How long the group waits for us to rejoin.
            instance_id: A name that survives restarts, for static membership.
        """
        self._cluster = cluster
        self._group = group
        self._topics = sorted(set(topics))
        self._from_start = from_start
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._instance_id = instance_id
        self._read_committed = read_committed
        self._consumer = Consumer(cluster, read_committed=read_committed)
        self._settled: dict[Place, int] = {}
        self._generation = -1
        self._member_id = ""
        self._heart: _Heart | None = None
        self._away_since_s: float | None = None

    @property
    def assignment(self) -> list[Place]:
        """The partitions that are ours at present."""
        return sorted(self._consumer.positions)

    @property
    def positions(self) -> dict[Place, int]:
        """The offset that is read next in each of our partitions."""
        return self._consumer.positions

    @property
    def has_moved(self) -> bool:
        """Whether there is something to commit, be it only places that hold nothing to show."""
        return any(self._settled.get(at) != offset for at, offset in self.positions.items())

    def poll(self, timeout_s: float = 1.0) -> list[Message]:
        """Return what our partitions have; join or rejoin the group first if that is due.

        Raises:
            KafkaError: FENCED_INSTANCE_ID, now and ever after, when another member has come with
                our instance id: our partitions are its.
        """
        self._stop_if_ended()
        if self._heart is None or self._heart.rejoin.is_set():
            self._join()
        if not self._consumer.positions:
            time.sleep(min(timeout_s, _RETRY_PAUSE_S))
            return []
        try:
            messages = self._consumer.poll(timeout_s)
        except BrokerUnreachableError:
            if self._is_away_too_long():
                raise
            time.sleep(_RETRY_PAUSE_S)
            return []
        except KafkaError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            self._leave_gone_offsets()
            return []
        self._away_since_s = None
        return messages

    def commit(self, offsets: Mapping[Place, int] | None = None) -> None:
        """Commit everything that `poll` has returned so far, or the offsets that are given.

        Args:
            offsets: What is read next, for a reader who has not yet dealt with all it got.
                Partitions that are no longer ours are left out.

        Raises:
            KafkaError: The partitions are others' by now; the next `poll` rejoins.
        """
        ours = self._consumer.positions
        if offsets is not None:
            ours = {place: offset for place, offset in offsets.items() if place in ours}
        if not ours:
            return
        try:
            admin.commit_offsets(
                self._cluster,
                self._group,
                ours,
                generation=self._generation,
                member_id=self._member_id,
                instance_id=self._instance_id,
            )
        except KafkaError as error:
            if error.code in REJOIN and self._heart is not None:
                self._heart.rejoin.set()
            raise
        self._settled |= ours

    def close(self) -> None:
        """Leave the group, so that others take over at once."""
        self._stop_heart()
        if self._member_id and self._instance_id is None:
            member = messages.LeaveGroupRequest.MemberIdentity(member_id=self._member_id)
            with contextlib.suppress(KafkaError, BrokerUnreachableError):
                self._cluster.coordinator(self._group).call(
                    messages.LeaveGroupRequest(
                        group_id=self._group, member_id=self._member_id, members=[member]
                    )
                )
        self._member_id = ""
        self._consumer.assign({})

    def __enter__(self) -> Self:
        """Use the member in a with block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the group."""
        self.close()

    # --- joining --------------------------------------------------------------------------------

    def _join(self) -> None:
        """Go through join and sync until the group has settled with us in it."""
        self._stop_heart()
        self._commit_if_possible()
        self._consumer.assign({})
        deadline_s = time.monotonic() + self._rebalance_timeout_ms / 1000
        while True:
            try:
                assigned = self._join_once()
                break
            except BrokerUnreachableError:
                # At first there must be one; later it may restart and we wait for it.
                if self._generation < 0 or time.monotonic() > deadline_s:
                    raise
                self._cluster.forget_coordinator(self._group)
                time.sleep(_RETRY_PAUSE_S)
            except KafkaError as error:
                passing = error.code in RETRIABLE or error.code in REJOIN
                if not passing or time.monotonic() > deadline_s:
                    raise
                if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
                    self._member_id = ""
                if error.code in {
                    ErrorCode.NOT_COORDINATOR,
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                }:
                    self._cluster.forget_coordinator(self._group)
                time.sleep(_RETRY_PAUSE_S)
        # It beats first: where to begin may have to wait for somebody's transaction.
        self._heart = _Heart(
            self._cluster,
            messages.HeartbeatRequest(
                self._group, self._generation, self._member_id, self._instance_id
            ),
            self._session_timeout_ms / 1000 / _HEARTBEATS_PER_SESSION,
        )
        try:
            self._settled = self._start_positions(assigned)
        except BaseException:
            self._stop_heart()
            raise
        self._consumer.assign(self._settled)

    def _join_once(self) -> list[Place]:
        response = self._send_join()
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
            response = self._send_join()
        _check(response.error_code)
        self._member_id = response.member_id
        self._generation = response.generation_id
        assignments = []
        if response.leader == response.member_id:
            assignments = self._share_out(response.members)
        request = messages.SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=_ASSIGNOR,
            assignments=assignments,
        )
        answer = self._coordinator().call(request, timeout_s=self._patience_s())
        _check(answer.error_code)
        return decode_assignment(answer.assignment)

    def _send_join(self) -> Any:  # noqa: ANN401 - a JoinGroupResponse
        metadata = encode_subscription(self._topics)
        request = messages.JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[messages.JoinGroupRequest.JoinGroupRequestProtocol(_ASSIGNOR, metadata)],
        )
        return self._coordinator().call(request, timeout_s=self._patience_s())

    def _coordinator(self) -> Any:  # noqa: ANN401 - a Connection
        return self._cluster.coordinator(self._group, purpose="join")

    def _patience_s(self) -> float:
        return self._rebalance_timeout_ms / 1000 + self._cluster.timeout_s

    def _share_out(self, members: Sequence[Any]) -> list[Any]:
        """As leader: give each member a contiguous range of every topic that it reads."""
        wishes = {member.member_id: decode_subscription(member.metadata) for member in members}
        shares: dict[str, dict[str, list[int]]] = {member: {} for member in wishes}
        for topic in sorted(set().union(*wishes.values())):
            readers = sorted(member for member, topics in wishes.items() if topic in topics)
            try:
                count = len(self._cluster.topic(topic).partitions)
            except KafkaError:
                continue  # it may be created later; the group rebalances when somebody rejoins
            for index, member in enumerate(readers):
                first = index * count // len(readers)
                last = (index + 1) * count // len(readers)
                if first < last:
                    shares[member][topic] = list(range(first, last))
        return [
            messages.SyncGroupRequest.SyncGroupRequestAssignment(member, encode_assignment(share))
            for member, share in shares.items()
        ]

    def _start_positions(self, places: Sequence[Place]) -> dict[Place, int]:
        if not places:
            return {}
        committed = admin.committed_offsets(
            self._cluster, self._group, places, require_stable=self._read_committed
        )
        fresh = [place for place in places if place not in committed]
        where = admin.EARLIEST if self._from_start else admin.LATEST
        begin = self._list_offsets(fresh, where) if fresh else {}
        return {place: committed.get(place, begin.get(place, 0)) for place in places}

    def _leave_gone_offsets(self) -> None:
        """Go on from the edge where a position is outside of its partition; others stay."""
        positions = self._consumer.positions
        first = admin.list_offsets(self._cluster, dict.fromkeys(positions, admin.EARLIEST))
        end = admin.list_offsets(self._cluster, dict.fromkeys(positions, admin.LATEST))
        edge = first if self._from_start else self._list_offsets(positions, admin.LATEST)
        for place, offset in positions.items():
            if offset < first[place]:
                self._consumer.seek(place, first[place])
            elif offset > end[place]:
                self._consumer.seek(place, edge[place])

    def _list_offsets(self, places: Iterable[Place], where: int) -> dict[Place, int]:
        return admin.list_offsets(
            self._cluster, dict.fromkeys(places, where), read_committed=self._read_committed
        )

    def _is_away_too_long(self) -> bool:
        """Note that no broker answers; tell whether that has lasted for the whole time-out."""
        now_s = time.monotonic()
        if self._away_since_s is None:
            self._away_since_s = now_s
        return now_s - self._away_since_s > self._cluster.timeout_s

    def _stop_if_ended(self) -> None:
        if self._heart is not None and self._heart.final_error is not None:
            self._consumer.assign({})
            raise self._heart.final_error

    # --- leaving --------------------------------------------------------------------------------

    def _commit_if_possible(self) -> None:
        with contextlib.suppress(KafkaError, BrokerUnreachableError):
            self.commit()

    def _stop_heart(self) -> None:
        heart, self._heart = self._heart, None
        if heart is not None:
            heart.stop()


class _Heart:
    """Tells the coordinator that we live; notices when it wants us to rejoin."""

    def __init__(
        self, cluster: Cluster, request: messages.HeartbeatRequest, interval_s: float
    ) -> None:
        self.rejoin = threading.Event()
        self.final_error: KafkaError | None = None
        self._stop = threading.Event()
        self._request = request
        self._interval_s = interval_s
        # A cluster of its own: connections must not be shared between threads.
        self._cluster = Cluster(cluster.bootstrap, timeout_s=cluster.timeout_s)
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._cluster.close()

    def _beat(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                answer = self._cluster.coordinator(self._request.group_id).call(self._request)
            except (BrokerUnreachableError, KafkaError):
                self._cluster.forget_coordinator(self._request.group_id)
                continue
            if answer.error_code in REJOIN:
                self.rejoin.set()
                return
            if answer.error_code in _FINAL:
                code = ErrorCode(answer.error_code)
                self.final_error = KafkaError(code, hint=_FINAL[code])
                return
            if answer.error_code:
                self._cluster.forget_coordinator(self._request.group_id)


def _check(error_code: int) -> None:
    if error_code:
        raise KafkaError(ErrorCode(error_code))
