"""InitProducerId: v0-5.

Behaviour:
* Without a transactional id every call gives a producer id that was never given before, with epoch
  0, whatever id and epoch the producer had; Kafka does the same.
* A transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, because transactions do
  not exist here yet. It is the one code that Java, librdkafka, kafka-python and aiokafka all take
  as final: NOT_COORDINATOR or UNSUPPORTED_VERSION would let some of them ask for ever.
* An empty transactional id, or only one of producer id and epoch, is INVALID_REQUEST.

Version notes:
* v3: the producer may send the id and epoch it has (KIP-360).
"""

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 22
VERSIONS = (0, 5)

_NONE = -1


def handle(call: Call, request: messages.InitProducerIdRequest) -> None:
    """Give out a producer id."""
    error = ErrorCode.NONE
    producer_id = _NONE
    has_id, has_epoch = request.producer_id != _NONE, request.producer_epoch != _NONE
    if request.transactional_id == "" or has_id != has_epoch:
        error = ErrorCode.INVALID_REQUEST
    elif request.transactional_id is not None:
        error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    else:
        try:
            producer_id = call.broker.store.next_producer_id()
        except KafkaError as failure:
            error = failure.code
    epoch = _NONE if error else 0
    call.reply(
        messages.InitProducerIdResponse(
            error_code=error, producer_id=producer_id, producer_epoch=epoch
        )
    )
