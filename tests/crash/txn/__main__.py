"""Transactions under kills of brokers and clients: ``make crash-txn ROUNDS=200 SEED=1``."""

import sys

from tests.crash.broker.program import main
from tests.crash.txn.life import Life

if __name__ == "__main__":
    sys.exit(main("tests.crash.txn", Life, __doc__))
