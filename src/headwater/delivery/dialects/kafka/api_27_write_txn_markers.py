"""WriteTxnMarkers: v1-2.

Behaviour:
* Ends a producer's transaction in the partitions named, past the coordinator: brokers of a cluster
  send it to each other, and ``kafka-transactions abort`` sends it for a transaction that hangs.
* Answers when the markers are synced. A partition that does not exist is
  UNKNOWN_TOPIC_OR_PARTITION, an epoch that is over INVALID_PRODUCER_EPOCH, a coordinator that is
  over TRANSACTION_COORDINATOR_FENCED.

Version notes:
* v2: the ``transaction.version`` of the transaction; from 2 on the epoch must have grown.
"""

from functools import partial

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.topics import PartitionKey
from headwater.delivery.broker.transactions.markers import Marker
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 27
VERSIONS = (1, 2)

_Result = messages.WriteTxnMarkersResponse.WritableTxnMarkerResult
_TopicResult = messages.WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
_PartitionResult = messages.WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


class _Pending:
    """An answer that waits for the last of its markers."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._left = 1
        self._results: dict[int, dict[PartitionKey, ErrorCode]] = {}

    def write(self, marker: Marker, key: PartitionKey) -> None:
        self._left += 1
        written = partial(self.one_less, marker.producer_id, key, ErrorCode.NONE)
        try:
            self._call.broker.transactions.markers.append(marker, key, written)
        except KafkaError as error:
            self.one_less(marker.producer_id, key, error.code)

    def one_less(self, producer_id: int, key: PartitionKey, error: ErrorCode) -> None:
        self._results.setdefault(producer_id, {})[key] = error
        self.all_written()

    def all_written(self) -> None:
        self._left -= 1
        if self._left:
            return
        results = []
        for producer_id, errors in self._results.items():
            topics: dict[str, list[_PartitionResult]] = {}
            for (topic, index), error in sorted(errors.items()):
                topics.setdefault(topic, []).append(_PartitionResult(index, error))
            answers = [_TopicResult(topic, partitions) for topic, partitions in topics.items()]
            results.append(_Result(producer_id, answers))
        self._call.reply(messages.WriteTxnMarkersResponse(results))


def handle(call: Call, request: messages.WriteTxnMarkersRequest) -> None:
    """Write markers."""
    pending = _Pending(call)
    for wanted in request.markers:
        marker = Marker(
            wanted.producer_id,
            wanted.producer_epoch,
            wanted.transaction_result,
            wanted.coordinator_epoch,
            wanted.transaction_version,
        )
        for topic in wanted.topics:
            for index in topic.partition_indexes:
                pending.write(marker, (topic.name, index))
    pending.all_written()
