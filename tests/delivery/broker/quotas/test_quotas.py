"""Quotas as a broker keeps and applies them, with a clock that stands still."""

import dataclasses
from typing import Any

import pytest

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.quotas import Alteration, Component
from headwater.delivery.wire.kafka import messages
from tests.delivery.dialects.kafka.desk import Desk

INVALID = ErrorCode.INVALID_REQUEST


@dataclasses.dataclass
class Office:
    """A broker and its quotas."""

    desk: Desk

    def set(self, entity: dict[str, str | None], **values: float | None) -> ErrorCode:
        (error,) = self.desk.broker.quotas.alter(
            [Alteration(entity, list(values.items()))], validate_only=False
        ).values()
        return ErrorCode.NONE if error is None else error.code

    @property
    def kept(self) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
        quotas = self.desk.broker.quotas.describe([], strict=False)
        return {entity: dict(values) for entity, values in quotas.items()}


@pytest.fixture
def office() -> Office:
    """Give a broker without quotas."""
    return Office(Desk())


def test_what_is_set_survives_a_crash(office: Office) -> None:
    assert office.set({"client-id": "joe"}, producer_byte_rate=1000) is ErrorCode.NONE
    office.set({"user": None, "client-id": None}, request_percentage=0.5, consumer_byte_rate=9)
    office.set({"user": None, "client-id": None}, consumer_byte_rate=None)
    office.desk.crash()
    assert office.kept == {
        (("client-id", "joe"),): {"producer_byte_rate": 1000},
        (("client-id", None), ("user", None)): {"request_percentage": 0.5},
    }
    quotas = office.desk.broker.quotas
    assert quotas.watching
    assert quotas.produced("joe", 20_000) == 10_000


def test_watching_only_while_something_is_set(office: Office) -> None:
    def watching() -> bool:
        return office.desk.broker.quotas.watching

    assert not watching()
    office.set({"ip": None}, connection_creation_rate=1)
    office.set({"user": None}, controller_mutation_rate=1)
    assert not watching()
    office.set({"client-id": "joe"}, request_percentage=1)
    assert watching()
    office.set({"client-id": "joe"}, request_percentage=None)
    assert not watching()


def test_a_full_disk_changes_nothing(office: Office) -> None:
    office.desk.disk.fail_at(office.desk.disk.operations + 1, OSError(28, "full"))
    entry = messages.AlterClientQuotasRequest.EntryData(
        [messages.AlterClientQuotasRequest.EntityData("client-id", "joe")],
        [messages.AlterClientQuotasRequest.OpData("producer_byte_rate", 5.0, remove=False)],
    )
    request = messages.AlterClientQuotasRequest([entry])
    (answer,) = office.desk.ask(request).entries
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert office.kept == {}
    assert not office.desk.broker.quotas.watching
    (answer,) = office.desk.ask(request).entries
    assert answer.error_code == ErrorCode.NONE
    assert office.desk.broker.quotas.watching


def test_clients_of_one_user_share_its_quota(office: Office) -> None:
    office.set({"user": "ANONYMOUS"}, producer_byte_rate=1000)
    office.set({"client-id": "joe"}, producer_byte_rate=1)
    quotas = office.desk.broker.quotas
    assert quotas.produced("joe", 6_000) == 0
    assert quotas.produced("jane", 6_000) == 2_000


def test_clients_with_the_default_do_not_share_it(office: Office) -> None:
    office.set({"client-id": None}, producer_byte_rate=1000)
    quotas = office.desk.broker.quotas
    assert quotas.produced("joe", 6_000) == 0
    assert quotas.produced("jane", 6_000) == 0
    assert quotas.produced("joe", 6_000) == 2_000
    assert quotas.produced(None, 60_000) == 0


def test_a_throttled_answer_to_fetch_does_not_count(office: Office) -> None:
    office.set({"client-id": "joe"}, consumer_byte_rate=1000)
    quotas = office.desk.broker.quotas
    assert quotas.fetch_bytes_max("joe") == 10_000
    assert quotas.fetch_bytes_max("jane") > 2e9
    assert quotas.fetched("joe", 9_000) == 0
    assert quotas.fetched("joe", 2_000) == 1_000
    assert quotas.fetched("joe", 2_000) == 1_000
    assert quotas.fetched("joe", 1_000) == 0


def test_an_answer_above_every_bound_passes_when_it_is_the_first(office: Office) -> None:
    office.set({"client-id": "joe"}, consumer_byte_rate=1000)
    quotas = office.desk.broker.quotas
    assert quotas.fetched("joe", 50_000) == 0
    assert quotas.fetched("joe", 50_000) > 0
    office.desk.clock.advance(11_000)
    assert quotas.fetched("joe", 50_000) == 0


def test_work_above_its_share_waits_a_window_at_most(office: Office) -> None:
    office.set({"client-id": "joe"}, request_percentage=1)
    quotas = office.desk.broker.quotas
    # One percent of ten seconds.
    assert quotas.worked("joe", 100_000_000) == 0
    assert quotas.worked("joe", 5_000_000) == 500
    assert quotas.worked("joe", 900_000_000) == 1_000
    assert quotas.worked("jane", 900_000_000) == 0


def test_idle_clients_are_forgotten_by_upkeep(office: Office) -> None:
    office.set({"client-id": None}, producer_byte_rate=1000, controller_mutation_rate=10)
    quotas = office.desk.broker.quotas
    for index in range(500):
        quotas.produced(f"c{index}", 10)
        quotas.mutations(f"c{index}", strict=True).spend(1)
    assert (len(quotas._rates), len(quotas._buckets)) == (500, 500)
    office.desk.clock.advance(12_000)
    assert (len(quotas._rates), len(quotas._buckets)) == (0, 0)


# What may be set.


@pytest.mark.parametrize(
    "entity, values, code",
    [
        ({"client-id": "c"}, {"producer_byte_rate": 1.0}, ErrorCode.NONE),
        ({"client-id": "c"}, {"producer_byte_rate": 1e19}, INVALID),
        ({"client-id": "c"}, {"producer_byte_rate": float("nan")}, INVALID),
        ({"client-id": "c"}, {"request_percentage": float("inf")}, ErrorCode.NONE),
        ({"client-id": "c"}, {"connection_creation_rate": 1.0}, INVALID),
        ({"ip": "::1"}, {"connection_creation_rate": 1.0}, ErrorCode.NONE),
        ({"ip": "localhost"}, {"connection_creation_rate": 1.0}, INVALID),
        ({"ip": "::1"}, {"connection_creation_rate": 2.0**31}, INVALID),
        ({"ip": "::1", "user": "u"}, {"connection_creation_rate": 1.0}, INVALID),
    ],
)
def test_what_may_be_set(
    office: Office, entity: dict[str, str | None], values: dict[str, float], code: ErrorCode
) -> None:
    assert office.set(entity, **values) is code
    assert bool(office.kept) == (code is ErrorCode.NONE)


@pytest.mark.parametrize("value", [5e-324, 1e-7, 1e308, float("inf")])
def test_the_smallest_and_the_largest_values_can_be_reckoned_with(
    office: Office, value: float
) -> None:
    rates = ["request_percentage", "controller_mutation_rate"]
    office.set({"client-id": "desk"}, **dict.fromkeys(rates, value))
    quotas = office.desk.broker.quotas
    mutations = [quotas.mutations("desk", strict=strict) for strict in (False, True, True)]
    refused = 0
    for each in mutations:
        try:
            each.spend(1)
        except KafkaError:
            refused += 1

    tiny = value < 1
    # An int32 has to hold them.
    assert [each.throttle_ms for each in mutations] == ([2**31 - 1] * 3 if tiny else [0] * 3)
    assert refused == (2 if tiny else 0)
    assert quotas.worked("desk", 1_000) == (1_000 if tiny else 0)
    assert office.kept == {(("client-id", "desk"),): dict.fromkeys(rates, value)}


def test_a_change_is_made_whole_or_not_at_all(office: Office) -> None:
    changes: dict[str, Any] = {"producer_byte_rate": 5, "consumer_byte_rate": -1}
    assert office.set({"user": "u"}, **changes) is INVALID
    assert office.kept == {}


def test_an_entity_named_twice_is_refused_and_its_first_change_made(office: Office) -> None:
    results = office.desk.broker.quotas.alter(
        [
            Alteration({"user": "u", "client-id": "c"}, [("producer_byte_rate", 1)]),
            Alteration({"client-id": "c", "user": "u"}, [("producer_byte_rate", 2)]),
        ],
        validate_only=False,
    )
    (error,) = results.values()
    assert error is not None
    assert error.code is INVALID
    assert list(office.kept.values()) == [{"producer_byte_rate": 1}]


def test_strict_filters_without_parts_find_nothing(office: Office) -> None:
    office.set({"user": "u"}, producer_byte_rate=1)
    quotas = office.desk.broker.quotas
    assert not quotas.describe([], strict=True)
    assert quotas.describe([Component("user", 2, None)], strict=True)


def test_topics_that_come_into_being_on_demand_count_as_well(office: Office) -> None:
    office.set({"client-id": None}, controller_mutation_rate=1)

    def mention(*names: str) -> list[bool]:
        topics = [messages.MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = messages.MetadataRequest(topics, allow_auto_topic_creation=True)
        answers = office.desk.ask(request, 9).topics
        assert {each.error_code for each in answers} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        return [office.desk.broker.topics.get(name) is not None for name in names]

    created = mention(*(f"t{index}" for index in range(7)))
    created += [exists for index in range(7, 14) for exists in mention(f"t{index}")]
    assert created == [True] * 12 + [False] * 2
    office.desk.clock.advance(1_000)
    assert mention("t13") == [True]
