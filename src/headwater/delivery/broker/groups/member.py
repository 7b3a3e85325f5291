"""One member of a group.

This file alone decides what is known of a member and when its silence is excused.
"""

from dataclasses import dataclass, field

from headwater.delivery.broker.groups.deadline import Deadline
from headwater.delivery.broker.groups.values import JoinResult, Protocol, SyncResult
from headwater.delivery.broker.groups.waiting import Waiting


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """A consumer that has joined.

    Attributes:
        is_new: It has not been through a completed join phase yet.
        join: Its join that waits for the others.
        sync: Its sync that waits for the leader's assignment.
        session: When it is given up unless it is heard of.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    join: Waiting[JoinResult] | None = field(default=None, repr=False)
    sync: Waiting[SyncResult] | None = field(default=None, repr=False)
    session: Deadline | None = field(default=None, repr=False)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return what the member says about itself in a protocol; empty if it does not know it."""
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return b""

    def vote(self, candidates: set[str]) -> str:
        """Return the first of its protocols, in its own order, that all members know."""
        return next(protocol.name for protocol in self.protocols if protocol.name in candidates)

    def may_be_silent(self) -> bool:
        """Whether it waits for us, so that no heartbeat can be expected.

        A new member is not excused: it may have timed out and joined again under another id.
        """
        if self.is_new:
            return False
        waiting = self.join or self.sync
        return waiting is not None and not waiting.abandoned
