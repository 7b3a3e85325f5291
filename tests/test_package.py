"""What `import headwater` costs and gives."""

import json
import subprocess
import sys
from importlib.metadata import version

import pytest

import headwater

# Loading any of these would turn `import headwater` from a millisecond into a second or more.
HEAVY = (
    "asyncio",
    "click",
    "cramjam",
    "pandas",
    "pyarrow",
    "pyspark",
    "rich",
    "sqlglot",
    "zstandard",
)


def test_import_loads_no_room_and_nothing_heavy() -> None:
    script = "import json, sys; import headwater; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    )
    loaded = set(json.loads(done.stdout))
    assert loaded.isdisjoint(HEAVY)
    assert [name for name in loaded if name.startswith("headwater.")] == []


def test_version_is_the_installed_one() -> None:
    assert version("headwater") == headwater.__version__


@pytest.mark.parametrize("name", headwater.__all__)
def test_public_names_resolve_and_are_listed(name: str) -> None:
    assert getattr(headwater, name) is not None
    assert name in dir(headwater)


def test_all_is_what_is_fetched_lazily() -> None:
    assert {*headwater._HOMES, "__version__"} == set(headwater.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'headwater' has no attribute 'Headwaters'"):
        headwater.Headwaters  # type: ignore[attr-defined]  # noqa: B018 - the access is the test
