"""The levels of features: chosen, kept, brought back."""

import errno

import pytest

from headwater.base.errors import KafkaError, StorageError
from headwater.delivery.broker.features import (
    SUPPORTED,
    TRANSACTION_VERSION,
    Features,
    FeatureUpdate,
    UpgradeType,
)
from tests.log.house import House


def features_of(house: House) -> Features:
    return Features(house.open(), node_id=1)


def down(level: int) -> FeatureUpdate:
    return FeatureUpdate(TRANSACTION_VERSION, level, UpgradeType.SAFE_DOWNGRADE)


def up(level: int) -> FeatureUpdate:
    return FeatureUpdate(TRANSACTION_VERSION, level, UpgradeType.UPGRADE)


def test_the_defaults() -> None:
    features = features_of(House())

    assert features.levels == {name: feature.default for name, feature in SUPPORTED.items()}
    assert (features.transaction_version, features.epoch) == (2, 0)


def test_a_level_survives_a_crash() -> None:
    house = House()
    features_of(house).update([down(0)], validate_only=False)
    features = Features(house.crash(), node_id=1)

    assert (features.transaction_version, features.epoch) == (0, 1)
    features.update([up(2)], validate_only=False)
    features = Features(house.crash(), node_id=1)
    assert (features.transaction_version, features.epoch) == (2, 2)


def test_what_changes_nothing_is_not_written() -> None:
    features = features_of(House())
    features.update([up(2), down(2)], validate_only=False)
    features.update([down(1)], validate_only=True)

    assert (features.transaction_version, features.epoch) == (2, 0)


def test_a_level_that_cannot_be_kept_is_not_taken() -> None:
    house = House()
    features = features_of(house)
    house.disk.fail_at(house.disk.operations + 1, OSError(errno.ENOSPC, "full"))
    with pytest.raises(StorageError):
        features.update([down(1)], validate_only=False)

    assert features.transaction_version == 2
    features.update([down(1)], validate_only=False)
    assert features.transaction_version == 1


def test_one_bad_update_spoils_them_all() -> None:
    features = features_of(House())
    with pytest.raises(KafkaError, match="only supports versions 0-2"):
        features.update([down(1), up(3)], validate_only=False)

    assert features.transaction_version == 2


def test_a_level_of_a_later_release_is_the_highest_we_know() -> None:
    house = House()
    house.open().set_feature_levels({TRANSACTION_VERSION: 5, "unheard.of": 3})
    features = Features(house.crash(), node_id=1)

    assert features.transaction_version == 2
    assert "unheard.of" not in features.levels
