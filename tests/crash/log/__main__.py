"""The command line of the campaign: ``make crash-log ROUNDS=200 SEED=1``.

A round is one fault at each of 120 operations; 25 rounds are all faults at all operations, and
then the next seed follows. The last line of standard output is one JSON object. It ends with 1 when
a promise was broken, and shows how to see it again.
"""

import argparse
import itertools
import json
import logging
import sys

from tests.crash.log.campaign import FAULTS, count_operations, run
from tests.crash.log.ledger import Broken
from tests.crash.log.workload import OPERATIONS_MAX

STEP = 120


def main() -> int:
    """Run the rounds that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.log", description=__doc__)
    parser.add_argument("--rounds", type=int, default=len(FAULTS) * OPERATIONS_MAX // STEP)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--fault", choices=FAULTS, help="only this one")
    parser.add_argument("--operation", type=int, help="only at this one")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    faults = (options.fault,) if options.fault else FAULTS
    firsts = range(1, OPERATIONS_MAX + 1, STEP)
    step = STEP
    if options.operation:
        firsts, step = range(options.operation, options.operation + 1), 1
        options.rounds = len(faults)
    rounds = (
        (seed, fault, first)
        for seed in itertools.count(options.seed)
        for fault in faults
        for first in firsts
    )
    broken = 0
    for seed, fault, first in itertools.islice(rounds, options.rounds):
        try:
            run(fault, range(first, first + step), seed)
        except Broken as error:
            broken += 1
            print(f"seed {seed}: {error}", file=sys.stderr)
    operations = count_operations(options.seed)
    print(json.dumps({"rounds": options.rounds, "operations": operations, "broken": broken}))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
