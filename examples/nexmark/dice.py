"""Random numbers and strings for columns, by event number.

This file alone decides how names of columns become keys of the dice, and how bits become numbers,
prices and Arrow strings. It knows no event.
"""

from decimal import Decimal, localcontext
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from examples.nexmark.loops import Bits, Bytes, Int64s, draw, mix, write_text

_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyz"
# One draw of thirteen is a blank, as near as 256 allows.
_BLANKS: Final = 20
_NO_BLANK: Final = 0
_SHORTEST_WORD: Final = 3

_PRICE_DECADES: Final = 6
_PRICE_UNIT: Final = 100
_DIGIT_BITS: Final = 10
_DIGITS: Final = 3


class Dice:
    """All that is random in one stream, by name of what is asked for."""

    def __init__(self, seed: int) -> None:
        self._seed = np.uint64(mix(np.uint64(seed % 2**64)))

    def bits(self, name: str, numbers: Int64s) -> Bits:
        """Give 64 bits for each number; another name gives others."""
        with np.errstate(over="ignore"):
            key = self._seed
            for byte in name.encode():
                key = np.uint64(mix(key + np.uint64(byte + 1)))
        return draw(key, numbers)

    def below(self, name: str, numbers: Int64s, bound: Int64s | int) -> Int64s:
        """Give a number from 0 up to, without, the bound (at most 2**32), for each number."""
        high = self.bits(name, numbers) >> np.uint64(32)
        drawn: Int64s = (high * np.asarray(bound, np.uint64) >> np.uint64(32)).astype(np.int64)
        return drawn

    def price(self, name: str, numbers: Int64s) -> Int64s:
        """Give prices from 100 to 100,000,000, as many in each power of ten."""
        bits = self.bits(name, numbers)
        mask = np.uint64(2**_DIGIT_BITS - 1)
        price = np.full(len(numbers), float(_PRICE_UNIT))
        for digit, powers in enumerate(_powers()):
            price *= powers[((bits >> np.uint64(_DIGIT_BITS * digit)) & mask).astype(np.int64)]
        return price.round().astype(np.int64)

    def words(self, name: str, numbers: Int64s, longest: int, blank: str = " ") -> pa.StringArray:
        """Give strings of letters and blanks, of 3 up to, without, `longest` characters.

        Blanks at their ends are cut off.
        """
        lengths = _SHORTEST_WORD + self.below(f"{name} length", numbers, longest - _SHORTEST_WORD)
        return _strings(self.bits(name, numbers), lengths, _with_blanks(blank), ord(blank))

    def letters(self, name: str, numbers: Int64s, lengths: Int64s) -> pa.StringArray:
        """Give strings of letters of these lengths."""
        return _strings(self.bits(name, numbers), lengths, _letters_alone(), _NO_BLANK)


@cache
def _powers() -> tuple[npt.NDArray[np.float64], ...]:
    """Factors whose products are the powers of ten from 0 to 6, in 2**30 steps.

    Products of doubles are the same on every machine; their powers are not.
    """
    with localcontext() as context:
        context.prec = 30
        return tuple(
            np.array(
                [
                    float(Decimal(10) ** (Decimal(_PRICE_DECADES * step) / 2 ** (_DIGIT_BITS * n)))
                    for step in range(2**_DIGIT_BITS)
                ]
            )
            for n in range(1, _DIGITS + 1)
        )


@cache
def _letters_alone() -> Bytes:
    return np.array([_LETTERS[byte * len(_LETTERS) // 256] for byte in range(256)], np.uint8)


@cache
def _with_blanks(blank: str) -> Bytes:
    letters = 256 - _BLANKS
    return np.array(
        [ord(blank)] * _BLANKS + [_LETTERS[n * len(_LETTERS) // letters] for n in range(letters)],
        np.uint8,
    )


def _strings(seeds: Bits, lengths: Int64s, alphabet: Bytes, blank: int) -> pa.StringArray:
    room = int(lengths.sum())
    if room >= 2**31:
        message = f"{len(lengths)} strings at once have {room} characters: ask for fewer events"
        raise ValueError(message)
    text = np.empty(room, np.uint8)
    ends = np.empty(len(lengths) + 1, np.int32)
    write_text(seeds, lengths, alphabet, blank, text, ends)
    return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(ends), pa.py_buffer(text))
