"""ListTransactions: v0-2.

Behaviour:
* Lists all transactional ids, or those in given states, of given producers, with a transaction
  that began longer ago than a duration, or with a name like a pattern. Filters add up.
* States that do not exist are told back; an expression that cannot be read is
  INVALID_REGULAR_EXPRESSION.

Version notes:
* v1: by duration (KIP-994). v2: by pattern of the id (KIP-1152).
"""

from collections.abc import Callable

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.linear_pattern import LinearPattern
from headwater.delivery.broker.transactions.states import BY_LABEL
from headwater.delivery.broker.transactions.transaction import Transaction
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 66
VERSIONS = (0, 2)

_State = messages.ListTransactionsResponse.TransactionState


def handle(call: Call, request: messages.ListTransactionsRequest) -> None:
    """List transactional ids."""
    try:
        is_wanted = _filter(request, call.broker.clock.now_ms())
    except KafkaError as error:
        call.reply(messages.ListTransactionsResponse(error_code=error.code))
        return
    call.reply(
        messages.ListTransactionsResponse(
            error_code=ErrorCode.NONE,
            unknown_state_filters=[
                name for name in dict.fromkeys(request.state_filters) if name not in BY_LABEL
            ],
            transaction_states=[
                _State(each.transactional_id, each.producer_id, each.state.label)
                for each in call.broker.transactions
                if is_wanted(each)
            ],
        )
    )


def _filter(
    request: messages.ListTransactionsRequest, now_ms: int
) -> Callable[[Transaction], bool]:
    states = {BY_LABEL[name] for name in request.state_filters if name in BY_LABEL}
    producer_ids = set(request.producer_id_filters)
    duration_ms = request.duration_filter
    text = request.transactional_id_pattern
    pattern = LinearPattern(text) if text else None

    def is_wanted(transaction: Transaction) -> bool:
        return (
            (not producer_ids or transaction.producer_id in producer_ids)
            and (not request.state_filters or transaction.state in states)
            and (duration_ms < 0 or now_ms - transaction.started_ms > duration_ms)
            and (pattern is None or pattern.matches(transaction.transactional_id))
        )

    return is_wanted
