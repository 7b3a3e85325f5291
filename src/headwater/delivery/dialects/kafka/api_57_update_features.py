"""UpdateFeatures: v0-2.

Behaviour:
* Changes the levels of features, all or none; they hold at once and after a restart.
* The first update that is not possible is told for all of them, as Kafka does.

Version notes:
* v0: upgrades only. Its flag that allows a downgrade is not looked at, as in Kafka.
* v1: upgrade types and validate_only (KIP-778).
* v2: a success lists no features.
"""

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.features import FeatureUpdate
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 57
VERSIONS = (0, 2)

_FIRST_WITHOUT_RESULTS = 2
_REFUSED = "The update failed for all features since the following feature had an error: "

_Result = messages.UpdateFeaturesResponse.UpdatableFeatureResult


def handle(call: Call, request: messages.UpdateFeaturesRequest) -> None:
    """Change the levels, or say what is wrong with the first that cannot be changed."""
    response = messages.UpdateFeaturesResponse(error_message=None)
    updates = [
        FeatureUpdate(asked.feature, asked.max_version_level, asked.upgrade_type)
        for asked in request.feature_updates
    ]
    try:
        call.broker.features.update(updates, validate_only=request.validate_only)
    except KafkaError as error:
        response.error_code = error.code
        response.error_message = f"{_REFUSED}{error.message}"
    else:
        if call.version < _FIRST_WITHOUT_RESULTS:
            none = ErrorCode.NONE
            response.results = [_Result(update.name, none, none.name) for update in updates]
    call.reply(response)
