"""The campaign's own judge: it notices what is given or taken back once too often."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.crash.kernel import work
from tests.crash.kernel.query import LENGTH_S
from tests.crash.sink.campaign import Book

A, B = ("a", 0, 1, 5), ("a", 0, 2, 9)


def change(op: str, result: tuple[str, int, int, int], version: int) -> SimpleNamespace:
    name, start, n, total = result
    said = {"name": name, "start": start, "n": n, "total": total, "op": op, "version": version}
    return SimpleNamespace(value=json.dumps(said).encode())


FINE = [change("insert", A, 0), change("retract", A, 0), change("insert", B, 1)]


@pytest.mark.parametrize(
    "changes,breaches",
    [
        (FINE, 0),
        ([*FINE, FINE[-1]], 1),
        ([FINE[1], *FINE], 1),
        ([FINE[0], FINE[2]], 1),
        ([FINE[0], change("retract", B, 0), FINE[2]], 1),
    ],
    ids=["fine", "given twice", "taken back before", "not taken back", "another taken back"],
)
def test_changes_are_applied_one_by_one(
    changes: list[Any], breaches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "committed", lambda *_: changes)
    book: Any = Book()
    windowing = work.Windowing(tmp_path, seed=1)
    windowing.judge("nowhere", book)
    assert [kind for kind, _ in book.broken].count("doubled") >= bool(breaches)
    assert sum("beside" in told or "has" in told for _, told in book.broken) == breaches


def test_what_stands_is_held_against_all_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "committed", lambda *_: [])
    book: Any = Book()
    windowing = work.Windowing(tmp_path, seed=1)
    windowing._events.append((windowing._now_s, "name 1", 0))
    windowing._now_s += LENGTH_S
    windowing.judge("nowhere", book)
    assert [kind for kind, _ in book.broken] == ["lost"]
