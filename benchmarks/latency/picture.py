"""Draw what `make bench-latency` has found: `python -m benchmarks.latency.picture LOG > FILE.svg`.

This file alone decides how the figures look: two panels over the trigger interval, latency on the
left and rows per second on the right. It draws the last line of a log and measures nothing.
"""

import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

_WIDTH, _HEIGHT = 400, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 48, 48
_OURS_COLOUR, _THEIRS_COLOUR = "#0b6e99", "#c2571a"
_INTERVALS_S = (0.1, 0.5, 1.0, 2.0, 5.0)
_FONT = 'font-family="sans-serif" font-size="12" fill="#222"'

Points = list[tuple[float, float]]


class Line(NamedTuple):
    """One line of a panel."""

    label: str
    colour: str
    dashed: bool
    points: Points


class Panel(NamedTuple):
    """One of the pictures side by side."""

    title: str
    ticks: Sequence[float]
    lines: list[Line]
    logarithmic: bool


def main() -> int:
    """Read a log, and print the picture."""
    rows = json.loads(Path(sys.argv[1]).read_text().splitlines()[-1])["rows"]
    print(drawing({row["name"]: row for row in rows}))
    return 0


def drawing(rows: dict[str, dict[str, float]]) -> str:
    """Return the picture of these rows, by their names, as SVG."""
    latency = [
        Line(f"{whose}, {unit[:3]}", colour, unit == "p99 ms", _points(rows, side, "", unit))
        for side, whose, colour in _SIDES
        for unit in ("p50 ms", "p99 ms")
    ]
    rate = [
        Line(whose, colour, dashed=False, points=_points(rows, side, "saturated, ", "rows/s"))
        for side, whose, colour in _SIDES
    ]
    panels = [
        Panel("from send to receipt, ms", (10, 100, 1_000, 10_000), latency, logarithmic=True),
        Panel("rows/s in batches of one interval", _ticks(rate), rate, logarithmic=False),
    ]
    width = _WIDTH * len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT}" role="img">',
        "<title>Latency and throughput over the trigger interval</title>",
        f'<rect width="{width}" height="{_HEIGHT}" fill="#fff"/>',
    ]
    for number, panel in enumerate(panels):
        parts += [f'<g transform="translate({number * _WIDTH} 0)">', *_panel(panel), "</g>"]
    return "\n".join([*parts, "</svg>"])


_SIDES = (
    ("ours", "Headwater, exactly once", _OURS_COLOUR),
    ("theirs", "Spark's own, at least once", _THEIRS_COLOUR),
)


def _points(rows: dict[str, dict[str, float]], side: str, before: str, unit: str) -> Points:
    names = {each: f"{before}trigger {each:g} s: {unit}" for each in _INTERVALS_S}
    return [(each, rows[name][side]) for each, name in names.items() if name in rows]


def _ticks(lines: list[Line]) -> list[float]:
    largest = max((value for line in lines for _, value in line.points), default=1.0)
    step = 10 ** math.floor(math.log10(largest))
    count = math.ceil(largest / step)
    return [step * index for index in range(count + 1)]


def _panel(panel: Panel) -> list[str]:
    low, high = panel.ticks[0], panel.ticks[-1]
    across = _scale(math.log10, _INTERVALS_S[0], _INTERVALS_S[-1], _LEFT, _WIDTH - _RIGHT)
    turned = math.log10 if panel.logarithmic else float
    up = _scale(turned, low, high, _HEIGHT - _BOTTOM, _TOP)
    parts = [_text(_LEFT, 20, panel.title, "start")]
    for tick in panel.ticks:
        parts.append(
            f'<path d="M{_LEFT} {up(tick):.1f}H{_WIDTH - _RIGHT}" stroke="#ddd" fill="none"/>'
        )
        parts.append(_text(_LEFT - 6, up(tick) + 4, f"{tick:,.0f}", "end"))
    parts += [
        _text(across(interval_s), _HEIGHT - _BOTTOM + 18, f"{interval_s:g}", "middle")
        for interval_s in _INTERVALS_S
    ]
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(_text(middle, _HEIGHT - 8, "trigger interval, s", "middle"))
    for number, line in enumerate(panel.lines):
        path = " ".join(f"{across(x):.1f},{up(max(y, low)):.1f}" for x, y in line.points)
        dash = ' stroke-dasharray="5 3"' if line.dashed else ""
        stroke = f'stroke="{line.colour}" stroke-width="2" fill="none"{dash}'
        parts.append(f'<polyline points="{path}" {stroke}/>')
        # Lines rise to the right in both panels: the lower right corner is free.
        y = _HEIGHT - _BOTTOM - 12 - 16 * number
        parts.append(f'<path d="M{_WIDTH - 236} {y - 4}h24" {stroke}/>')
        parts.append(_text(_WIDTH - 206, y, line.label, "start"))
    return parts


def _scale(
    turned: Callable[[float], float], low: float, high: float, begin: float, end: float
) -> Callable[[float], float]:
    span = turned(high) - turned(low)
    return lambda value: begin + (turned(value) - turned(low)) / span * (end - begin)


def _text(x: float, y: float, words: str, anchor: str) -> str:
    escaped = words.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {_FONT}>{escaped}</text>'


if __name__ == "__main__":
    sys.exit(main())
