"""Sums that do not depend on the order of what is added, nor on how it was cut into pieces.

This file alone decides how a sum is kept while it grows. It knows neither Arrow nor what is summed.

A whole number is kept in words of 32 bits, the last of them with the sign and all that overflows
above: exact, and one sum has one form. Words are int64, so that 2**31 numbers can be added between
two carries.

A double is a whole number of at most 53 bits, shifted. The line of all shifts is cut into bins of
30 bits, so a double falls into three of them, and a sum is what has fallen into each bin, with
nothing carried over. Of all bins only the uppermost four in which something lies are kept: those
below hold less than 2**-90 of the largest number for each number added. What a bin holds depends
neither on the order nor on the pieces, because adding whole numbers does not, and what is let go is
the same either way: a bin that is too low in the end was too low for everyone. So sums that are
merged in any order have equal bytes. Carried over is only when the double is asked for, and then
rounded once. There is room for 2**33 numbers.

Infinities and NaN are remembered as marks. What would overflow on the way, but not in the end, does
not overflow.

Squares go the same way: that of a double is a whole number of 106 bits, which falls in as three.
"""

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from headwater.streams.compiled import compiled
from headwater.streams.kernel.arrays import Bytes, Int64s

Doubles = npt.NDArray[np.float64]

BINS: Final = 4
DOUBLE_SUM_WORDS: Final = BINS + 1
"""The bins from the uppermost down, and then which bin that is, with the marks above."""

LOWEST_EXPONENT: Final = -1074
"""Of the last bit of the smallest double."""

LOWEST_SQUARE_EXPONENT: Final = 2 * LOWEST_EXPONENT

BIN_BITS: Final = 30
_BIN_MASK: Final = (1 << BIN_BITS) - 1
_MARK_SHIFT: Final = 16
_TOP_MASK: Final = (1 << _MARK_SHIFT) - 1
NAN: Final = 1 << _MARK_SHIFT
INFINITY: Final = 2 << _MARK_SHIFT
MINUS_INFINITY: Final = 4 << _MARK_SHIFT

_WORD_MASK: Final = (1 << 32) - 1
_FRACTION_MASK: Final = (1 << 52) - 1
_EXPONENT_MAX: Final = 2047
_HALF_BITS: Final = 27


@compiled
def add_doubles(
    bits: Int64s, valid: Bytes, codes: Int64s, sums: Int64s, seen: Bytes, squared: bool
) -> None:
    """Add doubles, given as their bits, or their squares, to the sums of their groups.

    Args:
        bits: One double a row.
        valid: 0 for rows to leave out; no length for none.
        codes: The group of each row.
        sums: `DOUBLE_SUM_WORDS` for each group; added to.
        seen: For each group whether there was a number; set.
        squared: Whether to add the square.
    """
    for row in range(len(bits)):
        if len(valid) > 0 and valid[row] == 0:
            continue
        group = codes[row]
        seen[group] = 1
        number = bits[row]
        exponent = (number >> 52) & _EXPONENT_MAX
        fraction = number & _FRACTION_MASK
        if exponent == _EXPONENT_MAX:
            if fraction != 0:
                sums[group, BINS] |= NAN
            elif number > 0 or squared:
                sums[group, BINS] |= INFINITY
            else:
                sums[group, BINS] |= MINUS_INFINITY
            continue
        if exponent > 0:
            fraction |= 1 << 52
            exponent -= 1
        if fraction == 0:
            continue
        if squared:
            upper, lower = fraction >> _HALF_BITS, fraction & ((1 << _HALF_BITS) - 1)
            # Never negative, whatever the sign of the number.
            _drop_in(sums, group, upper * upper, 2 * exponent + 2 * _HALF_BITS, 1)
            _drop_in(sums, group, upper * lower, 2 * exponent + _HALF_BITS + 1, 1)
            _drop_in(sums, group, lower * lower, 2 * exponent, 1)
        else:
            _drop_in(sums, group, fraction, exponent, -1 if number < 0 else 1)


@compiled
def _drop_in(sums: Int64s, group: int, whole: int, shift: int, sign: int) -> None:
    """Add a whole number below 2**60, shifted, to the bins of a group."""
    if whole == 0:
        return
    lowest = shift // BIN_BITS
    rest = shift - lowest * BIN_BITS
    low = (whole & ((1 << (BIN_BITS - rest)) - 1)) << rest
    upper = whole >> (BIN_BITS - rest)
    middle = upper & _BIN_MASK
    high = upper >> BIN_BITS
    top = lowest + (2 if high != 0 else 1 if middle != 0 else 0)
    _raise_to(sums, group, top)
    place = (sums[group, BINS] & _TOP_MASK) - lowest
    if place < BINS:
        sums[group, place] += sign * low
    if middle != 0 and place - 1 < BINS:
        sums[group, place - 1] += sign * middle
    if high != 0 and place - 2 < BINS:
        sums[group, place - 2] += sign * high


@compiled
def _raise_to(sums: Int64s, group: int, top: int) -> None:
    """Let go of the lowest bins, so that `top` has a place."""
    by = top - (sums[group, BINS] & _TOP_MASK)
    if by <= 0:
        return
    sums[group, BINS] += by
    for place in range(BINS - 1, -1, -1):
        sums[group, place] = sums[group, place - by] if place >= by else 0


@compiled
def merge_doubles(others: Int64s, valid: Bytes, codes: Int64s, sums: Int64s, seen: Bytes) -> None:
    """Add sums of doubles to those of their groups."""
    for row in range(len(others)):
        if len(valid) > 0 and valid[row] == 0:
            continue
        group = codes[row]
        seen[group] = 1
        top = others[row, BINS] & _TOP_MASK
        _raise_to(sums, group, top)
        sums[group, BINS] |= others[row, BINS] & ~np.int64(_TOP_MASK)
        down = (sums[group, BINS] & _TOP_MASK) - top
        for place in range(BINS - down):
            sums[group, place + down] += others[row, place]


@compiled
def round_doubles(sums: Int64s, result: Doubles) -> None:
    """Write the double next to each sum; between two of them, the even one."""
    parts = np.empty(BINS + 1, np.float64)
    for row in range(len(sums)):
        marks = sums[row, BINS] & ~np.int64(_TOP_MASK)
        if marks != 0:
            if marks == INFINITY:
                result[row] = np.inf
            elif marks == MINUS_INFINITY:
                result[row] = -np.inf
            else:
                result[row] = np.nan
            continue
        carried = np.int64(0)
        for place in range(BINS - 1, -1, -1):
            held = sums[row, place] + carried
            carried = (held + (1 << (BIN_BITS - 1))) >> BIN_BITS
            part = np.float64(held - (carried << BIN_BITS))
            parts[place + 1] = math.ldexp(part, BIN_BITS * (BINS - 1 - place))
        parts[0] = math.ldexp(np.float64(carried), BIN_BITS * BINS)
        lowest = (sums[row, BINS] & _TOP_MASK) - (BINS - 1)
        result[row] = math.ldexp(_rounded(parts), BIN_BITS * lowest + LOWEST_EXPONENT)


@compiled
def _rounded(parts: Doubles) -> float:
    """Return the sum of parts of which each is larger than all that follow, rounded once."""
    total = parts[0]
    error = 0.0
    at = 1
    while at < len(parts) and error == 0.0:
        before = total
        total = before + parts[at]
        error = parts[at] - (total - before)
        at += 1
    # Where the sum lies between two doubles, the parts that are left say on which side.
    rest = 0.0
    while at < len(parts) and rest == 0.0:
        rest = parts[at]
        at += 1
    if (error < 0.0 and rest < 0.0) or (error > 0.0 and rest > 0.0):
        twice = 2.0 * error
        moved = total + twice
        if moved - total == twice:
            return float(moved)
    return float(total)


def exact_double_sum(words: Int64s) -> int:
    """Return a sum without marks as a whole number of the smallest units that there are."""
    top = int(words[BINS])
    held = 0
    for place in range(BINS):
        shift = BIN_BITS * (top - place)
        # Below the first bin there is nothing.
        held += int(words[place]) << shift if shift >= 0 else 0
    return held


@compiled
def add_integers(numbers: Int64s, valid: Bytes, codes: Int64s, sums: Int64s, seen: Bytes) -> None:
    """Add whole numbers to the sums of their groups, which have two words each."""
    for row in range(len(numbers)):
        if len(valid) > 0 and valid[row] == 0:
            continue
        group = codes[row]
        seen[group] = 1
        sums[group, 0] += numbers[row] & _WORD_MASK
        sums[group, 1] += numbers[row] >> 32
    _carry(sums)


@compiled
def add_decimals(halves: Int64s, valid: Bytes, codes: Int64s, sums: Int64s, seen: Bytes) -> None:
    """Add whole numbers of 128 bits, as lower and upper half, to sums of four words."""
    for row in range(len(halves)):
        if len(valid) > 0 and valid[row] == 0:
            continue
        group = codes[row]
        seen[group] = 1
        sums[group, 0] += halves[row, 0] & _WORD_MASK
        sums[group, 1] += (halves[row, 0] >> 32) & _WORD_MASK
        sums[group, 2] += halves[row, 1] & _WORD_MASK
        sums[group, 3] += halves[row, 1] >> 32
    _carry(sums)


@compiled
def merge_integers(others: Int64s, valid: Bytes, codes: Int64s, sums: Int64s, seen: Bytes) -> None:
    """Add sums of whole numbers to those of their groups, with as many words."""
    for row in range(len(others)):
        if len(valid) > 0 and valid[row] == 0:
            continue
        group = codes[row]
        seen[group] = 1
        for word in range(others.shape[1]):
            sums[group, word] += others[row, word]
    _carry(sums)


@compiled
def _carry(sums: Int64s) -> None:
    for group in range(len(sums)):
        for word in range(sums.shape[1] - 1):
            sums[group, word + 1] += sums[group, word] >> 32
            sums[group, word] &= _WORD_MASK


def exact_integer_sum(words: Int64s) -> int:
    """Return a sum of whole numbers, which may be larger than any type."""
    return sum(int(word) << (32 * place) for place, word in enumerate(words))
