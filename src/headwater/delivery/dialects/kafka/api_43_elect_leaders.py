"""ElectLeaders: v0-2.

Behaviour:
* The only replica leads every partition, so that no election is ever needed; the answer says so
  for each partition that exists.
* Null asks for all partitions. As in Kafka, the answer then names every topic and only those
  partitions for which an election was needed: none.

Version notes:
* v0: elections of the preferred leader only. v1: the type of the election (KIP-460).
"""

from headwater.base.errors import ErrorCode
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 43
VERSIONS = (0, 2)

_PREFERRED = 0
_UNCLEAN = 1

_Topic = messages.ElectLeadersResponse.ReplicaElectionResult
_Partition = messages.ElectLeadersResponse.PartitionResult


def handle(call: Call, request: messages.ElectLeadersRequest) -> None:
    """Say that every partition has its leader."""
    wanted = request.topic_partitions
    response = messages.ElectLeadersResponse()
    known = request.election_type in {_PREFERRED, _UNCLEAN}
    if not known and (wanted is None or wanted):
        response.error_code = ErrorCode.INVALID_REQUEST
    if wanted is not None:
        message = None if known else f"Unknown election type {request.election_type}"
        response.replica_election_results = [
            _Topic(
                asked.topic,
                [
                    _Partition(index, ErrorCode.INVALID_REQUEST, message)
                    if message
                    else _one(call, asked.topic, index)
                    for index in asked.partitions
                ],
            )
            for asked in wanted
        ]
    elif known:
        response.replica_election_results = [_Topic(topic.name) for topic in call.broker.topics]
    call.reply(response)


def _one(call: Call, name: str, index: int) -> messages.ElectLeadersResponse.PartitionResult:
    topic = call.broker.topics.get(name)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        return _Partition(index, unknown, f"No such topic as {name}")
    if topic.partition(index) is None:
        return _Partition(index, unknown, f"No such partition as {name}-{index}")
    message = "Leader election not needed for topic partition."
    return _Partition(index, ErrorCode.ELECTION_NOT_NEEDED, message)
