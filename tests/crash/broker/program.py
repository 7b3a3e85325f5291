"""The command line of a campaign.

This file alone decides what is printed: a line for each round, and as the last line of standard
output one JSON object. It ends with 1 when a promise was broken.
"""

import argparse
import json
import random
import shutil
import tempfile
import time
from pathlib import Path

from tests.crash.broker.campaign import Campaign, NewLife


def main(name: str, new_life: NewLife, description: str) -> int:
    """Run a campaign."""
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=description)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="decides everything but timing")
    parser.add_argument("--first", type=int, default=1, help="the round to begin with")
    parser.add_argument(
        "--kill-at", default="", help="operations at which the first rounds die: N[,N...]"
    )
    parser.add_argument("--lie", default="", help="hide the syncs of paths that match this pattern")
    parser.add_argument("--directory", type=Path, default=None, help="where to work")
    given = parser.parse_args()
    seed = random.SystemRandom().getrandbits(31) if given.seed is None else given.seed
    directory = given.directory or Path(tempfile.mkdtemp(prefix="headwater-crash-"))
    campaign = Campaign(
        name,
        new_life,
        directory,
        seed,
        given.rounds,
        first=given.first,
        kill_at=[int(number) for number in given.kill_at.split(",") if number],
        lie=given.lie,
        progress=lambda line: print(line, flush=True),
    )
    print(f"seed {seed}, working in {directory}", flush=True)
    begun_s = time.monotonic()
    kept = True
    try:
        campaign.run()
        kept = False
    except AssertionError as error:
        print(f"{error}\n\nkept: {directory}\nrepeat: {campaign.repeat}", flush=True)
    finally:
        if not kept:
            shutil.rmtree(directory)
        seconds = round(time.monotonic() - begun_s, 1)
        print(json.dumps({**campaign.tally.as_json(), "seed": seed, "seconds": seconds}))
    return 1 if kept else 0
