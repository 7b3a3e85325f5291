"""CreateTopics: v2-7.

Behaviour:
* Topics are judged one by one; those that pass are created together, with one sync, and exist for
  everyone when the answer is sent. The request's time-out is therefore never reached.
* A name that stands twice in the request is refused once, and nothing is created under it.
* The replication factor is 1 and the only broker is this one; -1 leaves numbers to the broker.
* More than 10,000 partitions in one request are refused for all its topics, as Kafka's controller
  does; headwater.max.partitions bounds all topics together.
* validate_only answers as if it had been done, with the null topic id.
* New partitions count against controller_mutation_rate (KIP-599), those of validate_only too. Once
  it is exceeded, topics are refused with THROTTLING_QUOTA_EXCEEDED from v6 on; before, the client
  has to wait after the answer.

Version notes:
* v4: -1 for partitions and replication factor (accepted in every version).
* v5: the answer tells partitions, replication factor and all configs (KIP-525).
* v7: the answer tells the topic id (KIP-516).
"""

from collections import Counter

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.settings import TopicConfig
from headwater.delivery.broker.broker import Broker
from headwater.delivery.broker.topic_rules import Room, WantedTopic, plan_creation
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 19
VERSIONS = (2, 7)

_FIRST_WITH_QUOTA_ERROR = 6

_Result = messages.CreateTopicsResponse.CreatableTopicResult
_Config = messages.CreateTopicsResponse.CreatableTopicConfigs


def handle(call: Call, request: messages.CreateTopicsRequest) -> None:
    """Create what may be created and say for each topic what became of it."""
    broker = call.broker
    times = Counter(topic.name for topic in request.topics)
    wanted = [_wanted(topic) for topic in request.topics if times[topic.name] == 1]
    room = Room({topic.name for topic in broker.topics}, broker.topics.partition_count())
    plans = plan_creation(wanted, room, broker.settings, broker.store.topic_defaults)
    results = {
        topic.name: _refusal(topic.name, plan)
        for topic, plan in zip(wanted, plans, strict=True)
        if isinstance(plan, KafkaError)
    }
    quota = broker.quotas.mutations(call.client_id, strict=call.version >= _FIRST_WITH_QUOTA_ERROR)
    accepted = []
    for plan in plans:
        if isinstance(plan, NewTopic):
            try:
                quota.spend(plan.partitions)
                accepted.append(plan)
            except KafkaError as exceeded:
                results[plan.name] = _refusal(plan.name, exceeded)
    ids = {} if request.validate_only else _create(broker, accepted, results)
    for plan in accepted:
        if plan.name not in results:
            results[plan.name] = _success(broker, plan, ids.get(plan.name, bytes(16)))
    for name, count in times.items():
        if count > 1:
            duplicate = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            results[name] = _refusal(name, duplicate)
    response = messages.CreateTopicsResponse(topics=[results[name] for name in times])
    call.throttle(response, quota.throttle_ms)
    call.reply(response)


def _wanted(topic: messages.CreateTopicsRequest.CreatableTopic) -> WantedTopic:
    return WantedTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(given.partition_index, given.broker_ids) for given in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _create(
    broker: Broker,
    accepted: list[NewTopic],
    results: dict[str, messages.CreateTopicsResponse.CreatableTopicResult],
) -> dict[str, bytes]:
    """Create the topics; return their ids, or none with the reason in the results."""
    if not accepted:
        return {}
    try:
        created = broker.topics.create(accepted)
    except KafkaError as error:
        results.update((plan.name, _refusal(plan.name, error)) for plan in accepted)
        return {}
    return {topic.name: topic.topic_id for topic in created}


def _refusal(name: str, error: KafkaError) -> messages.CreateTopicsResponse.CreatableTopicResult:
    return _Result(
        name,
        error_code=error.code,
        error_message=error.message,
        num_partitions=-1,
        replication_factor=-1,
        configs=[],
    )


def _success(
    broker: Broker, plan: NewTopic, topic_id: bytes
) -> messages.CreateTopicsResponse.CreatableTopicResult:
    config = TopicConfig.parse(plan.configs, broker.store.topic_defaults)
    return _Result(
        plan.name,
        topic_id,
        error_message=None,
        num_partitions=plan.partitions,
        replication_factor=1,
        configs=[
            _Config(
                described.setting.name,
                described.value,
                described.read_only,
                described.source,
                described.setting.sensitive,
            )
            for described in broker.configs.describe_topic(plan.configs, config)
        ],
    )
