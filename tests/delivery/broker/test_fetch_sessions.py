"""Who has a fetch session, and who must give it up."""

import pytest

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker import fetch_sessions
from headwater.delivery.broker.fetch import Wanted
from headwater.delivery.broker.fetch_sessions import EVICTION_MS, FetchSessions, Key
from headwater.testing.manual_clock import ManualClock
from headwater.testing.seeded_chance import SeededChance


def wish(count: int, topic: str = "t") -> dict[Key, Wanted]:
    return {(topic, b"", index): Wanted(topic, b"", index) for index in range(count)}


class Hall:
    """A broker's sessions, with a clock to turn."""

    def __init__(self, slots: int = 2) -> None:
        self.clock = ManualClock()
        self.sessions = FetchSessions(self.clock, SeededChance(7), slots)

    def begin(self, count: int = 1) -> int:
        session = self.sessions.begin(wish(count), by_id=True)
        return session.session_id if session is not None else 0

    def go_on(self, session_id: int, epoch: int) -> None:
        self.sessions.go_on(session_id, epoch, by_id=True)

    def lives(self, session_id: int) -> bool:
        try:
            self.go_on(session_id, -7)
        except KafkaError as error:
            return error.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        raise AssertionError("no session has that epoch")


def test_a_newcomer_is_served_without_a_session_while_all_are_in_use() -> None:
    hall = Hall()
    first, second = hall.begin(), hall.begin()

    assert first
    assert second
    assert hall.begin() == 0
    assert hall.lives(first)
    assert hall.lives(second)


def test_the_one_that_was_not_used_for_long_gives_way() -> None:
    hall = Hall()
    first, second = hall.begin(), hall.begin()
    hall.clock.advance(EVICTION_MS - 1)
    hall.go_on(first, 1)
    assert hall.begin() == 0
    hall.clock.advance(1)

    assert hall.begin()

    assert hall.lives(first)
    assert not hall.lives(second)


def test_a_larger_one_displaces_a_smaller_one_that_had_its_time() -> None:
    hall = Hall()
    small, large = hall.begin(3), hall.begin(9)
    assert hall.begin(5) == 0
    hall.clock.advance(EVICTION_MS)
    hall.go_on(small, 1)
    hall.go_on(large, 1)

    assert hall.begin(3) == 0
    assert hall.begin(5)

    assert not hall.lives(small)
    assert hall.lives(large)


def test_all_sessions_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 10)
    hall = Hall(slots=100)
    first = hall.begin(6)

    assert hall.begin(5) == 0
    assert hall.begin(4)
    hall.sessions.end(first)
    assert hall.begin(6)
    assert hall.begin(1) == 0


def test_names_that_no_topic_can_have_are_not_kept() -> None:
    hall = Hall()
    session = hall.sessions.begin(wish(1, "x" * 249), by_id=False)
    assert session is not None
    assert hall.sessions.begin(wish(1, "x" * 250), by_id=False) is None

    with pytest.raises(KafkaError) as refused:
        hall.sessions.change(session, wish(1, "x" * 250), [])

    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(hall.sessions) == 0


def test_without_slots_there_are_no_sessions() -> None:
    assert Hall(slots=0).begin() == 0


def test_epochs_begin_anew_before_they_overflow() -> None:
    hall = Hall()
    session = hall.sessions.begin(wish(1), by_id=True)
    assert session is not None
    session.epoch = 2**31 - 1

    hall.go_on(session.session_id, 2**31 - 1)
    hall.go_on(session.session_id, 1)


def test_a_session_may_grow_only_as_long_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 10)
    hall = Hall()
    session = hall.sessions.begin(wish(1), by_id=True)
    assert session is not None

    with pytest.raises(KafkaError) as refused:
        hall.sessions.change(session, wish(11), [])

    # The client begins anew, and is served without a session.
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not hall.lives(session.session_id)
