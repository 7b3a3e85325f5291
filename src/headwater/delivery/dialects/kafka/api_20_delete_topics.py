"""DeleteTopics: v1-6.

Behaviour:
* A deleted topic is gone for everyone when the answer is sent; its files follow after
  file.delete.delay.ms, for readers still in them.
* For two seconds a Metadata request of the same client does not create the topic again.
* The topics that hold the broker's own state are not deleted: INVALID_TOPIC_EXCEPTION. Kafka 4.3
  deletes them, and with them every group or every transactional id.
* delete.topic.enable=false refuses every topic: INVALID_REQUEST before v3, else
  TOPIC_DELETION_DISABLED.
* A topic that is named twice, by name or by id, is not deleted.
* Deleted partitions count against controller_mutation_rate (KIP-599). Once it is exceeded, topics
  are refused with THROTTLING_QUOTA_EXCEEDED from v5 on; before, the client waits after the answer.

Version notes:
* v5: an error message. v6: topics by id (KIP-516), either the name or the id.
"""

from collections import Counter
from collections.abc import Sequence

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.broker import Broker
from headwater.delivery.broker.quotas import Mutations
from headwater.delivery.broker.topic_rules import check_deletable
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 20
VERSIONS = (1, 6)

_FIRST_WITH_IDS = 6
_FIRST_WITH_QUOTA_ERROR = 5
_FIRST_WITH_DELETION_DISABLED = 3
_NO_ID = bytes(16)

_Asked = messages.DeleteTopicsRequest.DeleteTopicState
_Result = messages.DeleteTopicsResponse.DeletableTopicResult


def handle(call: Call, request: messages.DeleteTopicsRequest) -> None:
    """Delete what exists and say for each topic what became of it."""
    if call.version >= _FIRST_WITH_IDS:
        asked: Sequence[messages.DeleteTopicsRequest.DeleteTopicState] = request.topics
    else:
        asked = [_Asked(name) for name in request.topic_names]
    names = Counter(topic.name for topic in asked if topic.name is not None)
    ids = Counter(topic.topic_id for topic in asked if topic.topic_id != _NO_ID)
    response = messages.DeleteTopicsResponse()
    answered: set[tuple[str | None, bytes]] = set()
    strict = call.version >= _FIRST_WITH_QUOTA_ERROR
    quota = call.broker.quotas.mutations(call.client_id, strict=strict)
    for topic in asked:
        key = (topic.name, topic.topic_id)
        if key in answered and key != (None, _NO_ID):
            continue
        answered.add(key)
        result = _Result(topic.name, topic.topic_id, error_message=None)
        response.responses.append(result)
        try:
            _check_asked(topic, names, ids)
            _delete(call, result, ids, quota)
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.message
    call.throttle(response, quota.throttle_ms)
    call.reply(response)


def _check_asked(
    topic: messages.DeleteTopicsRequest.DeleteTopicState,
    names: Counter[str],
    ids: Counter[bytes],
) -> None:
    problem = ""
    if topic.name is None and topic.topic_id == _NO_ID:
        problem = "Neither topic name nor id were specified."
    elif topic.name is not None and topic.topic_id != _NO_ID:
        problem = "You may not specify both topic name and topic id."
    elif topic.name is not None and names[topic.name] > 1:
        problem = "Duplicate topic name."
    elif ids[topic.topic_id] > 1:
        problem = "Duplicate topic id."
    if problem:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def _delete(
    call: Call,
    result: messages.DeleteTopicsResponse.DeletableTopicResult,
    ids: Counter[bytes],
    quota: Mutations,
) -> None:
    broker: Broker = call.broker
    if result.name is None:
        topic = broker.topics.by_id(result.topic_id)
        missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    else:
        topic = broker.topics.get(result.name)
        missing = KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    if topic is None:
        raise missing
    if result.name is not None and ids[topic.topic_id]:
        message = "The provided topic name maps to an ID that was already supplied."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if not broker.settings.delete_topic_enable:
        disabled = call.version >= _FIRST_WITH_DELETION_DISABLED
        raise KafkaError(
            ErrorCode.TOPIC_DELETION_DISABLED if disabled else ErrorCode.INVALID_REQUEST,
            "Topic deletion is disabled.",
        )
    check_deletable(topic.name)
    quota.spend(len(topic.partitions))
    result.name = topic.name
    result.topic_id = topic.topic_id
    broker.delete_topic(topic.name, client_id=call.client_id, client_host=call.client_host)
