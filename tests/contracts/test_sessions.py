"""How long a group waits: sessions, joins that do not come, assignments that nobody asks for.

Kafka allows no session below six seconds, so the tests of sessions share one wait.
"""

import time
from collections.abc import Callable

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import Subject, Talk, Topic, code, unique
from tests.contracts.members import commit, heartbeat, join, join_request, stable

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
SESSION_MS = 6_000
# A member that is heard of this often cannot lose its session, even on a machine that is busy.
PULSE_S = 0.5
SHORT_MS = 600
PATIENCE_S = 20.0


def state(talk: Talk, group: str) -> str:
    (answer,) = talk.ask(messages.DescribeGroupsRequest([group]), 5).groups
    assert isinstance(answer.group_state, str)
    return answer.group_state


def wait_until(condition: Callable[[], bool], pause_s: float = 0.02) -> float:
    """Wait for a condition; gives the seconds that it took."""
    begun_s = time.monotonic()
    while not condition():
        assert time.monotonic() - begun_s < PATIENCE_S
        time.sleep(pause_s)
    return time.monotonic() - begun_s


def test_sessions(talk: Talk, topic: Topic) -> None:
    silent, static, announced, beating, committing = (unique("group") for _ in range(5))
    # Announced before the others join, so that its time is up when theirs is.
    request = join_request(announced, session_timeout_ms=SESSION_MS)
    announced_id = talk.ask(request, 9).member_id
    members = {
        group: stable(talk, group, session_timeout_ms=SESSION_MS)
        for group in (silent, beating, committing)
    }
    stable(talk, static, session_timeout_ms=SESSION_MS, instance="i1")

    def everybody_else_is_gone() -> bool:
        """Keep two members alive, each in its own way, until the silent ones are gone."""
        assert heartbeat(talk, beating, members[beating], 1) is NONE
        claim = {"member_id": members[committing], "generation": 1}
        offsets = {0: (5, -1, "")}
        assert commit(talk, committing, topic, offsets, **claim) == {0: NONE}  # type: ignore[arg-type]
        return state(talk, silent) == state(talk, static) == "Empty"

    waited_s = wait_until(everybody_else_is_gone, PULSE_S)

    assert waited_s > SESSION_MS / 1_000 - 2 * PULSE_S
    assert heartbeat(talk, silent, members[silent], 1) is UNKNOWN
    assert heartbeat(talk, beating, members[beating], 1) is NONE
    assert state(talk, committing) == "Stable"
    # The empty group was a generation of its own.
    again = talk.ask(join_request(static, instance="i1"), 9)
    assert (code(again), again.generation_id) == (NONE, 3)
    # Asked last, for asking is joining.
    assert code(talk.ask(join_request(announced, announced_id), 9)) is UNKNOWN


def test_who_does_not_join_again_in_time_is_left_behind(
    broker: Subject, talk: Talk, group: str
) -> None:
    absent = stable(talk, group, rebalance_timeout_ms=SHORT_MS)
    with broker.connect() as other:
        begun_s = time.monotonic()
        answer = join(other, group, rebalance_timeout_ms=SHORT_MS)

        assert time.monotonic() - begun_s > SHORT_MS / 1_000 - 0.05
        assert (code(answer), answer.generation_id, answer.leader) == (NONE, 2, answer.member_id)
        assert [member.member_id for member in answer.members] == [answer.member_id]
        assert heartbeat(talk, group, absent, 1) is UNKNOWN
        assert heartbeat(talk, group, answer.member_id, 2) is NONE


@pytest.mark.parametrize("version", [1, 9])
def test_who_does_not_ask_for_its_assignment_in_time_is_removed(
    talk: Talk, group: str, version: int
) -> None:
    member = join(talk, group, version, rebalance_timeout_ms=SHORT_MS).member_id

    wait_until(lambda: heartbeat(talk, group, member, 1) is UNKNOWN)

    assert state(talk, group) == "Empty"


def test_a_long_session_with_a_client_without_a_rebalance_time_out(talk: Talk, group: str) -> None:
    # In v0 the session is the time-out of everything; nobody is removed early.
    member = join(talk, group, 0, rebalance_timeout_ms=1).member_id

    assert heartbeat(talk, group, member, 1) is NONE
    assert state(talk, group) == "CompletingRebalance"
