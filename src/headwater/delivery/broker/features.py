"""Which features of Kafka can be switched here, and at which level each one is.

This file alone decides what ApiVersions tells of features (KIP-584) and which changes of them are
accepted, in Kafka's words. What a level means is the affair of those who ask for it; keeping it is
the store's.

* ``transaction.version``: 2 means the protocol of KIP-890, which clients use only where this level
  is told; 0 and 1 are the older one.
* ``metadata.version``: the release whose metadata is spoken, here always that of Kafka 4.3.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from headwater.base.errors import ErrorCode, KafkaError
from headwater.log.store import LogStore

TRANSACTION_VERSION: Final = "transaction.version"
METADATA_VERSION: Final = "metadata.version"

# The level that Kafka calls 4.3-IV0.
_KAFKA_4_3: Final = 30


class Feature(NamedTuple):
    """The levels that a feature may have, and the one it has when nobody chose."""

    low: int
    high: int
    default: int


SUPPORTED: Final[Mapping[str, Feature]] = {
    METADATA_VERSION: Feature(_KAFKA_4_3, _KAFKA_4_3, _KAFKA_4_3),
    TRANSACTION_VERSION: Feature(0, 2, 2),
}


class UpgradeType(IntEnum):
    """What an update is allowed to do, by its number in UpdateFeatures."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """One feature that is to have another level."""

    name: str
    level: int
    upgrade_type: int


class Features:
    """The levels in force."""

    def __init__(self, store: LogStore, *, node_id: int) -> None:
        """Take the levels that were chosen on earlier runs, or the defaults."""
        self._store = store
        self._node_id = node_id
        self._levels: dict[str, int] = {}
        self._read()

    @property
    def transaction_version(self) -> int:
        """The level of ``transaction.version``."""
        return self._levels[TRANSACTION_VERSION]

    @property
    def levels(self) -> Mapping[str, int]:
        """Every level in force, by the name of its feature."""
        return self._levels

    @property
    def epoch(self) -> int:
        """A number that grows with every change; clients believe the answer with the larger."""
        return self._store.features_epoch

    def update(self, updates: Sequence[FeatureUpdate], *, validate_only: bool) -> None:
        """Change levels, all or none; they are durable when this returns.

        Raises:
            KafkaError: INVALID_UPDATE_VERSION, with the first update that is not possible.
            StorageError: The disk failed or is full; nothing was changed.
        """
        changed = dict(self._levels)
        for update in updates:
            self._check(update)
            changed[update.name] = update.level
        if changed != self._levels and not validate_only:
            # Defaults are not written down: another release may have another one.
            chosen = {
                name: level
                for name, level in changed.items()
                if name in self._store.feature_levels or level != SUPPORTED[name].default
            }
            self._store.set_feature_levels(chosen)
            self._read()

    def _read(self) -> None:
        kept = self._store.feature_levels
        self._levels = {
            name: min(max(kept.get(name, feature.default), feature.low), feature.high)
            for name, feature in SUPPORTED.items()
        }

    def _check(self, update: FeatureUpdate) -> None:
        feature = SUPPORTED.get(update.name)
        current = self._levels.get(update.name, 0)
        if update.upgrade_type not in list(UpgradeType)[1:]:
            raise _refusal(update, "The controller does not support the given upgrade type.")
        if update.level < 0:
            raise _refusal(update, "A feature version cannot be less than 0.")
        if feature is None:
            if update.level == 0:
                raise _refusal(update, f"Feature {update.name} not found.")
            message = f"Local controller {self._node_id} does not support this feature."
            raise _refusal(update, message)
        if not feature.low <= update.level <= feature.high:
            bounds = f"{feature.low}-{feature.high}"
            message = f"Local controller {self._node_id} only supports versions {bounds}"
            raise _refusal(update, message)
        upgrade = update.upgrade_type == UpgradeType.UPGRADE
        if upgrade and update.level < current:
            raise _refusal(
                update,
                "Can't downgrade the version of this feature without setting the upgrade type "
                "to either safe or unsafe downgrade.",
            )
        if not upgrade and update.level > current:
            raise _refusal(update, "Can't downgrade to a newer version.")


def _refusal(update: FeatureUpdate, reason: str) -> KafkaError:
    message = f"Invalid update version {update.level} for feature {update.name}. {reason}"
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
