"""What happens in a round, by dice.

This file alone decides when a broker dies and what the power cut then takes. Seed and number of a
round decide it, whatever happened in the rounds before.
"""

import random
from dataclasses import dataclass

from headwater.testing.memory_disk import Keep

_LOAD_S = (0.1, 1.2)

KINDS = {
    "append": 60,
    "open": 20,
    "rename": 8,
    "remove": 20,
    "remove_tree": 2,
    "truncate": 3,
    "make_directory": 2,
    "sync": 80,
    "synced": 80,
    "sync_directory": 15,
}
"""What a broker may die right before, and how many of each a round sees at least, more or less."""


@dataclass(frozen=True)
class Plan:
    """What happens in one round.

    Attributes:
        number: Of the round, from 1.
        fresh: Whether it begins with an empty directory.
        recovery_kills: The operations at which the start dies before it succeeds.
        load_s: How long clients work.
        end: "kill" at a moment, "at" an operation, at a "kind" of operation, "term", or "late": at
            an operation of a graceful end.
        kill_at: The operation, counted from the opening of the port or from SIGTERM.
        kill_kind: The kind.
        cut: What survives of what was not synced; "all": the power stays on.
        kernel: Whether the kernel's queue syncs the files.
    """

    number: int
    fresh: bool
    recovery_kills: tuple[int, ...]
    load_s: float
    end: str
    kill_at: int
    kill_kind: str
    cut: Keep | str
    kernel: bool


def plan(seed: int, number: int) -> Plan:
    """Throw the dice of one round."""
    dice = random.Random(f"{seed}/{number}")
    fresh = dice.random() < 0.12
    deaths = dice.choices((0, 1, 2), (80, 14, 6))[0]
    recovery_kills = tuple(dice.randint(1, 60) for _ in range(deaths))
    load_s = dice.uniform(*_LOAD_S)
    (end,) = dice.choices(("kill", "at", "kind", "term", "late"), (40, 15, 25, 12, 8))
    kind = dice.choice(list(KINDS))
    kill_at = dice.randint(1, {"at": 2_000, "kind": KINDS[kind], "late": 120}.get(end, 1))
    (cut,) = dice.choices(("nothing", "some", "all"), (30, 50, 20))
    kernel = dice.random() < 0.7
    return Plan(number, fresh, recovery_kills, load_s, end, kill_at, kind, cut, kernel)
