"""The command line of the campaign: ``make crash-log ROUNDS=20 SEED=1``.

A round is one seed: every fault at every operation of the workload. The last line of standard
output is one JSON object. It ends with 1 when a promise was broken, and shows how to see it again.
"""

import argparse
import json
import logging
import sys

from tests.crash.log.campaign import FAULTS, count_operations, run
from tests.crash.log.ledger import Broken


def main() -> int:
    """Run the rounds that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.log", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="how many seeds")
    parser.add_argument("--seed", type=int, default=0, help="the first of them")
    parser.add_argument("--fault", choices=FAULTS, help="only this one")
    parser.add_argument("--operation", type=int, help="only this one")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    operations = count_operations(options.seed)
    chosen = range(1, operations + 2)
    if options.operation:
        chosen = range(options.operation, options.operation + 1)
    broken = 0
    for seed in range(options.seed, options.seed + options.rounds):
        for fault in (options.fault,) if options.fault else FAULTS:
            try:
                run(fault, chosen, seed)
            except Broken as error:
                broken += 1
                print(f"seed {seed}: {error}", file=sys.stderr)
    told = {"rounds": options.rounds, "operations": operations, "broken": broken}
    print(json.dumps(told))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
