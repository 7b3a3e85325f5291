"""The life of a group, as a table.

This file alone decides which states a group has and which may follow which.

    Empty --join--> PreparingRebalance --all rejoined or time is up--> CompletingRebalance
      ^                 ^    |                                            |
      |                 |    '-- nobody left --> Empty                     | leader's assignment
      |                 '------ join, leave, session ends ----- Stable <---' is durable
      '-- (every state) --> Dead: the group was deleted
"""

from enum import StrEnum
from typing import Final


class GroupState(StrEnum):
    """Kafka's states of a classic group, spelled as clients see them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


PREDECESSORS: Final = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
"""The states from which each state can be reached."""
