"""An answer means visible: what another connection sees right after the answer to acks=1."""

from collections.abc import Iterator

import pytest

from headwater.base.errors import ErrorCode
from tests.contracts.kit import (
    Subject,
    Talk,
    Topic,
    batch_of,
    code,
    fetch,
    list_offset,
    now_ms,
    offsets_of,
    produce,
)
from tests.contracts.test_topics import trim

TIMES = 60
LATEST, MAX_TIMESTAMP = -1, -3


@pytest.fixture
def other(broker: Subject) -> Iterator[Talk]:
    """Give a second connection, which has not seen the producer's requests."""
    with broker.connect() as connection:
        yield connection


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_the_end_is_behind_what_was_answered(
    talk: Talk, other: Talk, topic: Topic, isolation_level: int
) -> None:
    for _ in range(TIMES):
        answered = produce(talk, topic, batch_of(b"a"), acks=1)

        end = list_offset(other, topic.name, LATEST, isolation_level=isolation_level)

        assert end.offset == answered.base_offset + 1


def test_what_was_answered_is_found_by_its_time(talk: Talk, other: Talk, topic: Topic) -> None:
    first_ms = now_ms()
    for offset in range(TIMES):
        produce(talk, topic, batch_of(b"a", timestamp=first_ms + offset), acks=1)

        assert list_offset(other, topic.name, first_ms + offset).offset == offset
        assert list_offset(other, topic.name, MAX_TIMESTAMP).offset == offset


def test_what_was_answered_can_be_trimmed(talk: Talk, other: Talk, topic: Topic) -> None:
    for _ in range(TIMES):
        answered = produce(talk, topic, batch_of(b"a"), acks=1)
        end = answered.base_offset + 1

        assert trim(other, topic.name, end) == (ErrorCode.NONE, end)


@pytest.mark.parametrize("max_wait_ms", [0, 1])
def test_what_was_answered_can_be_fetched(
    talk: Talk, other: Talk, topic: Topic, max_wait_ms: int
) -> None:
    for offset in range(TIMES):
        produce(talk, topic, batch_of(b"a"), acks=1)

        found = fetch(other, topic, offset, max_wait_ms=max_wait_ms, min_bytes=1)

        assert (offsets_of(found.records), found.high_watermark) == ([offset], offset + 1)


def test_the_place_behind_what_was_answered_can_be_fetched(
    talk: Talk, other: Talk, topic: Topic
) -> None:
    for offset in range(TIMES):
        produce(talk, topic, batch_of(b"a"), acks=1)

        found = fetch(other, topic, offset + 1)

        assert (code(found), offsets_of(found.records)) == (ErrorCode.NONE, [])
