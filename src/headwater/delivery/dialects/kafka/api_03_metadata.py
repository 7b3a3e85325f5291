"""Metadata: v0-13.

Behaviour:
* Names the one broker (ourselves) as controller, leader and only replica of everything.
* v0: an empty list of topics means all; v1+: null means all, empty means none.
* A topic that does not exist is created when both the request and ``auto.create.topics.enable``
  allow it; all such topics of a request with one sync. As from Kafka, the answer is
  UNKNOWN_TOPIC_OR_PARTITION and the next one has the topic. A client that has just deleted the
  topic does not bring it back by asking for it.
* New topics count against controller_mutation_rate; above that they are not there at the next
  request either. The broker's own topics come in their own shape; ``__share_group_state`` is not
  created.

Version notes:
* v4: the client may forbid auto-creation; before, it is always allowed.
* v8-10: authorized operations of the cluster; v8+ of topics, when asked for (KIP-430).
* v10: the answer tells topic ids (KIP-516); v12: topics by id, an unknown one has a null name.
* v13: an error code for the whole answer (KIP-1102).
"""

from collections.abc import Iterable, Mapping

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.topics import BrokerTopic
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages
from headwater.log.topic import INTERNAL_TOPICS

KEY = 3
VERSIONS = (0, 13)

# Bit n stands for Kafka's ACL operation n; without an authorizer everything that applies to the
# resource is allowed.
# Topic: read, write, create, delete, alter, describe, describe configs, alter configs.
TOPIC_OPERATIONS = 0b1101_1111_1000
# Cluster: create, alter, describe, cluster action, describe and alter configs, idempotent write.
CLUSTER_OPERATIONS = 0b1_1111_1010_0000

_FIRST_WITH_NULL_FOR_ALL = 1
_FIRST_BY_ID = 12
_NO_TOPIC_ID = bytes(16)

_Topic = messages.MetadataResponse.MetadataResponseTopic
_Partition = messages.MetadataResponse.MetadataResponsePartition


def handle(call: Call, request: messages.MetadataRequest) -> None:
    """Describe this node and the topics asked for."""
    broker = call.broker
    response = messages.MetadataResponse(
        brokers=[
            messages.MetadataResponse.MetadataResponseBroker(
                broker.node_id, broker.advertised_host, broker.advertised_port
            )
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
    )
    with_operations = request.include_topic_authorized_operations
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    wanted = request.topics
    if wanted is None or (not wanted and call.version < _FIRST_WITH_NULL_FOR_ALL):
        response.topics = [
            _describe(call, topic, with_operations=with_operations) for topic in broker.topics
        ]
    elif call.version < _FIRST_BY_ID and any(map(_is_by_id, wanted)):
        response.topics = [
            _Topic(ErrorCode.INVALID_REQUEST, asked.name or "", asked.topic_id) for asked in wanted
        ]
    else:
        once = list({(asked.name, asked.topic_id): asked for asked in wanted}.values())
        missing = _missing(call, request, once)
        response.topics = [_one(call, request, asked, missing) for asked in once]
    call.reply(response)


def _missing(
    call: Call,
    request: messages.MetadataRequest,
    wanted: Iterable[messages.MetadataRequest.MetadataRequestTopic],
) -> dict[str, messages.MetadataResponse.MetadataResponseTopic]:
    """Answer for the names that no topic has, and create the topics if that is the rule."""
    topics = call.broker.topics
    names = [
        asked.name
        for asked in wanted
        if asked.name is not None and not _is_by_id(asked) and topics.get(asked.name) is None
    ]
    if not names:
        return {}
    told = call.broker.create_on_demand(
        names,
        allowed=request.allow_auto_topic_creation,
        client_id=call.client_id,
        client_host=call.client_host,
    )
    return {
        name: _Topic(code, name, is_internal=name in INTERNAL_TOPICS) for name, code in told.items()
    }


def _is_by_id(asked: messages.MetadataRequest.MetadataRequestTopic) -> bool:
    return asked.name is None or asked.topic_id != _NO_TOPIC_ID


def _one(
    call: Call,
    request: messages.MetadataRequest,
    asked: messages.MetadataRequest.MetadataRequestTopic,
    missing: Mapping[str, messages.MetadataResponse.MetadataResponseTopic],
) -> messages.MetadataResponse.MetadataResponseTopic:
    topics = call.broker.topics
    if asked.name is None or _is_by_id(asked):
        topic = topics.by_id(asked.topic_id)
        if topic is None:
            return _Topic(ErrorCode.UNKNOWN_TOPIC_ID, None, asked.topic_id)
    elif asked.name in missing:
        return missing[asked.name]
    else:
        topic = topics.get(asked.name)
        assert topic is not None
    return _describe(call, topic, with_operations=request.include_topic_authorized_operations)


def _describe(
    call: Call, topic: BrokerTopic, *, with_operations: bool
) -> messages.MetadataResponse.MetadataResponseTopic:
    node = [call.broker.node_id]
    epoch = call.broker.leader_epoch
    answer = _Topic(
        ErrorCode.NONE,
        topic.name,
        topic.topic_id,
        topic.internal,
        [
            _Partition(ErrorCode.NONE, index, node[0], epoch, node, node)
            for index in range(len(topic.partitions))
        ],
    )
    if with_operations:
        answer.topic_authorized_operations = TOPIC_OPERATIONS
    return answer
