"""ApiVersions and UpdateFeatures: which features there are, and how their levels change."""

from collections.abc import Iterator
from typing import Any

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import Subject, Talk, code
from tests.contracts.transactional import until

TRANSACTIONS = "transaction.version"
UNKNOWN, UPGRADE, SAFE, UNSAFE = range(4)
PREFIX = "The update failed for all features since the following feature had an error: "
REFUSED = ErrorCode.INVALID_UPDATE_VERSION
NOT_DOWN = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe "
    "or unsafe downgrade."
)
VERSIONS = [0, 1, 2]


def api_versions(talk: Talk, version: int = 4) -> Any:  # noqa: ANN401 - the response
    return talk.ask(messages.ApiVersionsRequest("contract", "1.0"), version)


def finalized(talk: Talk, version: int = 4) -> dict[str, int]:
    features = api_versions(talk, version).finalized_features
    assert all(each.min_version_level == each.max_version_level for each in features)
    return {feature.name: feature.max_version_level for feature in features}


def update(
    talk: Talk,
    *updates: tuple[str, int, int],
    version: int = 2,
    validate_only: bool = False,
) -> Any:  # noqa: ANN401 - the response
    keys = []
    for name, level, upgrade_type in updates:
        key = messages.UpdateFeaturesRequest.FeatureUpdateKey(name, level)
        if version == 0:
            key.allow_downgrade = upgrade_type in {SAFE, UNSAFE}
        else:
            key.upgrade_type = upgrade_type
        keys.append(key)
    request = messages.UpdateFeaturesRequest(10_000, keys)
    if version > 0:
        request.validate_only = validate_only
    return talk.ask(request, version)


def refusal(talk: Talk, *updates: tuple[str, int, int], version: int = 2) -> str:
    """Return why the updates are refused, without the words that are always there."""
    answer = update(talk, *updates, version=version)
    assert (code(answer), answer.results) == (REFUSED, [])
    message: str = answer.error_message
    assert message.startswith(PREFIX)
    return message.removeprefix(PREFIX)


def level(talk: Talk) -> int:
    """The level of transactions, of which Apache Kafka tells by and by."""
    return finalized(talk).get(TRANSACTIONS, 0)


@pytest.fixture
def restored(talk: Talk) -> Iterator[None]:
    """Let the level of transactions be 2 before and after."""
    until(2, lambda: level(talk))
    yield
    update(talk, (TRANSACTIONS, 2, UPGRADE))
    until(2, lambda: level(talk))


# Telling.


@pytest.mark.parametrize("version", [3, 4])
def test_finalized_features(broker: Subject, talk: Talk, version: int) -> None:
    assert finalized(talk, version) == broker.expected("api versions: finalized features")
    assert api_versions(talk, version).finalized_features_epoch >= 0


def test_supported_features(broker: Subject, talk: Talk) -> None:
    expected = broker.expected("api versions: supported features")

    def supported(version: int) -> dict[str, tuple[int, int]]:
        features = api_versions(talk, version).supported_features
        return {feature.name: (feature.min_version, feature.max_version) for feature in features}

    assert supported(4) == expected
    # Clients of v3 take no lowest level of 0.
    assert supported(3) == {name: levels for name, levels in expected.items() if levels[0] > 0}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_versions_tell_of_none(talk: Talk, version: int) -> None:
    answer = api_versions(talk, version)

    assert (answer.supported_features, answer.finalized_features) == ([], [])


# Changing.


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("downgrade", [SAFE, UNSAFE])
def test_down_and_up_again(talk: Talk, version: int, downgrade: int) -> None:
    epochs = []
    for wanted, upgrade_type in [(1, downgrade), (1, downgrade), (1, UPGRADE), (2, UPGRADE)]:
        answer = update(talk, (TRANSACTIONS, wanted, upgrade_type), version=version)

        assert (code(answer), answer.error_message) == (ErrorCode.NONE, None)
        results = [(each.feature, each.error_code, each.error_message) for each in answer.results]
        assert results == ([(TRANSACTIONS, 0, "NONE")] if version < 2 else [])
        until(wanted, lambda: level(talk))
        epochs.append(api_versions(talk).finalized_features_epoch)
    assert epochs == sorted(epochs)
    assert epochs[0] < epochs[-1]


@pytest.mark.usefixtures("restored")
def test_a_feature_at_level_0_is_not_told(talk: Talk) -> None:
    assert code(update(talk, (TRANSACTIONS, 0, SAFE))) is ErrorCode.NONE
    until(0, lambda: level(talk))
    assert TRANSACTIONS not in finalized(talk)
    assert refusal(talk, (TRANSACTIONS, 2, SAFE)) == (
        f"Invalid update version 2 for feature {TRANSACTIONS}. Can't downgrade to a newer version."
    )
    assert code(update(talk, (TRANSACTIONS, 1, UPGRADE))) is ErrorCode.NONE
    until(1, lambda: level(talk))


@pytest.mark.parametrize("version", [1, 2])
def test_validate_only(talk: Talk, version: int) -> None:
    answer = update(talk, (TRANSACTIONS, 1, SAFE), version=version, validate_only=True)

    assert code(answer) is ErrorCode.NONE
    assert finalized(talk)[TRANSACTIONS] == 2
    answer = update(talk, (TRANSACTIONS, 3, UPGRADE), version=version, validate_only=True)
    assert code(answer) is REFUSED


def test_the_oldest_version_only_goes_up(talk: Talk) -> None:
    answer = update(talk, (TRANSACTIONS, 2, UPGRADE), version=0)

    assert code(answer) is ErrorCode.NONE
    assert [each.feature for each in answer.results] == [TRANSACTIONS]
    for upgrade_type in (UPGRADE, SAFE):
        assert refusal(talk, (TRANSACTIONS, 1, upgrade_type), version=0).endswith(NOT_DOWN)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_update_at_all(talk: Talk, version: int) -> None:
    answer = update(talk, version=version)

    assert (code(answer), answer.error_message, answer.results) == (ErrorCode.NONE, None, [])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "name, level, why",
    [
        (TRANSACTIONS, 1, NOT_DOWN),
        (TRANSACTIONS, 3, "Local controller 1 only supports versions 0-2"),
        (TRANSACTIONS, -1, "A feature version cannot be less than 0."),
        ("nope", 1, "Local controller 1 does not support this feature."),
        ("", 1, "Local controller 1 does not support this feature."),
        ("nope", 0, "Feature nope not found."),
    ],
)
def test_refusals(talk: Talk, name: str, level: int, why: str, version: int) -> None:
    found = refusal(talk, (name, level, UPGRADE), version=version)

    assert found == f"Invalid update version {level} for feature {name}. {why}"
    assert finalized(talk)[TRANSACTIONS] == 2


@pytest.mark.parametrize("upgrade_type", [UNKNOWN, 4, -1])
@pytest.mark.parametrize("level", [-1, 1, 2, 3])
def test_unknown_upgrade_types(talk: Talk, upgrade_type: int, level: int) -> None:
    found = refusal(talk, (TRANSACTIONS, level, upgrade_type))

    assert found.endswith("The controller does not support the given upgrade type.")


def test_all_or_none(talk: Talk) -> None:
    for order in (1, -1):
        updates = [(TRANSACTIONS, 1, SAFE), ("nope", 1, UPGRADE)][::order]
        assert "for feature nope" in refusal(talk, *updates)
        assert finalized(talk)[TRANSACTIONS] == 2


def test_the_release_of_metadata(broker: Subject, talk: Talk) -> None:
    metadata = "metadata.version"
    levels = broker.expected("update features: levels of metadata")
    assert code(update(talk, (metadata, 30, UPGRADE))) is ErrorCode.NONE
    for level in (31, 6, 0):
        found = refusal(talk, (metadata, level, SAFE))
        assert found.endswith(f"Local controller 1 only supports versions {levels}")
    assert code(update(talk, (metadata, 29, SAFE))) is REFUSED
    assert finalized(talk)[metadata] == 30
