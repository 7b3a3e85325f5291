"""What can go wrong between Spark's rows and a committed transaction, by name.

This file alone decides which errors the sink raises beyond those of the client and the options.
"""

from headwater.base.errors import HeadwaterError
from headwater.delivery.client.errors import TransactionTimedOutError


class OlderDriverError(HeadwaterError):
    """Another driver has taken this query over; this one must not write any more."""


class CheckpointBehindError(HeadwaterError):
    """The checkpoint is older than what was written under its query id."""


class FeedbackError(HeadwaterError):
    """A query reads, by a pattern, the topic that it writes to."""


class MarkerError(HeadwaterError):
    """The topic that remembers what was written cannot be relied on."""


class OversizedRecordError(HeadwaterError):
    """A record is larger than its topic takes."""


class MessageTooLargeError(HeadwaterError):
    """What one task has to tell the driver would not fit into the driver's memory."""


class StagingError(HeadwaterError):
    """What a task has left for the driver is not there, or is not what it left."""


class BatchTooSlowError(HeadwaterError):
    """A batch could not be sent in the time that the broker gives a transaction."""


def too_slow(what: str, error: TransactionTimedOutError) -> BatchTooSlowError:
    """Say which batch was given up by the broker, and what would help."""
    return BatchTooSlowError(
        f"{what}: {error.message}",
        hint="it will not fit the next time either: read less per batch with maxOffsetsPerTrigger, "
        "or give it more time with kafka.transaction.timeout.ms, of which brokers allow "
        "transaction.max.timeout.ms (15 minutes by default)",
    )
