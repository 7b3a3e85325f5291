"""SASL, access control lists, credentials: nobody is asked who he is.

Apache Kafka is asked without an authorizer, as it comes.
"""

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import Talk, code

DISABLED = ErrorCode.SECURITY_DISABLED
WHY = "No Authorizer is configured."
ANY = 1


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", ""])
def test_there_is_no_mechanism(talk: Talk, version: int, mechanism: str) -> None:
    for _ in range(2):
        answer = talk.ask(messages.SaslHandshakeRequest(mechanism), version)

        assert (code(answer), answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_nobody_authenticates(talk: Talk, version: int) -> None:
    answer = talk.ask(messages.SaslAuthenticateRequest(b"\0user\0word"), version)

    assert code(answer) is ErrorCode.ILLEGAL_SASL_STATE
    assert answer.error_message == (
        "SaslAuthenticate request received after successful authentication"
    )
    assert (answer.auth_bytes, answer.session_lifetime_ms) == (b"", 0)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_there_are_no_access_control_lists(talk: Talk, version: int) -> None:
    for resource_type in (ANY, 99):
        request = messages.DescribeAclsRequest(resource_type, None, ANY, None, None, ANY, ANY)
        answer = talk.ask(request, version)

        assert (code(answer), answer.resources) == (DISABLED, [])
        assert answer.error_message == "No Authorizer is configured on the broker"


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_none_can_be_created(talk: Talk, version: int, count: int) -> None:
    entry = messages.CreateAclsRequest.AclCreation(2, "topic", 3, "User:a", "*", 3, 3)
    answer = talk.ask(messages.CreateAclsRequest([entry] * count), version)

    assert [(code(each), each.error_message) for each in answer.results] == [
        (DISABLED, WHY)
    ] * count


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_none_can_be_deleted(talk: Talk, version: int, count: int) -> None:
    every = messages.DeleteAclsRequest.DeleteAclsFilter(ANY, None, ANY, None, None, ANY, ANY)
    answer = talk.ask(messages.DeleteAclsRequest([every] * count), version)

    assert [
        (code(each), each.error_message, each.matching_acls) for each in answer.filter_results
    ] == [(DISABLED, WHY, [])] * count


def test_nobody_has_credentials(talk: Talk) -> None:
    asked = messages.DescribeUserScramCredentialsRequest

    def describe(names: list[str] | None) -> dict[str, tuple[ErrorCode, str]]:
        users = None if names is None else [asked.UserName(name) for name in names]
        answer = talk.ask(asked(users), 0)
        assert (code(answer), answer.error_message) == (ErrorCode.NONE, "")
        assert all(each.credential_infos == [] for each in answer.results)
        return {each.user: (code(each), each.error_message) for each in answer.results}

    def missing(name: str) -> tuple[ErrorCode, str]:
        why = f"Attempt to describe a user credential that does not exist: {name}"
        return ErrorCode.RESOURCE_NOT_FOUND, why

    assert describe(None) == describe([]) == {}
    assert describe(["a", ""]) == {"a": missing("a"), "": missing("")}
    why = "Cannot describe SCRAM credentials for the same user twice in a single request: a"
    assert describe(["a", "b", "a"]) == {
        "a": (ErrorCode.DUPLICATE_RESOURCE, why),
        "b": missing("b"),
    }
