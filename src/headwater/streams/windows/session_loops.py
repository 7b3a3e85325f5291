"""The compiled loop that finds sessions.

This file alone decides which stretches of time belong together: those of one key between which
there is less than a distance. It knows no Arrow.
"""

from headwater.streams.compiled import compiled
from headwater.streams.kernel.arrays import Int64s


@compiled
def number_sessions(
    codes: Int64s, firsts: Int64s, lasts: Int64s, apart_us: int, sessions: Int64s
) -> int:
    """Number sessions, of stretches sorted by key and first time, and return how many there are.

    Args:
        codes: The key of each stretch.
        firsts: When it begins.
        lasts: When the last event in it is.
        apart_us: Stretches this far apart, or farther, are apart.
        sessions: The session of each stretch; written.
    """
    found = 0
    reached = 0
    for row in range(len(codes)):
        is_new = row == 0 or codes[row] != codes[row - 1] or firsts[row] - reached >= apart_us
        if is_new:
            found += 1
            reached = lasts[row]
        elif lasts[row] > reached:
            reached = lasts[row]
        sessions[row] = found - 1
    return found
