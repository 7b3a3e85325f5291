"""What is not served is written down, and nothing else is."""

import re
from pathlib import Path

from headwater.delivery.dialects.kafka import registry
from headwater.delivery.wire.kafka.apis import APIS

SKIPPED = Path(registry.__file__).with_name("skipped.md")


def section(heading: str) -> str:
    text = SKIPPED.read_text(encoding="utf-8")
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def rows(heading: str) -> list[list[str]]:
    lines = [line for line in section(heading).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_every_api_is_served_or_skipped_and_none_is_both() -> None:
    skipped = {int(key): name for key, name, _ in rows("Not served")}
    assert len(skipped) == len(rows("Not served")), "a key stands twice"
    assert skipped == {key: api.name for key, api in APIS.items() if key not in registry.APIS}
    assert registry.APIS.keys() <= APIS.keys()


def test_differences_are_told_of_apis_that_are_served() -> None:
    names = {api.name for key, api in APIS.items() if key in registry.APIS}
    told = [
        name
        for apis, _, _ in rows("Served, and not quite as Kafka does")
        for name in apis.split(", ")
    ]
    assert told
    assert set(told) <= names


def test_all_versions_of_a_served_api_are_served() -> None:
    for key, module in registry.APIS.items():
        api = APIS[key]
        assert (api.advertised_min_version, api.max_version) == module.VERSIONS


def test_every_row_gives_a_reason() -> None:
    for heading in ("Not served", "Served, and not quite as Kafka does"):
        for row in rows(heading):
            assert len(row) == 3
            assert re.fullmatch(r"[A-Z].*\.", row[2]), row


def test_each_module_is_named_and_documented_as_its_api() -> None:
    for key, module in registry.APIS.items():
        name = vars(module)["__name__"].rpartition(".")[2]
        words = re.sub(r"(?<!^)(?=[A-Z])", "_", APIS[key].name).lower()
        assert name == f"api_{key:02d}_{words}"
        low, high = module.VERSIONS
        versions = f"v{low}" if low == high else f"v{low}-{high}"
        assert (module.__doc__ or "").startswith(f"{APIS[key].name}: {versions}.\n")
