"""DescribeLogDirs: v1-5.

Behaviour:
* There is one log directory. Null topics means all partitions; a list is a filter, in which
  unknown topics and partitions are left out, as in Kafka.
* Sizes are those of the segment files in use; a partition without a record has size 0.
* After a disk failure the directory answers KAFKA_STORAGE_ERROR.

Version notes:
* v3: an error code for the whole answer. v4: total and usable bytes of the volume (KIP-827).
* v5: whether the directory is cordoned, which ours never is.
"""

from collections.abc import Iterable

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.broker import Broker
from headwater.delivery.broker.partition import Partition
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 35
VERSIONS = (1, 5)

_Directory = messages.DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = messages.DescribeLogDirsResponse.DescribeLogDirsTopic
_Partition = messages.DescribeLogDirsResponse.DescribeLogDirsPartition


def handle(call: Call, request: messages.DescribeLogDirsRequest) -> None:
    """Tell what lies in the log directory."""
    store = call.broker.store
    if store.failed:
        result = _Directory(ErrorCode.KAFKA_STORAGE_ERROR, store.directory)
    else:
        total_bytes, usable_bytes = store.volume_bytes()
        result = _Directory(
            ErrorCode.NONE,
            store.directory,
            [
                _Topic(name, [_describe(partition) for partition in partitions])
                for name, partitions in _selected(call.broker, request)
            ],
            total_bytes=total_bytes,
            usable_bytes=usable_bytes,
        )
    call.reply(messages.DescribeLogDirsResponse(results=[result]))


def _selected(
    broker: Broker, request: messages.DescribeLogDirsRequest
) -> Iterable[tuple[str, list[Partition]]]:
    if request.topics is None:
        for topic in broker.topics:
            yield topic.name, topic.partitions
        return
    for asked in request.topics:
        found = broker.topics.get(asked.topic)
        if found is not None:
            given = (found.partition(index) for index in asked.partitions)
            partitions = [partition for partition in given if partition is not None]
            if partitions:
                yield found.name, partitions


def _describe(partition: Partition) -> messages.DescribeLogDirsResponse.DescribeLogDirsPartition:
    # The lag of the last record behind the high watermark: none, for there is one replica.
    return _Partition(partition.log.partition, partition.log.size_bytes())
