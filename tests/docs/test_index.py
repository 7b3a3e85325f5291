"""Every page for users is found from where they start."""

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [
    str(path.relative_to(DOCS))
    for folder in ("concepts", "guides", "reference", "internals")
    for path in sorted((DOCS / folder).glob("*.md"))
    if path.name != "index.md"
]


@pytest.mark.parametrize("page", PAGES)
def test_the_index_links_every_page(page: str) -> None:
    assert f"]({page})" in (DOCS / "index.md").read_text(encoding="utf-8")
