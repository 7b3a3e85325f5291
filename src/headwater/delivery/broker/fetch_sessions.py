"""Fetch sessions (KIP-227): what a client wants, remembered from one fetch to the next.

This file alone decides who gets a session, when one is given up for another, and which partitions
of a session have news. It knows nothing of requests: their versions, names and ids are settled
before.

    id 0, epoch -1     no session is wanted
    any id, epoch 0    the session of that id ends, a new one is wanted
    an id, epoch -1    the session ends
    an id, epoch n     goes on, if n is the epoch that follows the last one
"""

from collections.abc import Iterable
from typing import Final

from headwater.base.chance import Chance
from headwater.base.clock import Clock
from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.topic_names import NAME_LENGTH_MAX
from headwater.delivery.broker.fetch import Found, Wanted

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
NO_EPOCH: Final = -1

# As in Kafka: a session that was used within this time is not given up for another one's sake.
EVICTION_MS: Final = 120_000
# Some 360 bytes each, and a name. Whoever comes when all are taken is served without a session; and
# so is whoever asks for names too long for topics: one request may bring 100 MB of them.
PARTITIONS_MAX: Final = 1_000_000

_EPOCH_MAX: Final = 0x7FFF_FFFF

Key = tuple[str, bytes, int]


class FetchSession:
    """One client's interest in partitions.

    Attributes:
        session_id: Its number, never 0.
        epoch: Which epoch the next request must carry.
        by_id: Whether topics are named by id (Fetch v13 and newer).
        wanted: The partitions in the order in which they are looked at.
    """

    __slots__ = ("born_ms", "by_id", "epoch", "session_id", "used_ms", "wanted")

    def __init__(self, session_id: int, *, by_id: bool, now_ms: int) -> None:
        """Begin with nothing wanted."""
        self.session_id = session_id
        self.epoch = 1
        self.by_id = by_id
        self.born_ms = now_ms
        self.used_ms = now_ms
        self.wanted: dict[Key, Wanted] = {}

    def news(
        self, looked_at: Iterable[Wanted], found: Iterable[Found]
    ) -> list[tuple[Wanted, Found]]:
        """Return the findings that the client does not know yet, and take them for told.

        Partitions that gave records go to the end of the order, so that those behind them get
        their turn when an answer is full.
        """
        news = []
        for wanted, finding in zip(looked_at, found, strict=True):
            if (
                finding.records is not None
                or finding.error
                or finding.high_watermark != wanted.told_high_watermark
                or finding.log_start_offset != wanted.told_log_start_offset
            ):
                news.append((wanted, finding))
                # After an error nothing counts as told: its end is news too.
                wanted.told_high_watermark = finding.high_watermark
                wanted.told_log_start_offset = finding.log_start_offset
        for wanted, finding in news:
            if finding.records is not None:
                key = (wanted.topic, wanted.topic_id, wanted.index)
                self.wanted[key] = self.wanted.pop(key)
        return news


class FetchSessions:
    """All sessions of a broker."""

    def __init__(self, clock: Clock, chance: Chance, slots: int) -> None:
        """Start with none.

        Args:
            clock: For the age of sessions.
            chance: Where ids come from.
            slots: How many there may be at a time.
        """
        self._clock = clock
        self._chance = chance
        self._slots = slots
        self._partitions = 0
        # In order of last use, the longest unused first.
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        """Count the sessions."""
        return len(self._sessions)

    def begin(self, wanted: dict[Key, Wanted], *, by_id: bool) -> FetchSession | None:
        """Remember what a client wants; None where there is no room for it."""
        now_ms = self._clock.monotonic_ms()
        count = len(wanted)
        if not count or not _fits(wanted) or not self._make_room(count, now_ms):
            return None
        session = FetchSession(self._new_id(), by_id=by_id, now_ms=now_ms)
        session.wanted = wanted
        self._sessions[session.session_id] = session
        self._partitions += count
        return session

    def go_on(self, session_id: int, epoch: int, *, by_id: bool) -> FetchSession:
        """Return the session that a request belongs to; its next request has the next epoch.

        Raises:
            KafkaError: There is no such session, or a request of it was lost or doubled.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if by_id is not session.by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        session.used_ms = self._clock.monotonic_ms()
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def change(
        self, session: FetchSession, added: dict[Key, Wanted], forgotten: Iterable[Key]
    ) -> None:
        """Let a session want more, or something else, or less; without any wish it ends.

        Raises:
            KafkaError: There is no room for that; the session ends, and the client begins anew.
        """
        before = len(session.wanted)
        for key, wanted in added.items():
            known = session.wanted.get(key)
            if known is not None:
                wanted.told_high_watermark = known.told_high_watermark
                wanted.told_log_start_offset = known.told_log_start_offset
            session.wanted[key] = wanted
        for key in forgotten:
            session.wanted.pop(key, None)
        self._partitions += len(session.wanted) - before
        too_much = self._partitions > PARTITIONS_MAX or not _fits(added)
        if too_much or not session.wanted:
            self.end(session.session_id)
        if too_much:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def end(self, session_id: int) -> None:
        """Forget a session; harmless where there is none."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.wanted)

    def _make_room(self, count: int, now_ms: int) -> bool:
        """Give up a session that is no longer used, or a small one that had its time."""
        while len(self._sessions) >= self._slots or self._partitions + count > PARTITIONS_MAX:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None:
                return False
            if now_ms - oldest.used_ms < EVICTION_MS:
                # A large session saves more than a small one.
                oldest = min(self._sessions.values(), key=lambda each: len(each.wanted))
                if len(oldest.wanted) >= count or now_ms - oldest.born_ms < EVICTION_MS:
                    return False
            self.end(oldest.session_id)
        return True

    def _new_id(self) -> int:
        while True:
            session_id = int.from_bytes(self._chance.random_bytes(4), "big") & _EPOCH_MAX
            if session_id != NO_SESSION and session_id not in self._sessions:
                return session_id


def _fits(wanted: Iterable[Key]) -> bool:
    return all(len(topic) <= NAME_LENGTH_MAX for topic, _, _ in wanted)
