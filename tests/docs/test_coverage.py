"""docs/coverage.md names only what exists, and leaves no row out."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "coverage.md"
ROWS = [f"{kind}{n}" for kind, last in (("T", 16), ("D", 9), ("P", 18)) for n in range(1, last + 1)]
COLUMNS = ("test", "example", "page")
NOT_YET = "not yet"


def rows(text: str) -> dict[str, dict[str, str]]:
    """Every row of the tables: its id to the cells that must name something."""
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not re.fullmatch(r"[TDP]\d+", cells[0]):
            continue
        assert cells[0] not in found, f"{cells[0]} stands twice"
        assert len(cells) == 2 + len(COLUMNS), f"{cells[0]} has {len(cells)} cells"
        found[cells[0]] = dict(zip(COLUMNS, cells[2:], strict=True))
    return found


def faults(cell: str, root: Path) -> list[str]:
    """What is wrong with one cell: it names nothing, or something that is not there."""
    if cell == NOT_YET:
        return []
    named = re.findall(r"`([^`]+)`", cell)
    if not named:
        return [f"{cell!r} names no path and is not {NOT_YET!r}"]
    return [fault for each in named if (fault := _fault(each, root))]


def _fault(named: str, root: Path) -> str | None:
    path, _, test = named.partition("::")
    if not (root / path).exists():
        return f"{path} does not exist"
    definition = re.compile(rf"^\s*(async )?def {re.escape(test)}\(", re.MULTILINE)
    if test and not definition.search((root / path).read_text()):
        return f"{path} has no {test}"
    return None


def test_every_row_is_there_in_order() -> None:
    assert list(rows(PAGE.read_text())) == ROWS


@pytest.mark.parametrize("row", ROWS)
def test_what_a_row_names_exists(row: str) -> None:
    cells = rows(PAGE.read_text())[row]
    assert [fault for cell in cells.values() for fault in faults(cell, ROOT)] == []


def test_faults_are_seen(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_one() -> None: ...\n")
    assert faults("not yet", tmp_path) == []
    assert faults("`test_a.py`, `test_a.py::test_one`", tmp_path) == []
    assert faults("`test_b.py`", tmp_path) == ["test_b.py does not exist"]
    assert faults("`test_a.py::test_two`", tmp_path) == ["test_a.py has no test_two"]
    assert faults("somewhere", tmp_path) == ["'somewhere' names no path and is not 'not yet'"]


def test_a_row_that_stands_twice_is_seen() -> None:
    line = "| T1 | idea | not yet | not yet | not yet |\n"
    with pytest.raises(AssertionError, match="twice"):
        rows(line + line)
