"""The page of Spark's options names all there are, and no others."""

import re
from pathlib import Path

from headwater.streams import options as source
from headwater.streams.sink import options as sink

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "spark-options.md"
_FIRST_CELL = re.compile(r"^\| (`[^|]+) \|", re.MULTILINE)
_NAME = re.compile(r"`([^`]+)`")


def test_the_page_names_every_option() -> None:
    cells = _FIRST_CELL.findall(PAGE.read_text(encoding="utf-8"))
    named = {name for cell in cells for name in _NAME.findall(cell)}

    known = {*source._KNOWN, *source._WITHOUT_EFFECT, *sink._KNOWN}
    assert {name for name in named if not name.startswith("kafka.")} == known
