"""InitProducerId: v0-5.

Behaviour:
* Without a transactional id every call gives a producer id that was never given before, with epoch
  0, whatever id and epoch the producer had; Kafka does the same.
* With one, the producer gets the next epoch: whoever used the id before is fenced, and what it
  left open is aborted first. Kafka answers CONCURRENT_TRANSACTIONS during the abort; here the
  request waits for it.
* A time-out of 0 or less, or above ``transaction.max.timeout.ms``, is INVALID_TRANSACTION_TIMEOUT.
* An empty transactional id, or only one of producer id and epoch, is INVALID_REQUEST.

Version notes:
* v3: the producer may send the id and epoch it has (KIP-360).
* v4: PRODUCER_FENCED, before it INVALID_PRODUCER_EPOCH.
* v6, two-phase commit (KIP-939), is not stable in Kafka 4.3 and not served there either.
"""

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.transactions.coordinator import ProducerAnswer
from headwater.delivery.broker.transactions.decisions import Producer
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.dialects.kafka.fencing import spell_fenced
from headwater.delivery.wire.kafka import messages

KEY = 22
VERSIONS = (0, 5)

_NONE = -1
_FIRST_WITH_FENCED = 4


def handle(call: Call, request: messages.InitProducerIdRequest) -> None:
    """Give out a producer id."""

    def answer(result: ProducerAnswer) -> None:
        call.reply(
            messages.InitProducerIdResponse(
                error_code=spell_fenced(call, result.error, first_version=_FIRST_WITH_FENCED),
                producer_id=result.producer_id,
                producer_epoch=result.producer_epoch,
            )
        )

    has_id, has_epoch = request.producer_id != _NONE, request.producer_epoch != _NONE
    if request.transactional_id == "" or has_id != has_epoch:
        answer(ProducerAnswer(ErrorCode.INVALID_REQUEST))
    elif request.transactional_id is not None:
        expected = Producer(request.producer_id, request.producer_epoch) if has_id else None
        call.broker.transactions.init_producer(
            request.transactional_id, request.transaction_timeout_ms, expected, answer
        )
    else:
        try:
            producer_id = call.broker.store.next_producer_id()
        except KafkaError as failure:
            answer(ProducerAnswer(failure.code))
        else:
            answer(ProducerAnswer(ErrorCode.NONE, producer_id, 0))
