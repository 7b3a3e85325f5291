"""Spark's writes under kills of driver, worker, broker: ``make crash-sink ROUNDS=200 SEED=1``."""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests import peers
from tests.crash.sink.campaign import Campaign
from tests.crash.sink.work import Work


def run(name: str, what: str | None, work: Callable[[Path, int], Work | None]) -> int:
    """Run a campaign; print a line for each round, and one JSON object as the last.

    Args:
        name: The campaign's.
        what: What it is about, for people.
        work: Makes what the query does, for a directory and a seed.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tests.crash.{name}", description=what)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="decides everything but timing")
    parser.add_argument("--first", type=int, default=1, help="the round to begin with")
    parser.add_argument(
        "--master", default="", help="Spark's, as local-cluster[2,1,512]: executors die there, too"
    )
    parser.add_argument("--directory", type=Path, default=None, help="where to work")
    given = parser.parse_args()
    seed = random.SystemRandom().getrandbits(31) if given.seed is None else given.seed
    directory = given.directory or Path(tempfile.mkdtemp(prefix="headwater-crash-"))
    print(f"seed {seed}, working in {directory}", flush=True)
    directory /= "work"
    campaign = Campaign(
        directory,
        seed,
        master=given.master,
        work=work(directory, seed),
        progress=lambda line: print(line, flush=True),
    )
    peers.have_spark_start_quickly()
    begun_s = time.monotonic()
    kept = True
    try:
        campaign.run(given.rounds, given.first)
        kept = False
    except AssertionError as error:
        print(f"{error}\n\nkept: {directory}", flush=True)
    finally:
        if not kept:
            shutil.rmtree(directory.parent)
        seconds = round(time.monotonic() - begun_s, 1)
        found = campaign.tally.as_json()
        found |= {"kills": campaign.tally.counts["fired"], "broker kills": campaign.tally.kills}
        print(json.dumps({**found, "seed": seed, "seconds": seconds}))
    return 1 if kept else 0


if __name__ == "__main__":
    sys.exit(run("sink", __doc__, lambda *_: None))
