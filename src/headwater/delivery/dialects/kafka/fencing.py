"""How a producer that was replaced is told so.

This file alone decides which of two codes a version of a request understands: PRODUCER_FENCED came
late (KIP-588), clients before it know INVALID_PRODUCER_EPOCH.
"""

from headwater.base.errors import ErrorCode
from headwater.delivery.dialects.kafka.call import Call


def spell_fenced(call: Call, error: ErrorCode, *, first_version: int) -> ErrorCode:
    """Return the code as this call's version knows it."""
    if error is ErrorCode.PRODUCER_FENCED and call.version < first_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
