"""ListPartitionReassignments: v0.

Behaviour:
* No partition is ever on its way to another node, whichever are asked for. The tools that describe
  topics ask before they print what they know.
"""

from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages

KEY = 46
VERSIONS = (0, 0)


def handle(call: Call, request: messages.ListPartitionReassignmentsRequest) -> None:
    """Tell of none."""
    del request
    call.reply(messages.ListPartitionReassignmentsResponse(error_message=None))
