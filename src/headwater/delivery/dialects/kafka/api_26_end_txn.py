"""EndTxn: v0-5.

Behaviour:
* Answers when the outcome is durable; the markers in the partitions follow, as in Kafka.
* A repetition of the request that ended the transaction succeeds; the other outcome, or an end
  where there is no transaction, is INVALID_TXN_STATE.
* While the last transaction is ending the request waits; Kafka answers CONCURRENT_TRANSACTIONS.

Version notes:
* v2: PRODUCER_FENCED, before it INVALID_PRODUCER_EPOCH.
* v5 (KIP-890): the epoch grows with every end, and the answer brings it; with it comes another
  producer id when the epochs are used up. An abort without a transaction succeeds.
"""

from headwater.base.errors import ErrorCode
from headwater.delivery.broker.transactions.coordinator import ProducerAnswer
from headwater.delivery.broker.transactions.decisions import Producer
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.dialects.kafka.fencing import spell_fenced
from headwater.delivery.wire.kafka import messages

KEY = 26
VERSIONS = (0, 5)

_FIRST_WITH_FENCED = 2
_FIRST_OF_KIP_890 = 5


def handle(call: Call, request: messages.EndTxnRequest) -> None:
    """Commit or abort a transaction."""

    def answer(result: ProducerAnswer) -> None:
        call.reply(
            messages.EndTxnResponse(
                error_code=spell_fenced(call, result.error, first_version=_FIRST_WITH_FENCED),
                producer_id=result.producer_id,
                producer_epoch=result.producer_epoch,
            )
        )

    if not request.transactional_id:
        answer(ProducerAnswer(ErrorCode.INVALID_REQUEST))
        return
    call.broker.transactions.end(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        answer,
        commit=request.committed,
        client_version=2 if call.version >= _FIRST_OF_KIP_890 else 0,
    )
