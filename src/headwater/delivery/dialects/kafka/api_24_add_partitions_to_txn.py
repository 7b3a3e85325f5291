"""AddPartitionsToTxn: v0-5.

Behaviour:
* The partitions are part of the producer's transaction when the answer comes; the first ones begin
  it. A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION, one of the broker's own topics
  TOPIC_AUTHORIZATION_FAILED; the others of the same transaction are then OPERATION_NOT_ATTEMPTED.
* While the last transaction is ending the request waits; Kafka answers CONCURRENT_TRANSACTIONS.

Version notes:
* v2: PRODUCER_FENCED, before it INVALID_PRODUCER_EPOCH.
* v4: several transactions at once, and ``verify_only``: whether partitions are part of one. Kafka's
  brokers ask each other so; clients use v0-3.
* v5: the client's transactions are those of KIP-890.
"""

from collections.abc import Callable, Sequence
from functools import partial

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.topics import PartitionKey
from headwater.delivery.broker.transactions.decisions import Producer
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.dialects.kafka.fencing import spell_fenced
from headwater.delivery.wire.kafka import messages
from headwater.log.topic import INTERNAL_TOPICS

KEY = 24
VERSIONS = (0, 5)

_FIRST_WITH_FENCED = 2
_FIRST_WITH_TRANSACTIONS = 4
_FIRST_OF_KIP_890 = 5

_Transaction = messages.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_Result = messages.AddPartitionsToTxnResponse.AddPartitionsToTxnResult
_TopicResult = messages.AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_PartitionResult = messages.AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult

_Errors = dict[PartitionKey, ErrorCode]


class _Pending:
    """An answer that waits for the last of its transactions."""

    def __init__(self, call: Call, transactions: Sequence[_Transaction]) -> None:
        self._call = call
        self._results: dict[int, _Result] = {}
        self._count = len(transactions)

    def answered(self, index: int, transaction: _Transaction, errors: _Errors) -> None:
        self._results[index] = _Result(
            transaction.transactional_id,
            [
                _TopicResult(
                    topic.name,
                    [
                        _PartitionResult(partition, errors[topic.name, partition])
                        for partition in topic.partitions
                    ],
                )
                for topic in transaction.topics
            ],
        )
        if len(self._results) == self._count:
            self.reply()

    def reply(self) -> None:
        results = [self._results[index] for index in range(self._count)]
        if self._call.version >= _FIRST_WITH_TRANSACTIONS:
            response = messages.AddPartitionsToTxnResponse(results_by_transaction=results)
        else:
            response = messages.AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=results[0].topic_results
            )
        self._call.reply(response)


def handle(call: Call, request: messages.AddPartitionsToTxnRequest) -> None:
    """Let partitions join transactions."""
    transactions = request.transactions
    if call.version < _FIRST_WITH_TRANSACTIONS:
        transactions = [
            _Transaction(
                request.v3_and_below_transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
                verify_only=False,
                topics=request.v3_and_below_topics,
            )
        ]
    pending = _Pending(call, transactions)
    if not transactions:
        pending.reply()
    for index, transaction in enumerate(transactions):
        _join(call, transaction, partial(pending.answered, index, transaction))


def _join(call: Call, transaction: _Transaction, answer: Callable[[_Errors], None]) -> None:
    keys = frozenset(
        (topic.name, partition) for topic in transaction.topics for partition in topic.partitions
    )

    def answer_all(error: ErrorCode) -> None:
        error = spell_fenced(call, error, first_version=_FIRST_WITH_FENCED)
        answer(dict.fromkeys(keys, error))

    refused = {key: error for key in keys if (error := _check(call, key))}
    if refused:
        answer({key: refused.get(key, ErrorCode.OPERATION_NOT_ATTEMPTED) for key in keys})
    elif not transaction.transactional_id:
        answer_all(ErrorCode.INVALID_REQUEST)
    elif transaction.verify_only:
        producer = Producer(transaction.producer_id, transaction.producer_epoch)
        answer({key: _verify(call, transaction.transactional_id, producer, key) for key in keys})
    else:
        call.broker.transactions.enlist(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            keys,
            answer_all,
            client_version=2 if call.version >= _FIRST_OF_KIP_890 else 0,
        )


def _check(call: Call, key: PartitionKey) -> ErrorCode:
    topic, _ = key
    if topic in INTERNAL_TOPICS and call.version < _FIRST_WITH_TRANSACTIONS:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if call.broker.topics.partition(*key) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _verify(call: Call, transactional_id: str, producer: Producer, key: PartitionKey) -> ErrorCode:
    try:
        call.broker.transactions.check_enlisted(transactional_id, *producer, *key)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
