"""The power goes at operation N of a simulation, and clients go on with what is left.

This file alone decides at which operations, and what happens afterwards: the broker starts on what
a power cut leaves, in some cases the power goes again while it does, the clients repeat what was
not answered or come back as others, and when all is quiet the whole history is judged. A seed, a
number of steps and an operation give the same run, and a failure names the command that repeats it.

    python -m tests.crash.txn.failpoints --seed 1 --steps 300 --operation 117 --keep some
"""

import argparse
import random
import sys
from collections.abc import Container
from dataclasses import dataclass, field
from typing import get_args

from headwater.base.errors import ErrorCode
from headwater.testing.memory_disk import Keep, Operation, PowerCut
from tests.crash.txn.checker import Anomaly
from tests.crash.txn.simulation import Simulation

KEEPS: tuple[Keep, ...] = get_args(Keep)
STEPS_AFTERWARDS = 80
# More than any start of such a small log takes: a second cut falls into it, or into what follows.
_SECOND_CUT_MAX = 60


@dataclass
class Verdict:
    """What was found.

    Attributes:
        cuts: How often the power went.
        operations: How many there were without any cut.
        anomalies: What must not be, each with the command that shows it again.
    """

    cuts: int = 0
    operations: int = 0
    anomalies: list[Anomaly] = field(default_factory=list)

    @property
    def kinds(self) -> set[str]:
        """The kinds of all that was found."""
        return {anomaly.kind for anomaly in self.anomalies}


def judge(
    seed: int,
    steps: int,
    operations: Container[int],
    *,
    keeps: tuple[Keep, ...] = KEEPS,
    enough: int = 20,
) -> Verdict:
    """Run a simulation, and see what becomes of it if the power goes after some operations.

    Args:
        seed: Decides everything.
        steps: How long it is.
        operations: After which ones the power goes.
        keeps: What a cut leaves of what was not synced.
        enough: So many anomalies are enough to stop at.
    """
    verdict = Verdict()
    simulation = Simulation(seed)

    def look(operation: Operation) -> None:
        if operation.number not in operations or len(verdict.anomalies) >= enough:
            return
        for keep in keeps:
            verdict.cuts += 1
            fork = simulation.fork(seed * 1_000_003 + operation.number, keep)
            told = f"--seed {seed} --steps {steps} --operation {operation.number} --keep {keep}"
            for kind, description in _go_on(fork):
                what = f"{description}\n  {operation}\n  repeat: {told}"
                verdict.anomalies.append(Anomaly(kind, what))

    simulation.disk.after_operation = look
    simulation.start()
    simulation.run(steps)
    simulation.disk.after_operation = None
    verdict.operations = simulation.disk.operations
    for kind, description in simulation.finish():
        told = f"--seed {seed} --steps {steps}"
        verdict.anomalies.append(Anomaly(kind, f"{description}\n  repeat: {told}"))
    return verdict


def _go_on(fork: Simulation) -> list[Anomaly]:
    """Start on what a cut has left; a third of all starts does not get far."""
    while fork.dice.random() < 0.33:
        fork.disk.cut_power_at(fork.dice.randint(1, _SECOND_CUT_MAX))
        try:
            fork.start()
            fork.look()
            fork.run(STEPS_AFTERWARDS)
        except PowerCut:
            pass
        fork = fork.fork(fork.dice.getrandbits(32), fork.dice.choice(KEEPS))
    fork.start()
    fork.look()
    fork.run(STEPS_AFTERWARDS)
    return fork.finish()


def live(seed: int, lives: int, steps: int) -> Verdict:
    """Let one broker follow another on the same disk: power cuts, and stops in order."""
    verdict = Verdict()
    simulation = Simulation(seed)
    for _ in range(lives):
        dice = simulation.dice
        cut = dice.random() < 0.7
        if cut:
            simulation.disk.cut_power_at(simulation.disk.operations + dice.randint(1, steps))
        try:
            simulation.start()
            simulation.look()
            simulation.run(steps)
            simulation.disk.cut_power_at(0)
            following = None if cut else simulation.stop()
        except PowerCut:
            following = None
        verdict.cuts += following is None
        verdict.operations += simulation.disk.operations
        keep = dice.choice(KEEPS)
        simulation = following or simulation.fork(dice.getrandbits(32), keep)
    simulation.start()
    simulation.look()
    told = f"live({seed}, {lives}, {steps})"
    verdict.anomalies = [Anomaly(kind, f"{what}\n  {told}") for kind, what in simulation.finish()]
    return verdict


def fill_up(seed: int, steps: int) -> Verdict:
    """Let the disk be full for a while, then let there be room again."""
    simulation = Simulation(seed)
    simulation.patience |= {ErrorCode.KAFKA_STORAGE_ERROR}
    simulation.start()
    simulation.run(steps)
    room = simulation.dice.randint(0, 300)
    simulation.disk.capacity_bytes = simulation.disk.used_bytes() + room
    simulation.run(steps)
    simulation.disk.capacity_bytes = None
    simulation.run(steps)
    told = f"fill_up({seed}, {steps})"
    anomalies = [Anomaly(kind, f"{what}\n  {told}") for kind, what in simulation.finish()]
    return Verdict(0, simulation.disk.operations, anomalies)


def sample(seed: int, count: int, upto: int) -> set[int]:
    """Choose some operations."""
    return set(random.Random(seed).sample(range(1, upto + 1), min(count, upto)))


def main() -> int:
    """Show one run again, or many."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash.txn.failpoints", description=__doc__
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--operation", type=int, help="only at this one; all where none is given")
    parser.add_argument("--keep", choices=KEEPS)
    given = parser.parse_args()
    operations = range(1, 1 << 30) if given.operation is None else {given.operation}
    verdict = judge(
        given.seed, given.steps, operations, keeps=(given.keep,) if given.keep else KEEPS
    )
    for anomaly in verdict.anomalies:
        print(f"{anomaly.kind}: {anomaly.description}")
    print(f"{verdict.cuts} cuts, {verdict.operations} operations")
    return 1 if verdict.anomalies else 0


if __name__ == "__main__":
    sys.exit(main())
