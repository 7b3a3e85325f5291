"""A broker that is killed under load: ``make crash-broker ROUNDS=200 SEED=1``."""

import sys

from tests.crash.broker.life import Life
from tests.crash.broker.program import main

if __name__ == "__main__":
    sys.exit(main("tests.crash.broker", Life, __doc__))
