"""The bar: there where somebody looks and waits, and nowhere else."""

import io
import re
import sys

import pytest

from headwater.cli import progress
from headwater.cli.progress import Progress


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


def look(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard error a terminal; not in a fixture, as pytest replaces it after those."""
    for name in ("CI", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "_REDRAW_S", 0.0)


@pytest.mark.parametrize("unit, amount", [("records", "50/200 records"), ("bytes", "50/200 bytes")])
def test_a_bar_for_those_who_wait(
    monkeypatch: pytest.MonkeyPatch, impatient: None, unit: str, amount: str
) -> None:
    terminal = look(monkeypatch)
    bar = Progress("copying", unit=unit)
    bar.show(50, 200)
    bar.close()
    assert "copying" in terminal.getvalue()
    plain = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", terminal.getvalue())
    assert amount in plain


def test_nothing_for_what_is_over_in_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = look(monkeypatch)
    bar = Progress("copying", unit="records")
    for done in range(100):
        bar.show(done, 100)
    bar.close()
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("quiet, variable", [(True, None), (False, "CI")])
def test_nothing_where_it_is_not_wanted(
    monkeypatch: pytest.MonkeyPatch, impatient: None, quiet: bool, variable: str | None
) -> None:
    terminal = look(monkeypatch)
    if variable:
        monkeypatch.setenv(variable, "1")
    bar = Progress("copying", unit="records", quiet=quiet)
    bar.show(50, 200)
    bar.close()
    assert terminal.getvalue() == ""
