"""Consumer groups: who is a member, who reads what, and how far each group has read.

Takes: requests as plain values, the offsets topic to write to, a clock, timers and dice.
Gives: answers through callbacks, at once or when a rebalance or a sync of the disk is through.
May import: `headwater.log`, `headwater.base` and the rest of `headwater.delivery.broker`.
Start reading at: `headwater.delivery.broker.groups.coordinator`, then `rebalancing`.
"""

from headwater.delivery.broker.groups.coordinator import Groups

__all__ = ["Groups"]
