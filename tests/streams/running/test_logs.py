"""The end of a log, however long it is."""

from pathlib import Path

import pytest

from headwater.streams.running import logs
from headwater.streams.running.logs import last_lines


@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
@pytest.mark.parametrize(
    "text", ["", "half", "a\n", "a\nb\n\nc\n", "a\nb\nhalf", "l\u00f6ng\n" * 9]
)
@pytest.mark.parametrize("block", [1, 3, 1000])
def test_as_many_lines_as_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, text: str, block: int
) -> None:
    monkeypatch.setattr(logs, "_TAIL_BYTES", block)
    path = tmp_path / "log"
    path.write_text(text, encoding="utf-8")
    whole, newline, _ = text.rpartition("\n")
    position = len((whole + newline).encode())
    wanted = text.splitlines()[-count:] if count else []
    assert last_lines(path, count, whole=False) == (wanted, position)
    wanted = (whole + newline).splitlines()[-count:] if count else []
    assert last_lines(path, count, whole=True) == (wanted, position)


def test_no_more_is_read_than_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.truncate(2**40)  # a hole: nobody has so much memory
        file.seek(0, 2)
        file.write(b"\nlast\n")
    assert last_lines(path, 1, whole=True) == (["last"], 2**40 + 6)
