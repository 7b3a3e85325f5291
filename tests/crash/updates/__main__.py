"""Counts in update mode under kills of driver, worker, broker: ``make crash-updates SEED=1``."""

import sys

from tests.crash.sink.__main__ import run
from tests.crash.sink.failing import PHASES
from tests.crash.sink.work import Counting

if __name__ == "__main__":
    sys.exit(run("updates", __doc__, lambda folder, _: Counting(folder, PHASES)))
