"""What `import headwater` costs and gives."""

import json
import subprocess
import sys

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
    from importlib.metadata import version  # noqa: PLC0415 - only this test needs it

    assert version("headwater") == headwater.__version__
