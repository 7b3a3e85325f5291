"""How far a query is, for everybody who watches consumer groups.

This file alone decides when offsets are mirrored into a group. The checkpoint counts; the group is
a mirror, so nothing that goes wrong with it stops the query: it is said once, and tried again
later. Nobody joins the group. One that has members of its own refuses us, and that is said too.
"""

import logging

from headwater.base.clock import Clock
from headwater.base.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.streams.source.offsets import Offsets, Place

_LOG = logging.getLogger(__name__)
_RETRY_AFTER_MS = 10_000
_HAS_MEMBERS = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
}


class Progress:
    """Mirrors offsets into one group."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        """Prepare.

        Args:
            cluster: Where the group is; its patience is how long a query may be held up.
            clock: Tells when to try again.
        """
        self._cluster = cluster
        self._clock = clock
        self._mirrored: dict[Place, int] = {}
        self._group = ""
        self._complained = ""
        self._silent_until_ms = 0
        # The checkpoint keeps places in topics that are gone; the group cannot.
        self._absent: set[str] = set()
        self._look_again_ms = 0

    def mirror(self, group: str, offsets: Offsets) -> None:
        """Commit offsets for the group, as far as it does not have them."""
        if group != self._group:
            self._group, self._mirrored = group, {}
        now_ms = self._clock.monotonic_ms()
        if self._absent and now_ms >= self._look_again_ms:
            self._look_for(self._absent)
        new = {
            place: offset
            for place, offset in offsets.positions().items()
            if self._mirrored.get(place) != offset and place[0] not in self._absent
        }
        if not new or now_ms < self._silent_until_ms:
            return
        try:
            admin.commit_offsets(self._cluster, group, new)
        except HeadwaterError as error:
            self._silent_until_ms = self._clock.monotonic_ms() + _RETRY_AFTER_MS
            self._complain(group, error)
            self._look_for(self._absent | {topic for topic, _ in new})
        else:
            self._mirrored |= new
            self._complained = ""

    def _look_for(self, topics: set[str]) -> None:
        """Find out which of some topics are not there, so as not to wait for them each time."""
        self._look_again_ms = self._clock.monotonic_ms() + _RETRY_AFTER_MS
        try:
            self._cluster.refresh(sorted(topics))
        except HeadwaterError:
            return
        self._absent = {each for each in topics if not self._cluster.knows(each)}

    def close(self) -> None:
        """Let go of the connection."""
        self._cluster.close()

    def _complain(self, group: str, error: HeadwaterError) -> None:
        if isinstance(error, KafkaError) and error.code in _HAS_MEMBERS:
            said = (
                f"the query's progress does not show in group {group!r}: the group has members of "
                "its own. Give the query another one with kafka.group.id"
            )
        else:
            said = f"the query's progress does not show in group {group!r}: {error.message}"
        if said != self._complained:
            self._complained = said
            _LOG.warning("%s", said)
