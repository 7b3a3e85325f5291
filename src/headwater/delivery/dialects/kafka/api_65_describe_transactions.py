"""DescribeTransactions: v0.

Behaviour:
* Tells of each transactional id its state, its producer, when its transaction began and which
  partitions it has reached. An unknown id is TRANSACTIONAL_ID_NOT_FOUND, an empty one
  INVALID_REQUEST.
"""

from headwater.base.errors import ErrorCode
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 65
VERSIONS = (0, 0)

_State = messages.DescribeTransactionsResponse.TransactionState
_Topic = messages.DescribeTransactionsResponse.TopicData


def handle(call: Call, request: messages.DescribeTransactionsRequest) -> None:
    """Describe transactional ids."""
    states = [_describe(call, transactional_id) for transactional_id in request.transactional_ids]
    call.reply(messages.DescribeTransactionsResponse(transaction_states=states))


def _describe(call: Call, transactional_id: str) -> _State:
    if not transactional_id:
        return _State(ErrorCode.INVALID_REQUEST, transactional_id)
    found = call.broker.transactions.get(transactional_id)
    if found is None:
        return _State(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id)
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(found.partitions):
        topics.setdefault(topic, []).append(index)
    return _State(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[_Topic(topic, indexes) for topic, indexes in topics.items()],
    )
