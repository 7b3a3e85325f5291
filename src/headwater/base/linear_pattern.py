r"""Regular expressions whose matching takes no longer than the text is long.

This file alone decides which expressions exist and what they match: the usual ones, as in RE2,
which Kafka uses for patterns that clients send. Python's own `re` backtracks, so that one request
with ``(a+)+$`` could stop a broker for good.

An expression becomes a graph of steps; a text is read once, with the set of all steps that it may
have come to. Sets that were met before are remembered.

    concatenation, ``|``, ``( )``, ``(?: )``, ``(?P<name> )``, ``* + ? {n} {n,} {n,m}`` with or
    without a ``?`` behind, ``.``, ``[ ]``, ``\d \D \w \W \s \S``, ``\n \t \r``, ``^ $``

Flags, look-around, back-references and POSIX classes are refused.
"""

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple

from headwater.base.errors import ErrorCode, KafkaError

# What each character of a text may cost at worst.
_STEPS_MAX: Final = 1_500
_DEPTH_MAX: Final = 100
_REPEAT_MAX: Final = 1_000
# Remembered sets; a pattern of tools needs some dozens.
_REMEMBERED_MAX: Final = 2_000

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_CLASSES: Final = frozenset("dDwWsS")
_BOUNDS: Final = re.compile(r"\{(\d{1,4})(,(\d{0,4}))?\}")
_GROUP_HEAD: Final = re.compile(r"\((\?:|\?P?<[A-Za-z_]\w*>)?(?!\?)")
# One class, with at least one item; a bracket right behind the beginning is an item.
_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|[^\\\]\[])*\]", re.DOTALL)


class _Kind(IntEnum):
    CHARACTER = 0
    FORK = 1
    AT_START = 2
    AT_END = 3
    MATCH = 4


class _Step(NamedTuple):
    kind: _Kind
    accepts: Callable[[str], object]
    following: tuple[int, ...]


def _anything(_: str) -> bool:
    return True


class LinearPattern:
    """A compiled expression."""

    def __init__(self, text: str) -> None:
        """Compile it.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION, with the place and the reason.
        """
        self._steps: list[_Step] = []
        begin = _Compiler(text, self._steps).compile()
        self._begin = self._reach({begin}, at_start=True)
        self._remembered: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        """Whether the whole text is as the expression says."""
        reached = self._begin
        for character in text:
            reached = self._read(reached, character)
            if not reached:
                return False
        return self._ends(reached, at_start=not text)

    def _read(self, reached: frozenset[int], character: str) -> frozenset[int]:
        known = self._remembered.get((reached, character))
        if known is not None:
            return known
        following: set[int] = set()
        for index in reached:
            step = self._steps[index]
            if step.kind is _Kind.CHARACTER and step.accepts(character):
                following.update(step.following)
        found = self._reach(following, at_start=False)
        if len(self._remembered) >= _REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[reached, character] = found
        return found

    def _ends(self, reached: frozenset[int], *, at_start: bool) -> bool:
        ends = self._reach(set(reached), at_start=at_start, at_end=True)
        return any(self._steps[index].kind is _Kind.MATCH for index in ends)

    def _reach(self, indexes: set[int], *, at_start: bool, at_end: bool = False) -> frozenset[int]:
        """Return all steps that are reached without reading another character."""
        reached: set[int] = set()
        waiting = list(indexes)
        while waiting:
            index = waiting.pop()
            if index in reached:
                continue
            reached.add(index)
            step = self._steps[index]
            passes = (
                step.kind is _Kind.FORK
                or (step.kind is _Kind.AT_START and at_start)
                or (step.kind is _Kind.AT_END and at_end)
            )
            if passes:
                waiting.extend(step.following)
        return frozenset(reached)


class _Compiler:
    """Reads an expression from its end to its beginning of steps: each part is told what follows.

    The grammar is read first into nested parts, so that a repeated part can be made several times.
    """

    def __init__(self, text: str, steps: list[_Step]) -> None:
        self._text = text
        self._pos = 0
        self._depth = 0
        self._steps = steps

    def compile(self) -> int:
        part = self._alternatives()
        if self._pos < len(self._text):
            raise self._error("unmatched )")
        return part(self._add(_Kind.MATCH, ()))

    # Steps

    def _add(
        self, kind: _Kind, following: tuple[int, ...], accepts: Callable[[str], object] = _anything
    ) -> int:
        if len(self._steps) >= _STEPS_MAX:
            raise self._error("it is too large")
        self._steps.append(_Step(kind, accepts, following))
        return len(self._steps) - 1

    def _star(self, part: "_Part", then: int) -> int:
        fork = self._add(_Kind.FORK, ())
        again = part(fork)
        self._steps[fork] = _Step(_Kind.FORK, _anything, (again, then))
        return fork

    def _repeat(self, part: "_Part", low: int, high: int | None) -> "_Part":
        def build(then: int) -> int:
            if high is None:
                then = self._star(part, then)
            else:
                end = then
                for _ in range(high - low):
                    then = self._add(_Kind.FORK, (part(then), end))
            for _ in range(low):
                then = part(then)
            return then

        return build

    # Grammar

    def _alternatives(self) -> "_Part":
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._error("its parentheses are nested too deep")
        parts = [self._sequence()]
        while self._peek() == "|":
            self._pos += 1
            parts.append(self._sequence())
        self._depth -= 1
        if len(parts) == 1:
            return parts[0]
        return lambda then: self._add(_Kind.FORK, tuple(part(then) for part in parts))

    def _sequence(self) -> "_Part":
        parts: list[_Part] = []
        while self._peek() not in {"", "|", ")"}:
            parts.append(self._quantified())

        def build(then: int) -> int:
            for part in reversed(parts):
                then = part(then)
            return then

        return build

    def _quantified(self) -> "_Part":
        part = self._atom()
        bounds = self._bounds()
        if bounds is None:
            return part
        if self._peek() == "?":
            # Which way is tried first makes no difference to whether the whole matches.
            self._pos += 1
        if self._bounds() is not None:
            raise self._error("nothing to repeat")
        return self._repeat(part, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        found = simple.get(self._peek())
        if found is not None:
            self._pos += 1
            return found
        match = _BOUNDS.match(self._text, self._pos)
        if match is None:
            return None
        low = int(match[1])
        high = low if match[2] is None else int(match[3]) if match[3] else None
        if max(low, high or 0) > _REPEAT_MAX or (high is not None and high < low):
            raise self._error("bad repetition")
        self._pos = match.end()
        return low, high

    def _atom(self) -> "_Part":
        character = self._peek()
        if character == "(":
            return self._group()
        if character == "[":
            return self._class()
        if character in {"*", "+", "?"}:
            raise self._error("nothing to repeat")
        self._pos += 1
        if character == "\\":
            return self._escape()
        if character == ".":
            return self._character(lambda read: read != "\n")
        if character in {"^", "$"}:
            kind = _Kind.AT_START if character == "^" else _Kind.AT_END
            return lambda then: self._add(kind, (then,))
        return self._character(character.__eq__)

    def _group(self) -> "_Part":
        head = _GROUP_HEAD.match(self._text, self._pos)
        if head is None:
            raise self._error("such groups are not understood")
        self._pos = head.end()
        part = self._alternatives()
        if self._peek() != ")":
            raise self._error("missing )")
        self._pos += 1
        return part

    def _class(self) -> "_Part":
        match = _CLASS.match(self._text, self._pos)
        if match is None:
            raise self._error("bad class")
        try:
            compiled = re.compile(match[0])
        except re.error as error:
            raise self._error(f"bad class: {error.msg}") from error
        self._pos = match.end()
        return self._character(compiled.fullmatch)

    def _escape(self) -> "_Part":
        character = self._peek()
        self._pos += 1
        if character in _CLASSES:
            return self._character(re.compile(f"\\{character}", re.ASCII).fullmatch)
        if character in _ESCAPES:
            return self._character(_ESCAPES[character].__eq__)
        if not character or character.isalnum():
            raise self._error("such escapes are not understood")
        return self._character(character.__eq__)

    def _character(self, accepts: Callable[[str], object]) -> "_Part":
        return lambda then: self._add(_Kind.CHARACTER, (then,), accepts)

    def _peek(self) -> str:
        return self._text[self._pos : self._pos + 1]

    def _error(self, reason: str) -> KafkaError:
        return KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"`{self._text}` is not a valid regular expression: {reason} at {self._pos}.",
        )


_Part = Callable[[int], int]
