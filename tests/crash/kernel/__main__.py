"""State under kills of driver, worker, broker: ``make crash-kernel ROUNDS=200 SEED=1``."""

import sys

from tests.crash.kernel.work import Windowing
from tests.crash.sink.__main__ import run

if __name__ == "__main__":
    sys.exit(run("kernel", __doc__, Windowing))
