"""What is refused of windows and late events as soon as it is said, without a session."""

from collections.abc import Callable
from typing import Any

import pytest

from headwater.base.errors import HeadwaterError
from headwater.streams.time.errors import DurationError
from headwater.streams.windows.asked import asked_windows
from headwater.streams.windows.errors import WindowSettingError
from headwater.streams.windows.late import Late, check_late, correct, divert, drop
from headwater.streams.windows.panes import Windows


@pytest.mark.parametrize("name", ["a b/ü", "", "..", "x" * 250])
def test_a_topic_that_cannot_be_is_refused_at_once(name: str) -> None:
    with pytest.raises(WindowSettingError, match="names no topic") as raised:
        divert(name)
    assert "letters, digits" in raised.value.hint


@pytest.mark.parametrize("late", ["dropped", drop, None])
def test_what_says_nothing_of_late_events_is_refused(late: Any) -> None:  # noqa: ANN401
    with pytest.raises(WindowSettingError, match=r"late = .* does not say") as raised:
        check_late(late)
    assert "late=hf.drop()" in raised.value.hint
    check_late(Late())


def test_what_says_nothing_of_later_ones_is_refused() -> None:
    with pytest.raises(WindowSettingError, match="beyond = <function drop") as raised:
        correct("1 hour", beyond=drop)  # type: ignore[arg-type]
    assert "correct" not in raised.value.hint


def asked(**said: Any) -> object:  # noqa: ANN401 - as asked
    none: dict[str, Any] = dict.fromkeys(("length", "every", "session", "sliding"))
    return asked_windows(**{**none, "start": "0 seconds", **said})


@pytest.mark.parametrize(
    "ask,error,words",
    [
        (asked, WindowSettingError, "here are none"),
        (
            lambda: asked(length="1 minute", session="1 minute"),
            WindowSettingError,
            "here are length and session",
        ),
        (
            lambda: asked(length="1 minute", every="2 minutes"),
            WindowSettingError,
            "windows of 1 minute cannot begin every 2 minutes",
        ),
        (lambda: asked(length="0 seconds"), WindowSettingError, "cannot be 0 seconds long"),
        (
            lambda: asked(length="1 day", every="1 second"),
            WindowSettingError,
            "windows of 1 day that begin every 1 second",
        ),
        (lambda: asked(session="0 seconds"), WindowSettingError, "a silence between them"),
        (
            lambda: asked(length="1 minute", start="-10 seconds"),
            DurationError,
            "start = '-10 seconds' is negative",
        ),
        (lambda: correct("0 seconds"), WindowSettingError, "be corrected for 0 seconds"),
    ],
)
def test_what_cannot_be_is_told_in_minutes(
    ask: Callable[[], object], error: type[HeadwaterError], words: str
) -> None:
    with pytest.raises(error, match=words) as raised:
        ask()
    assert raised.value.hint


@pytest.mark.parametrize(
    "windows,text",
    [
        (Windows(60_000_000, 60_000_000), "1 minute every 1 minute"),
        (Windows(3_600_000_000, 60_000_000, 90_000_000), "1 hour every 1 minute, 30 seconds later"),
    ],
)
def test_what_windows_are_is_told_in_words(windows: Windows, text: str) -> None:
    assert str(windows) == text
