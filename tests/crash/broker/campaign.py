"""Many rounds from one seed.

This file alone decides how rounds follow each other, and how one is repeated. They go on with the
same directory until the dice ask for a fresh one: a life. How far clients get in a round is up to
the machine, so the operation at which a broker died is told too: ``kill_at`` repeats it.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from headwater.testing.memory_disk import Keep
from tests.crash.broker.machine import Book, Machine, Tally
from tests.crash.broker.plan import Plan, plan
from tests.crash.broker.process import reserved_port


class Life(Protocol):
    """A data directory with its clients, from a fresh start on."""

    machine: Machine

    @property
    def ledger(self) -> Book:
        """What was counted, and what was broken."""
        ...

    def round(self, planned: Plan, kill_at: int) -> None:
        """Live through one round."""
        ...

    def finish(self) -> None:
        """Start once more and look at everything."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


NewLife = Callable[[Path, int, int, Tally, str], Life]
"""Takes a directory, the seed, a port, what to count in, and the syncs to hide."""


@dataclass
class Campaign:
    """Many rounds from one seed.

    Attributes:
        name: The program that runs it.
        new_life: Begins one.
        directory: Where everything is kept; what failed stays there.
        seed: Decides the plans.
        first: The first round; it goes back to the beginning of that round's life.
        rounds: How many, from ``first`` on.
        kill_at: Operations at which the rounds die, one after the other; 0: as planned.
        lie: The syncs of paths that match are hidden from the trace.
        cut: What every cut leaves, instead of what the dice say.
        progress: Told after every round.
        tally: What has happened so far.
        repeat: The command that goes through the last life again, to its last round.
    """

    name: str
    new_life: NewLife
    directory: Path
    seed: int
    rounds: int
    first: int = 1
    kill_at: Sequence[int] = ()
    lie: str = ""
    cut: Keep | None = None
    progress: Callable[[str], None] = lambda _: None
    tally: Tally = field(default_factory=Tally)
    repeat: str = ""
    _begun_s: float = 0.0
    _last: int = 0
    _life_began: int = 0

    def run(self) -> None:
        """Run all rounds.

        Raises:
            BrokenPromisesError: With what was broken; ``repeat`` is how to see it again.
        """
        begin = self.first
        while begin > 1 and not plan(self.seed, begin).fresh:
            begin -= 1
        kill_at = iter(self.kill_at)
        self._begun_s = time.monotonic()
        with reserved_port() as port:
            life = self._new_life(begin, port)
            try:
                for number in range(begin, self.first + self.rounds):
                    planned = self._plan(number)
                    if planned.fresh and number > begin:
                        self._end_life(life)
                        life = self._new_life(number, port)
                    self._last = number
                    life.round(planned, next(kill_at, 0))
                    self._tell(planned, life)
                self._end_life(life)
            except BaseException:
                self._count(life)
                raise
            finally:
                life.close()
                self.repeat = self._command(life)

    def _tell(self, planned: Plan, life: Life) -> None:
        acked = self.tally.counts["acked"] + life.ledger.counts["acked"]
        killed_at = life.machine.killed_at[-1]
        elapsed_s = time.monotonic() - self._begun_s
        self.progress(
            f"round {planned.number:3}  {planned.end:5} at {killed_at:6}  "
            f"cut: {planned.cut:8} acked {acked:8}  {elapsed_s:6.1f} s"
        )

    def _plan(self, number: int) -> Plan:
        planned = plan(self.seed, number)
        return planned if self.cut is None else replace(planned, cut=self.cut)

    def _new_life(self, number: int, port: int) -> Life:
        self._life_began = number
        directory = self.directory / f"life-{number}"
        return self.new_life(directory, self.seed, port, self.tally, self.lie)

    def _end_life(self, life: Life) -> None:
        life.finish()
        self._count(life)
        life.close()
        shutil.rmtree(life.machine.directory)

    def _count(self, life: Life) -> None:
        self.tally.counts += life.ledger.counts
        self.tally.broken += Counter(kind for kind, _ in life.ledger.broken)

    def _command(self, life: Life) -> str:
        numbers = ",".join(map(str, life.machine.killed_at))
        return (
            f"python -m {self.name} --seed {self.seed} --first {self._life_began} "
            f"--rounds {self._last - self._life_began + 1} --kill-at {numbers or 0}"
        )
