"""DescribeClientQuotas and AlterClientQuotas, v0-1, and what quotas do to clients.

Each test has client ids of its own, and those of connections an address of their own: the brokers
are shared with other tests.
"""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import (
    Subject,
    Talk,
    Topic,
    batch_of,
    code,
    create_topic,
    fetch_request,
    produce_request,
    unique,
)

NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
EXACT, DEFAULT, ANY = range(3)
PATIENCE_S = 60.0
Entity = dict[str, str | None]
# A busy machine may measure time a bit off, and answers differ by some bytes.
CLOSE = 0.15


def alteration(entity: Entity, **values: float | None) -> Any:  # noqa: ANN401 - a part of a request
    request = messages.AlterClientQuotasRequest
    return request.EntryData(
        [request.EntityData(kind, name) for kind, name in entity.items()],
        [request.OpData(key, value or 0.0, value is None) for key, value in values.items()],
    )


def alter(talk: Talk, *entries: Any, version: int = 1, validate_only: bool = False) -> list[Any]:  # noqa: ANN401 - see alteration
    request = messages.AlterClientQuotasRequest(list(entries), validate_only)
    return list(talk.ask(request, version).entries)


def describe(
    talk: Talk, *parts: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> Any:  # noqa: ANN401 - the answer
    component = messages.DescribeClientQuotasRequest.ComponentData
    request = messages.DescribeClientQuotasRequest([component(*part) for part in parts], strict)
    return talk.ask(request, version)


def found(answer: Any) -> dict[frozenset[tuple[str, str | None]], dict[str, float]]:  # noqa: ANN401 - of describe
    assert (code(answer), answer.error_message) == (NONE, "")
    return {
        frozenset((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


def limit(talk: Talk, entity: Entity, **values: float | None) -> None:
    """Set quotas and wait until the broker knows of them."""
    (answer,) = alter(talk, alteration(entity, **values))
    assert code(answer) is NONE, answer.error_message
    wanted = {key: value for key, value in values.items() if value is not None}
    parts = [(kind, DEFAULT if name is None else EXACT, name) for kind, name in entity.items()]
    end_s = time.monotonic() + PATIENCE_S
    while next(iter(found(describe(talk, *parts, strict=True)).values()), {}) != wanted:
        assert time.monotonic() < end_s
        time.sleep(0.01)


@pytest.fixture
def client(talk: Talk) -> Iterator[str]:
    """Give the name of a client whose quotas are taken away in the end."""
    name = unique("client")
    yield name
    keys = (
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
    )
    entities: list[Entity] = [{"client-id": name}, {"user": "ANONYMOUS", "client-id": name}]
    for entity in entities:
        alter(talk, alteration(entity, **dict.fromkeys(keys)))


# What is set.


@pytest.mark.parametrize("version", [0, 1])
def test_set_change_and_remove(talk: Talk, client: str, version: int) -> None:
    entity: Entity = {"client-id": client}
    exact = ("client-id", EXACT, client)
    key = frozenset(entity.items())

    limit(talk, entity, producer_byte_rate=1000, request_percentage=12.5)
    (answer,) = alter(
        talk,
        alteration(entity, producer_byte_rate=None, consumer_byte_rate=7, request_percentage=3),
        version=version,
    )
    assert (code(answer), answer.error_message) == (NONE, None)
    assert [(part.entity_type, part.entity_name) for part in answer.entity] == [
        ("client-id", client)
    ]
    wanted = {"consumer_byte_rate": 7.0, "request_percentage": 3.0}
    end_s = time.monotonic() + PATIENCE_S
    while found(describe(talk, exact, version=version)) != {key: wanted}:
        assert time.monotonic() < end_s
    limit(talk, entity, consumer_byte_rate=None, request_percentage=None)
    assert found(describe(talk, exact)) == {}


def test_only_validating_changes_nothing(talk: Talk, client: str) -> None:
    entry = alteration({"client-id": client}, producer_byte_rate=1000)
    (answer,) = alter(talk, entry, validate_only=True)
    assert code(answer) is NONE
    assert found(describe(talk, ("client-id", EXACT, client))) == {}


def test_several_entities_are_judged_one_by_one(talk: Talk, client: str) -> None:
    good = alteration({"client-id": client}, producer_byte_rate=1000)
    bad = alteration({"client-id": client, "user": "ANONYMOUS"}, producer_byte_rate=-1)
    answers = {len(answer.entity): code(answer) for answer in alter(talk, good, bad)}
    assert answers == {1: NONE, 2: INVALID}


@pytest.mark.parametrize(
    "entity, values",
    [
        ({}, {"producer_byte_rate": 1}),
        ({"planet": "mars"}, {"producer_byte_rate": 1}),
        ({"client-id": ""}, {"producer_byte_rate": 1}),
        ({"user": "u", "ip": "127.0.0.9"}, {"producer_byte_rate": 1}),
        ({"ip": "no such address"}, {"connection_creation_rate": 1}),
        ({"client-id": "c"}, {"nonsense": 1}),
        ({"client-id": "c"}, {"connection_creation_rate": 1}),
        ({"ip": "127.0.0.9"}, {"producer_byte_rate": 1}),
        ({"client-id": "c"}, {"producer_byte_rate": 0.0}),
        ({"client-id": "c"}, {"producer_byte_rate": -5}),
        ({"client-id": "c"}, {"consumer_byte_rate": 1.5}),
        ({"client-id": "c"}, {"consumer_byte_rate": 1e19}),
        ({"client-id": "c"}, {"request_percentage": 0.0}),
        ({"ip": "127.0.0.9"}, {"connection_creation_rate": 2.5}),
        ({"ip": "127.0.0.9"}, {"connection_creation_rate": 3e9}),
    ],
    ids=lambda value: ",".join(f"{key}={each}" for key, each in value.items()) or "nobody",
)
def test_what_cannot_be_set(talk: Talk, entity: Entity, values: dict[str, float]) -> None:
    (answer,) = alter(talk, alteration(entity, **values), validate_only=True)
    assert code(answer) is INVALID
    assert answer.error_message


def test_an_entity_twice_in_a_request(talk: Talk, client: str) -> None:
    entity: Entity = {"client-id": client}
    answers = alter(
        talk,
        alteration(entity, producer_byte_rate=1),
        alteration(entity, producer_byte_rate=2),
    )
    assert [code(answer) for answer in answers] == [INVALID]


def test_a_key_twice_in_an_entity(talk: Talk, client: str) -> None:
    entry = alteration({"client-id": client}, producer_byte_rate=1)
    entry.ops *= 2
    (answer,) = alter(talk, entry)
    assert code(answer) is INVALID
    assert found(describe(talk, ("client-id", EXACT, client))) == {}


def test_what_is_not_there_can_be_removed(talk: Talk, client: str) -> None:
    (answer,) = alter(talk, alteration({"client-id": client}, nonsense=None))
    assert code(answer) is NONE


def test_filters(talk: Talk) -> None:
    user, client = unique("user"), unique("client")
    entities: list[Entity] = [
        {"user": user},
        {"user": user, "client-id": client},
        {"user": user, "client-id": None},
        {"client-id": client},
    ]
    for entity in entities:
        limit(talk, entity, producer_byte_rate=10)
    try:
        shown = {
            name: sorted(
                entities.index(dict(entity))
                for entity in found(describe(talk, *parts, strict=strict))
                if dict(entity) in entities
            )
            for name, parts, strict in (
                ("user", [("user", EXACT, user)], False),
                ("user alone", [("user", EXACT, user)], True),
                ("client", [("client-id", EXACT, client)], False),
                ("client alone", [("client-id", EXACT, client)], True),
                ("both", [("user", EXACT, user), ("client-id", EXACT, client)], True),
                ("default client", [("user", EXACT, user), ("client-id", DEFAULT, None)], False),
                ("any client", [("user", EXACT, user), ("client-id", ANY, None)], False),
                ("any client alone", [("client-id", ANY, None)], True),
                ("any user", [("user", ANY, None)], False),
                ("any user and client", [("user", ANY, None), ("client-id", ANY, None)], True),
                ("all", [], False),
                ("none", [], True),
                ("addresses", [("ip", ANY, None)], False),
                ("another", [("user", EXACT, unique("user"))], False),
            )
        }
    finally:
        for entity in entities:
            limit(talk, entity, producer_byte_rate=None)
    assert shown == {
        "user": [0, 1, 2],
        "user alone": [0],
        "client": [1, 3],
        "client alone": [3],
        "both": [1],
        "default client": [2],
        "any client": [1, 2],
        "any client alone": [3],
        "any user": [0, 1, 2],
        "any user and client": [1, 2],
        "all": [0, 1, 2, 3],
        "none": [],
        "addresses": [],
        "another": [],
    }


@pytest.mark.parametrize(
    "parts, error",
    [
        ([("", EXACT, "x")], INVALID),
        ([("user", EXACT, "x"), ("user", ANY, None)], INVALID),
        ([("planet", EXACT, "mars")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], INVALID),
        ([("user", DEFAULT, "x")], INVALID),
        ([("user", ANY, "x")], INVALID),
        ([("user", 3, None)], INVALID),
        ([("user", ANY, None), ("ip", ANY, None)], INVALID),
    ],
)
def test_what_is_no_filter(
    talk: Talk, parts: list[tuple[str, int, str | None]], error: ErrorCode
) -> None:
    answer = describe(talk, *parts)
    assert code(answer) is error
    assert answer.error_message
    assert answer.entries is None


# What it does.


def large_batch(size: int) -> bytes:
    return bytes(batch_of(b"x" * size))


def ask_timed(talk: Talk, request: Any, version: int) -> tuple[Any, float]:  # noqa: ANN401 - any request
    begun_s = time.monotonic()
    answer = talk.ask(request, version)
    return answer, time.monotonic() - begun_s


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_producer_above_its_rate(
    broker: Subject, talk: Talk, topic: Topic, client: str, version: int
) -> None:
    limit(talk, {"client-id": client}, producer_byte_rate=50_000)
    request = produce_request(topic, {0: large_batch(550_000)})
    with broker.connect(client_id=client) as throttled:
        answer, took_s = ask_timed(throttled, request, version)
        assert answer.responses[0].partition_responses[0].error_code == NONE
        # Ten seconds' worth may come at once; the rest of half a million and a bit has to wait.
        wait_s = answer.throttle_time_ms / 1000
        assert wait_s == pytest.approx(1.0, abs=0.05)
        assert took_s < wait_s
        # Nobody else waits.
        other, _ = ask_timed(talk, produce_request(topic, {0: large_batch(550_000)}), version)
        assert other.throttle_time_ms == 0
        _, took_s = ask_timed(throttled, messages.ApiVersionsRequest(), 0)
        assert wait_s * 0.8 < took_s < wait_s + 5


def test_a_producer_who_wants_no_answer(
    broker: Subject, talk: Talk, topic: Topic, client: str
) -> None:
    limit(talk, {"client-id": client}, producer_byte_rate=50_000)
    request = produce_request(topic, {0: large_batch(540_000)}, acks=0)
    with broker.connect(client_id=client) as throttled:
        throttled.tell(request, 9)
        throttled.expect_no_answer()
        _, took_s = ask_timed(throttled, messages.ApiVersionsRequest(), 0)
        assert 0.6 < took_s < 6


def test_connections_of_one_client_share_its_rate(
    broker: Subject, talk: Talk, topic: Topic, client: str
) -> None:
    limit(talk, {"client-id": client}, producer_byte_rate=50_000)
    request = produce_request(topic, {0: large_batch(300_000)})
    with broker.connect(client_id=client) as one, broker.connect(client_id=client) as two:
        assert one.ask(request, 9).throttle_time_ms == 0
        assert two.ask(request, 9).throttle_time_ms == pytest.approx(2_000, rel=CLOSE)


def test_the_quota_of_user_and_client_comes_first(
    broker: Subject, talk: Talk, topic: Topic, client: str
) -> None:
    limit(talk, {"client-id": client}, producer_byte_rate=1)
    limit(talk, {"user": "ANONYMOUS", "client-id": client}, producer_byte_rate=50_000)
    limit(talk, {"user": unique("user"), "client-id": client}, producer_byte_rate=1)
    request = produce_request(topic, {0: large_batch(550_000)})
    with broker.connect(client_id=client) as throttled:
        answer = throttled.ask(request, 9)
    assert answer.throttle_time_ms == pytest.approx(1_000, rel=CLOSE)


def test_a_consumer_above_its_rate(broker: Subject, talk: Talk, client: str) -> None:
    topic = create_topic(talk)
    for _ in range(6):
        talk.ask(produce_request(topic, {0: large_batch(110_000)}), 9)
    limit(talk, {"client-id": client}, consumer_byte_rate=50_000)
    with broker.connect(client_id=client) as throttled:
        first = throttled.ask(fetch_request([(topic, 0, 0)], max_bytes=331_000), 12)
        assert first.throttle_time_ms == 0
        assert len(first.responses[0].partitions[0].records) >= 330_000
        # A new session would begin here, but for the throttle.
        request = fetch_request([(topic, 0, 3)], max_bytes=221_000)
        request.session_epoch = 0
        second, took_s = ask_timed(throttled, request, 12)
        wait_s = second.throttle_time_ms / 1000
        assert (code(second), second.responses, second.session_id) == (NONE, [], 0)
        assert wait_s == pytest.approx(1.0, rel=CLOSE)
        assert took_s < wait_s
        # What was not sent does not count: a smaller piece may follow, after the wait.
        request = fetch_request([(topic, 0, 3)], max_bytes=111_000)
        third, took_s = ask_timed(throttled, request, 12)
        assert wait_s * 0.8 < took_s < wait_s + 5
        assert third.throttle_time_ms == 0
        assert len(third.responses[0].partitions[0].records) >= 110_000


def test_a_fetch_is_no_larger_than_what_may_come_at_once(
    broker: Subject, talk: Talk, client: str
) -> None:
    topic = create_topic(talk)
    for _ in range(3):
        talk.ask(produce_request(topic, {0: large_batch(100_000)}), 9)
    limit(talk, {"client-id": client}, consumer_byte_rate=22_000)
    with broker.connect(client_id=client) as throttled:
        answer = throttled.ask(fetch_request([(topic, 0, 0)], max_bytes=1 << 20), 12)
    # The second half of the third batch is left out, or Kafka's part of it is cut.
    size = len(answer.responses[0].partitions[0].records) if answer.responses else 0
    assert size <= 220_000


def test_work_above_its_share(broker: Subject, talk: Talk, client: str) -> None:
    limit(talk, {"client-id": client}, request_percentage=0.0001)
    with broker.connect(client_id=client) as throttled:
        end_s = time.monotonic() + PATIENCE_S
        request = messages.MetadataRequest(topics=None)
        while not (wait_ms := throttled.ask(request, 9).throttle_time_ms):
            assert time.monotonic() < end_s
        assert 0 < wait_ms <= 1_000
        _, took_s = ask_timed(throttled, request, 9)
        assert took_s > wait_ms / 1000 * 0.8


# Topics.


def create(talk: Talk, partitions: int, version: int, *, validate_only: bool = False) -> Any:  # noqa: ANN401 - the answer
    topic = messages.CreateTopicsRequest.CreatableTopic(unique("mutation"), partitions, 1, [], [])
    return talk.ask(messages.CreateTopicsRequest([topic], 10_000, validate_only), version)


def test_topics_above_the_rate_are_refused(broker: Subject, talk: Talk, client: str) -> None:
    limit(talk, {"client-id": client}, controller_mutation_rate=1)
    with broker.connect(client_id=client) as throttled:
        # Eleven may come at once; the last topic may bring more, here for three seconds.
        first = create(throttled, 14, 7)
        assert (code(first.topics[0]), first.throttle_time_ms) == (NONE, 0)
        second, took_s = ask_timed(
            throttled,
            messages.CreateTopicsRequest(
                [messages.CreateTopicsRequest.CreatableTopic(unique("m"), 1, 1, [], [])], 10_000
            ),
            7,
        )
        assert code(second.topics[0]) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        wait_s = second.throttle_time_ms / 1000
        assert 0 < wait_s <= 3.0
        assert took_s < 3.0
        third, took_s = ask_timed(
            throttled,
            messages.DeleteTopicsRequest(topic_names=[first.topics[0].name], timeout_ms=10_000),
            5,
        )
        assert took_s > wait_s * 0.8
        assert code(third.responses[0]) is NONE
        # Fourteen less than nothing, once more.
        another = create(talk, 1, 7).topics[0].name
        fourth = throttled.ask(
            messages.DeleteTopicsRequest(topic_names=[another], timeout_ms=10_000), 5
        )
        assert code(fourth.responses[0]) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 9_000 < fourth.throttle_time_ms <= 14_000


def test_partitions_above_the_rate_are_refused(broker: Subject, talk: Talk, client: str) -> None:
    topic = create_topic(talk)
    limit(talk, {"client-id": client}, controller_mutation_rate=2)
    grow = messages.CreatePartitionsRequest.CreatePartitionsTopic
    with broker.connect(client_id=client) as throttled:
        for total, error in ((29, NONE), (30, ErrorCode.THROTTLING_QUOTA_EXCEEDED)):
            request = messages.CreatePartitionsRequest([grow(topic.name, total, None)], 10_000)
            answer = throttled.ask(request, 3)
            assert code(answer.results[0]) is error
        assert 0 < answer.throttle_time_ms <= 3_000


def test_older_requests_are_carried_out_and_wait(broker: Subject, talk: Talk, client: str) -> None:
    limit(talk, {"client-id": client}, controller_mutation_rate=1)
    with broker.connect(client_id=client) as throttled:
        answer = create(throttled, 13, 5)
        assert code(answer.topics[0]) is NONE
        assert 0 < answer.throttle_time_ms <= 2_000
        _, took_s = ask_timed(throttled, messages.ApiVersionsRequest(), 0)
        assert took_s > answer.throttle_time_ms / 1000 * 0.8


def test_what_is_only_validated_counts_too(broker: Subject, talk: Talk, client: str) -> None:
    limit(talk, {"client-id": client}, controller_mutation_rate=1)
    with broker.connect(client_id=client) as throttled:
        assert code(create(throttled, 14, 7, validate_only=True).topics[0]) is NONE
        refused = create(throttled, 14, 7, validate_only=True)
        assert code(refused.topics[0]) is ErrorCode.THROTTLING_QUOTA_EXCEEDED


# Connections.


def test_connections_above_the_rate_of_their_address(broker: Subject, talk: Talk) -> None:
    address = "127.0.0.77"
    limit(talk, {"ip": address}, connection_creation_rate=1)
    try:
        with ExitStack() as sockets:
            opened = [
                sockets.enter_context(
                    socket.create_connection(
                        (broker.host, broker.port), timeout=10, source_address=(address, 0)
                    )
                )
                for _ in range(20)
            ]
            begun_s = time.monotonic()
            served = []
            for each in opened:
                # ApiVersions v0, correlation id 1, no client id.
                try:
                    each.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
                    served.append(bool(each.recv(4)))
                except OSError:
                    served.append(False)
            assert served[:10] == [True] * 10
            assert served.count(False) >= 2
            assert time.monotonic() - begun_s < PATIENCE_S
            # Those who are in stay in.
            opened[0].sendall(bytes.fromhex("0000000a 0012 0000 00000002 ffff"))
            assert opened[0].recv(4)
    finally:
        limit(talk, {"ip": address}, connection_creation_rate=None)
