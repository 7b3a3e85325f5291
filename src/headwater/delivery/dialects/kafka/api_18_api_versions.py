"""ApiVersions: v0-4.

Behaviour:
* Lists exactly the APIs that have a handler: the registry is the only source.
* A version that we do not know is answered in the form of v0 with UNSUPPORTED_VERSION and the
  range for this very API, so that the client can step down (the connection does this, because
  such a body cannot be decoded).
* Names of client software that no log should carry are refused with INVALID_REQUEST.

Version notes:
* v3: flexible body, but the response header stays v0 so that any client can read it.
* v3: features (KIP-584), those with a lowest level of 0 only as finalized: clients that speak no
  v4 refuse a supported range that begins there (KIP-1022).
* v4: every supported feature.
"""

import re

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.features import SUPPORTED, Features
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 18
VERSIONS = (0, 4)

_FIRST_WITH_SOFTWARE_NAME = 3
_FIRST_WITH_LOWEST_LEVEL_0 = 4
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(call: Call, request: messages.ApiVersionsRequest) -> None:
    """Answer with the table of what is served."""
    if call.version >= _FIRST_WITH_SOFTWARE_NAME and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        call.reply(response(ErrorCode.INVALID_REQUEST))
        return
    answer = response(ErrorCode.NONE)
    _tell_features(answer, call.broker.features, call.version)
    call.reply(answer)


def _tell_features(answer: messages.ApiVersionsResponse, features: Features, version: int) -> None:
    lowest = 0 if version >= _FIRST_WITH_LOWEST_LEVEL_0 else 1
    answer.supported_features = [
        messages.ApiVersionsResponse.SupportedFeatureKey(name, feature.low, feature.high)
        for name, feature in SUPPORTED.items()
        if feature.low >= lowest
    ]
    answer.finalized_features_epoch = features.epoch
    # A level of 0 is a feature that is switched off: it is not told.
    answer.finalized_features = [
        messages.ApiVersionsResponse.FinalizedFeatureKey(name, level, level)
        for name, level in features.levels.items()
        if level > 0
    ]


def response(error: ErrorCode) -> messages.ApiVersionsResponse:
    """Build the answer; with an error it names no API, or only this one to step down to."""
    answer = messages.ApiVersionsResponse(error_code=error)
    if error == ErrorCode.UNSUPPORTED_VERSION:
        answer.api_keys = [messages.ApiVersionsResponse.ApiVersion(KEY, *VERSIONS)]
    if error:
        return answer
    from headwater.delivery.dialects.kafka import registry  # noqa: PLC0415 - it imports this file

    answer.api_keys = [
        messages.ApiVersionsResponse.ApiVersion(key, *module.VERSIONS)
        for key, module in sorted(registry.APIS.items())
    ]
    return answer
