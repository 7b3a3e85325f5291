"""AlterReplicaLogDirs: v1-2.

Behaviour:
* There is one log directory, in which every replica lies already: to move one there is done at
  once. Any other directory is LOG_DIR_NOT_FOUND.
* A partition that is to go to two directories is answered once, for the last of them.
"""

from headwater.base.errors import ErrorCode
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 34
VERSIONS = (1, 2)

_Topic = messages.AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
_Partition = messages.AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


def handle(call: Call, request: messages.AlterReplicaLogDirsRequest) -> None:
    """Say of each replica whether it is where it is to go."""
    wanted: dict[str, dict[int, str]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                wanted.setdefault(topic.name, {})[index] = directory.path
    response = messages.AlterReplicaLogDirsResponse(
        results=[
            _Topic(
                name,
                [_Partition(index, _judge(call, name, index, path)) for index, path in to.items()],
            )
            for name, to in wanted.items()
        ]
    )
    call.reply(response)


def _judge(call: Call, topic: str, index: int, path: str) -> ErrorCode:
    if path != call.broker.store.directory:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if call.broker.topics.partition(topic, index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE
