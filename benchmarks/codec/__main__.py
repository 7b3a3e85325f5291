"""Measure the codec: `make bench-codec`.

This file alone decides how it is measured: both sides in turn, several rounds, the median of each.
Its last line is one JSON object; ratio is how many times faster ours is.
"""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.codec.cases import all_cases

ROUNDS = 7
# Long enough that the clock's and the loop's own cost vanish, short enough for a coffee.
ROUND_S = 0.05


def microseconds(action: Callable[[], Any], repeats: int) -> float:
    """Return the mean processor time of one call, which other processes hardly change."""
    start = time.process_time()
    for _ in range(repeats):
        action()
    return (time.process_time() - start) / repeats * 1e6


def main() -> None:
    """Print the table and the rows."""
    rows = []
    print(f"{'us per message':50} {'headwater':>10} {'kio':>10} {'ratio':>7}")
    for case in all_cases():
        repeats = {
            side: max(1, int(ROUND_S * 1e6 / microseconds(side, 20)))
            for side in (case.ours, case.theirs)
        }
        taken: dict[Callable[[], Any], list[float]] = {case.ours: [], case.theirs: []}
        for _ in range(ROUNDS):
            for side, times in taken.items():
                times.append(microseconds(side, repeats[side]))
        ours, theirs = (statistics.median(times) for times in taken.values())
        ratio = theirs / ours
        print(f"{case.name:50} {ours:10.2f} {theirs:10.2f} {ratio:7.2f}")
        rows.append(
            {
                "name": case.name,
                "ours": round(ours, 3),
                "theirs": round(theirs, 3),
                "unit": "us",
                "ratio": round(ratio, 3),
            }
        )
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
