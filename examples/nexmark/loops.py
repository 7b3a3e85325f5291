"""The compiled loops of the generator: dice that need no state, and text.

This file alone decides what is random, as a pure function of a key and of an event's number, so
that any part of the stream can be made alone and comes out the same. It knows no column.

The dice are the output function of SplitMix64 (Steele, Lea, Flood 2014) on a counter.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headwater.streams.compiled import compiled

Bits = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_STEP: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
_FIRST_FACTOR: Final = np.uint64(0xBF58_476D_1CE4_E5B9)
_SECOND_FACTOR: Final = np.uint64(0x94D0_49BB_1331_11EB)
_BYTES_PER_DRAW: Final = 8


@compiled
def mix(bits: Any) -> Any:  # noqa: ANN401 - an unsigned number of 64 bits, compiled or not
    """Spread a number over all 64 bits."""
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST_FACTOR
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND_FACTOR
    return bits ^ (bits >> np.uint64(31))


@compiled
def draw(key: Any, numbers: Int64s) -> Bits:  # noqa: ANN401 - as above
    """Give 64 random bits for each number."""
    drawn = np.empty(len(numbers), np.uint64)
    for row in range(len(numbers)):
        drawn[row] = mix(key + np.uint64(numbers[row]) * _STEP)
    return drawn


@compiled
def write_text(
    seeds: Bits, lengths: Int64s, alphabet: Bytes, blank: int, text: Bytes, ends: npt.NDArray[Any]
) -> None:
    """Write random text, one string after the other.

    Args:
        seeds: By string, what its characters are drawn from.
        lengths: By string, how many characters.
        alphabet: 256 characters, of which each draw takes one.
        blank: A character that no string begins or ends with; it is cut off there.
        text: Room for all characters; written.
        ends: Room for one more than there are strings: where each begins and the last ends;
            written.
    """
    at = 0
    ends[0] = 0
    for row in range(len(seeds)):
        begin = at
        bits = np.uint64(0)
        for index in range(lengths[row]):
            if index % _BYTES_PER_DRAW == 0:
                bits = mix(seeds[row] + np.uint64(index + 1) * _STEP)
            character = alphabet[bits & np.uint64(255)]
            bits >>= np.uint64(8)
            if at > begin or character != blank:
                text[at] = character
                at += 1
        while at > begin and text[at - 1] == blank:
            at -= 1
        ends[row + 1] = at
