"""The reference says what the code says."""

from pathlib import Path

import pytest

from codegen import reference_pages
from headwater import functions as hf
from headwater.base.settings import BROKER_SETTINGS, TOPIC_SETTINGS
from headwater.cli.errors import Exit
from headwater.delivery.dialects.kafka import registry
from headwater.delivery.wire.kafka.apis import APIS

PAGES = reference_pages.pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_is_up_to_date(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == PAGES[page], (
        "the code says something else by now; write it anew with: make docs"
    )


def page(name: str) -> str:
    return PAGES[reference_pages.REFERENCE / name]


def test_nothing_is_left_out() -> None:
    for name in (*BROKER_SETTINGS, *TOPIC_SETTINGS):
        assert f"| `{name}` |" in page("settings.md")
    for key in APIS:
        assert f"\n| {key} | {APIS[key].name} | " in page("kafka-apis.md")
    for code in Exit:
        assert f"\n| {code.value} | " in page("exit-codes.md")
    for command in ("up", "topic add-partitions", "group seek", "log dump", "config show"):
        assert f"\n## headwater {command}\n" in page("cli.md")
    # Nobody makes a `Late` by himself; it is there to be named in types.
    for name in {*hf.__all__} - {"Late"}:
        assert f"\n### `hf.{name}`\n" in page("functions.md")
    for name in ("pipeline", "session", "table", "tables", "topic"):
        assert f"\n### `hw.{name}`\n" in page("functions.md")


def test_what_is_served_and_what_is_not_stand_apart() -> None:
    served, _, skipped = page("kafka-apis.md").partition("## Not served")
    assert served.count("\n| ") == 1 + len(registry.APIS)
    assert all(f"\n| {key} | " not in skipped for key in registry.APIS)
