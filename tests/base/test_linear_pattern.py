"""Patterns against Python's own, which says what they mean, and against time, which it forgets."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.linear_pattern import LinearPattern

_ATOMS = st.sampled_from(
    ["a", "b", "ab", ".", "[ab]", "[^a]", "[a-c]", r"\d", r"\W", r"\.", "", "^", "$", "c", "[]a]"]
)
_BOUNDS = st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,}", "{0,2}"])
_PATTERNS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("({}|{})".format, inner, inner),
        st.builds("(?:{}){}".format, inner, _BOUNDS),
        st.builds("(?P<n>{})".format, _ATOMS),
    ),
    max_leaves=6,
)


@given(_PATTERNS, st.text("abc1.]", max_size=6))
def test_it_matches_what_python_matches(pattern: str, text: str) -> None:
    try:
        expected = re.compile(pattern, re.ASCII).fullmatch(text) is not None
    except re.error:
        return

    # At the very end Python's $ and ours agree because texts here have no line ends.
    assert LinearPattern(pattern).matches(text) is expected


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)*b", "(a*)*b", "(.*)(.*)(.*)(.*)(.*)x", "(a{0,20}){0,20}b"]
)
def test_no_pattern_takes_longer_than_the_text_is_long(pattern: str) -> None:
    assert not LinearPattern(pattern).matches("a" * 5_000 + "!")


@pytest.mark.parametrize(
    "pattern",
    [
        *["(", ")", "a)", "[", "[]", "*", "a**", "a{2}{3}", "a{3,2}", "a{1001}", r"(a)\1", "(?=a)"],
        *["(?i)a", "(?<=a)b", r"\pL", "(" * 200 + ")" * 200, "((a{99}){99}){99}", "[b-a]", "\\"],
    ],
)
def test_what_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as caught:
        LinearPattern(pattern)

    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_brace_that_bounds_nothing_is_a_brace() -> None:
    assert LinearPattern("a{x}").matches("a{x}")
    assert LinearPattern("{").matches("{")


def test_memory_of_sets_is_bounded() -> None:
    pattern = LinearPattern("(.?){200}")

    assert pattern.matches("".join(map(chr, range(100, 300))))
    assert not pattern.matches("".join(map(chr, range(100, 5_000))))
