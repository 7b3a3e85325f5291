"""CreatePartitions: v0-3.

Behaviour:
* A topic only grows; new partitions are there for everyone when the answer is sent.
* Manual assignments must name this broker, once for each new partition.
* The topics that hold the broker's own state keep their number of partitions:
  INVALID_TOPIC_EXCEPTION. Kafka 4.3 lets them grow, and then looks for groups and transactional
  ids in other partitions than those that hold them.
* A topic that stands in the request twice is refused.
* More than 10,000 new partitions in one request are refused with POLICY_VIOLATION; Kafka 4.3
  answers UNKNOWN_SERVER_ERROR. headwater.max.partitions bounds all topics together.
* New partitions count against controller_mutation_rate (KIP-599). Once it is exceeded, topics are
  refused with THROTTLING_QUOTA_EXCEEDED from v3 on; before, the client waits after the answer.
"""

from collections import Counter

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.broker import Broker
from headwater.delivery.broker.quotas import Mutations
from headwater.delivery.broker.topic_rules import check_growth
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 37
VERSIONS = (0, 3)

_FIRST_WITH_QUOTA_ERROR = 3

_Result = messages.CreatePartitionsResponse.CreatePartitionsTopicResult


def handle(call: Call, request: messages.CreatePartitionsRequest) -> None:
    """Grow each topic."""
    times = Counter(topic.name for topic in request.topics)
    results = {name: _Result(name, error_message=None) for name in times}
    strict = call.version >= _FIRST_WITH_QUOTA_ERROR
    quota = call.broker.quotas.mutations(call.client_id, strict=strict)
    for asked in request.topics:
        result = results[asked.name]
        if times[asked.name] > 1:
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = "Duplicate topic name."
            continue
        try:
            _grow(call.broker, asked, quota, validate_only=request.validate_only)
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = None if error.message == error.code.name else error.message
    response = messages.CreatePartitionsResponse(results=list(results.values()))
    call.throttle(response, quota.throttle_ms)
    call.reply(response)


def _grow(
    broker: Broker,
    asked: messages.CreatePartitionsRequest.CreatePartitionsTopic,
    quota: Mutations,
    *,
    validate_only: bool,
) -> None:
    topic = broker.topics.get(asked.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assignments = asked.assignments
    check_growth(
        topic.name,
        len(topic.partitions),
        asked.count,
        None if assignments is None else [given.broker_ids for given in assignments],
        broker.settings,
        broker.topics.partition_count(),
    )
    quota.spend(asked.count - len(topic.partitions))
    if not validate_only:
        broker.topics.add_partitions(topic.name, asked.count)
