"""Names that are safe as file names, and nothing but them."""

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.settings import BrokerSettings, TopicConfig
from headwater.delivery.broker.topic_rules import (
    Room,
    WantedTopic,
    check_topic_name,
    plan_creation,
)
from headwater.delivery.broker.topics import NewTopic

# A partition's directory; headwater.max.partitions is below a million.
LONGEST_SUFFIX = "-999999"
FILE_NAME_BYTES_MAX = 255

names = st.text(max_size=300) | st.text(alphabet="a.-_/\\\0\n .Aé", max_size=12)


def is_legal(name: str) -> bool:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code is not ErrorCode.INVALID_TOPIC_EXCEPTION
    return True


@given(names)
def test_a_legal_name_stays_in_its_directory(name: str) -> None:
    if is_legal(name):
        directory = f"{name}{LONGEST_SUFFIX}"
        assert posixpath.normpath(f"/data/log/{directory}") == f"/data/log/{directory}"
        assert len(directory.encode()) <= FILE_NAME_BYTES_MAX
        assert name.isascii()
        assert name.isprintable()


@given(st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True))
def test_every_name_that_kafka_allows_is_allowed(name: str) -> None:
    assert is_legal(name) == (name not in {".", ".."})


def plan(*topics: WantedTopic, names: tuple[str, ...] = ()) -> list[NewTopic | KafkaError]:
    return plan_creation(topics, Room(names, len(names)), BrokerSettings(), TopicConfig())


def wanted(name: str, partitions: int = 1, **configs: str | None) -> WantedTopic:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    return WantedTopic(name, partitions, 1, (), named)


def test_a_plan_holds_configs_as_they_will_be_told() -> None:
    (planned,) = plan(wanted("a", 3, retention_ms=" +5 ", cleanup_policy="compact , delete"))
    assert planned == NewTopic("a", 3, {"retention.ms": "5", "cleanup.policy": "compact,delete"})


def test_each_topic_is_judged_for_itself() -> None:
    plans = plan(
        wanted("a"), wanted(".."), wanted("b", retention_ms="x"), wanted("old"), names=("old",)
    )
    assert [one.code if isinstance(one, KafkaError) else one.name for one in plans] == [
        "a",
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ]


@pytest.mark.parametrize("partitions", [-(2**31), 2**31 - 1])
def test_absurd_numbers(partitions: int) -> None:
    (refused,) = plan(wanted("a", partitions))
    assert isinstance(refused, KafkaError)


def test_negative_numbers_make_no_room_for_others() -> None:
    plans = plan(wanted("a", -9_999), wanted("b", 10_001))
    assert all(isinstance(one, KafkaError) for one in plans)


def test_a_refused_topic_takes_no_room() -> None:
    settings = BrokerSettings(headwater_max_partitions=5)
    topics = [wanted("a", 6), wanted("b", 5)]
    plans = plan_creation(topics, Room((), 0), settings, TopicConfig())
    assert [isinstance(one, NewTopic) for one in plans] == [False, True]
