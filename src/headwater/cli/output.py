"""What a person or a program sees.

This file alone decides how tables, numbers, times and JSON look. Data goes to standard output, all
else to standard error; colours only where somebody looks and NO_COLOR and CI do not forbid them.
It knows no topic and no broker.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TextIO

Cell = str | int | float | None

_CODES = {"red": 31, "green": 32, "yellow": 33, "cyan": 36, "bold": 1, "dim": 2}
_COLUMN_GAP = "  "
_SECOND_MS = 1_000
_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
_DAY_MS = 86_400_000


def is_interactive(stream: TextIO) -> bool:
    """Tell whether somebody looks at the stream, so that it may move and be redrawn."""
    return stream.isatty() and "CI" not in os.environ and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, stream: TextIO) -> str:
    """Colour the text where that is wanted."""
    if not is_interactive(stream) or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def say(text: str) -> None:
    """Print a line of data."""
    print(text, file=sys.stdout)  # noqa: T201 - the terminal is where it belongs


def note(text: str) -> None:
    """Print a line beside the data."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - the terminal is where it belongs


def remark(kind: str, text: str, *, as_json: bool) -> None:
    """Print a note or a warning beside the data, in the form that whoever reads it expects."""
    note(json.dumps({kind: text}, ensure_ascii=False) if as_json else f"{kind}: {text}")


def summary(facts: Mapping[str, object], sentence: str, *, as_json: bool) -> None:
    """Print, beside the data, how much it was."""
    note(json.dumps({"summary": facts}, ensure_ascii=False) if as_json else sentence)


def document(value: object) -> None:
    """Print one JSON document; indented where a person looks at it."""
    indent = 2 if sys.stdout.isatty() else None
    say(json.dumps(value, ensure_ascii=False, indent=indent))


def json_line(value: object) -> None:
    """Print one of many JSON documents, on a line of its own."""
    say(json.dumps(value, ensure_ascii=False))


def table(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Print columns under their heads; numbers to the right, nothing as a dash.

    Nothing is cut off: where the terminal is too narrow, lines wrap.
    """
    texts = [[_cell(cell) for cell in row] for row in rows]
    widths = [
        max([len(head), *(len(row[index]) for row in texts)]) for index, head in enumerate(heads)
    ]
    right = [
        all(isinstance(row[index], int | float | None) or _is_amount(row[index]) for row in rows)
        and any(row[index] is not None for row in rows)
        for index in range(len(heads))
    ]
    say(paint(_line(heads, widths, right), "bold", sys.stdout))
    for row in texts:
        say(_line(row, widths, right))


def facts(pairs: Mapping[str, Cell]) -> None:
    """Print names and values below each other."""
    width = max(len(name) for name in pairs)
    for name, value in pairs.items():
        say(f"{paint(name.ljust(width), 'bold', sys.stdout)}{_COLUMN_GAP}{_cell(value)}")


def count(number: int, noun: str) -> str:
    """Return "1 record", "2,000 records"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def bytes_text(size_bytes: float | None) -> str | None:
    """Return a size as people write it: "512 B", "1.5 MiB"."""
    if size_bytes is None:
        return None
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def duration_text(duration_ms: float | None) -> str | None:
    """Return a time span in its largest sensible unit: "350 ms", "12.0 s", "6 d 23 h"."""
    if duration_ms is None:
        return None
    if duration_ms < 0:
        return f"-{duration_text(-duration_ms)}"
    if duration_ms < _SECOND_MS:
        return f"{duration_ms:.0f} ms"
    if duration_ms < _MINUTE_MS:
        return f"{duration_ms / _SECOND_MS:.1f} s"
    for name, unit_ms, below, below_ms in (
        ("m", _MINUTE_MS, "s", _SECOND_MS),
        ("h", _HOUR_MS, "m", _MINUTE_MS),
    ):
        if duration_ms < (_HOUR_MS if name == "m" else _DAY_MS):
            whole, rest = divmod(int(duration_ms), unit_ms)
            return f"{whole} {name} {rest // below_ms} {below}"
    days, rest = divmod(int(duration_ms), _DAY_MS)
    return f"{days} d {rest // _HOUR_MS} h"


def time_text(timestamp_ms: int | None) -> str | None:
    """Return a moment in UTC, to the millisecond."""
    if timestamp_ms is None or timestamp_ms < 0:
        return None
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"


def _cell(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, int):
        return f"{cell:,}" if abs(cell) >= 10_000 else str(cell)
    return f"{cell:.1f}" if isinstance(cell, float) else cell


def _is_amount(cell: Cell) -> bool:
    if not isinstance(cell, str):
        return False
    return cell.startswith("~") or (cell[:1].isdigit() and cell.endswith(("B", "iB", "ms", "%")))


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    aligned = (
        cell.rjust(width) if to_right else cell.ljust(width)
        for cell, width, to_right in zip(cells, widths, right, strict=True)
    )
    return _COLUMN_GAP.join(aligned).rstrip()
