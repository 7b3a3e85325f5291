"""DescribeConfigs: v1-4.

Behaviour:
* Tells every config of a topic and every setting of this broker, with its source and, if asked,
  the values that would hold if it were not set (synonyms) and a sentence of documentation.
* The broker resource "" tells only what was set at run time for every node, as in Kafka.
* A list of keys is a filter: unknown keys are left out; an empty list is no filter.
* Groups, loggers and client metrics have no configs here: an empty list, no error.

Version notes:
* v3: type and documentation (KIP-569).
"""

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.configs import Described
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.dialects.kafka.resources import describe
from headwater.delivery.wire.kafka import messages

KEY = 32
VERSIONS = (1, 4)

_Result = messages.DescribeConfigsResponse.DescribeConfigsResult
_Config = messages.DescribeConfigsResponse.DescribeConfigsResourceResult
_Synonym = messages.DescribeConfigsResponse.DescribeConfigsSynonym


def handle(call: Call, request: messages.DescribeConfigsRequest) -> None:
    """Tell the configs of each resource."""
    response = messages.DescribeConfigsResponse()
    for asked in request.resources:
        # Kafka sends an empty message, not null, where there is nothing to say.
        result = _Result(ErrorCode.NONE, "", asked.resource_type, asked.resource_name)
        response.results.append(result)
        try:
            configs = describe(call.broker, asked.resource_type, asked.resource_name)
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = "" if error.message == error.code.name else error.message
            continue
        keys = set(asked.configuration_keys or ())
        result.configs = [
            _config(described, request)
            for described in configs
            if not keys or described.setting.name in keys
        ]
    call.reply(response)


def _config(
    described: Described, request: messages.DescribeConfigsRequest
) -> messages.DescribeConfigsResponse.DescribeConfigsResourceResult:
    setting = described.setting
    return _Config(
        setting.name,
        described.value,
        described.read_only,
        described.source,
        setting.sensitive,
        [_Synonym(*synonym) for synonym in described.synonyms] if request.include_synonyms else [],
        setting.kind,
        setting.documentation if request.include_documentation else None,
    )
