"""What a client is told when a topic that holds the state of a coordinator cannot be written.

This file alone decides it, as Kafka does: errors of the log make no sense to a client that asked
its coordinator, so they become errors upon which it looks for the coordinator again and retries.
"""

from typing import Final

from headwater.base.errors import ErrorCode, KafkaError

_FOR_CLIENTS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def error_for_client(error: KafkaError) -> ErrorCode:
    """Translate an error of the log."""
    return _FOR_CLIENTS.get(error.code, error.code)
