"""Which runs of a table are merged when one is added.

This file alone decides it, from the sizes of the runs and nothing else: a step that is run again
merges the same ones.

Runs get smaller from the oldest to the newest. When a run has become smaller than what has been
added behind it, it and all behind it become one. So there are never more runs than it takes to
double the newest until it is as large as all of them, and a row is written again only when its run
has doubled: a number of times that is logarithmic in the size of the table.

Buckets fill at the same pace, and would all write their largest run again in the same batch. So
each has a factor of its own, between 1 and 2, for what has been added.
"""

from collections.abc import Sequence
from typing import Final

ROWS_MIN: Final = 1024
"""A smaller run counts as one of so many rows: it costs no more to write it again."""

_FACTORS: Final = 64
# Odd, so that 64 staggers next to each other give 64 factors, and near ones give far ones.
_STEP: Final = 39


def kept(sizes: Sequence[int], added: int, stagger: int) -> int:
    """Return how many of the oldest runs stay as they are; the others merge with what is added.

    Args:
        sizes: Rows of each run, from the oldest to the newest.
        added: Rows of the run that is added.
        stagger: A number that shifts when a run counts as smaller: of the bucket, say.
    """
    factor = _FACTORS + stagger * _STEP % _FACTORS
    behind = max(added, ROWS_MIN)
    result = len(sizes)
    for at in range(len(sizes) - 1, -1, -1):
        size = max(sizes[at], ROWS_MIN)
        if size * _FACTORS < behind * factor:
            result = at
        behind += size
    return result
