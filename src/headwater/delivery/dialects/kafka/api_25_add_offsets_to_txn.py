"""AddOffsetsToTxn: v0-4.

Behaviour:
* The partition of ``__consumer_offsets`` that holds the group joins the producer's transaction, so
  that the offsets which TxnOffsetCommit brings count when the transaction commits.
* While the last transaction is ending the request waits; Kafka answers CONCURRENT_TRANSACTIONS.

Version notes:
* v2: PRODUCER_FENCED, before it INVALID_PRODUCER_EPOCH.
* v4: TRANSACTION_ABORTABLE is understood. With KIP-890 clients do not send this request any more.
"""

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.append_errors import error_for_client
from headwater.delivery.broker.groups.offsets_topic import OFFSETS_TOPIC
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.dialects.kafka.fencing import spell_fenced
from headwater.delivery.wire.kafka import messages

KEY = 25
VERSIONS = (0, 4)

_FIRST_WITH_FENCED = 2


def handle(call: Call, request: messages.AddOffsetsToTxnRequest) -> None:
    """Let a group's offsets join a transaction."""

    def answer(error: ErrorCode) -> None:
        error = spell_fenced(call, error, first_version=_FIRST_WITH_FENCED)
        call.reply(messages.AddOffsetsToTxnResponse(error_code=error))

    if not request.transactional_id:
        answer(ErrorCode.INVALID_REQUEST)
        return
    broker = call.broker
    try:
        place = (OFFSETS_TOPIC, broker.groups.partition_of(request.group_id))
    except KafkaError as error:
        # The first group of all makes the topic, for which there may be no room.
        answer(error_for_client(error))
        return
    broker.transactions.enlist(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [place],
        answer,
        client_version=0,
    )
