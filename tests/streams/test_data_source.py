"""What stands around the readers: how light they are to import, and which columns there are."""

import subprocess
import sys

import pytest

from headwater.streams.data_source import HeadwaterDataSource
from headwater.streams.errors import OptionError
from headwater.streams.schema import COLUMNS, HEADERS, check_columns, source_schema

HEAVY = "{'numba', 'numpy', 'pandas', 'pyarrow'}"


def test_what_every_worker_imports_is_light() -> None:
    """A sink's commit starts a new process each time; half a second of imports would be its floor.

    The readers are imported too: only rows need numba and pyarrow.
    """
    program = (
        "import sys, pyspark_headwater\n"
        "import headwater.streams.source.fetching, headwater.streams.source.positions\n"
        f"print(sorted({HEAVY} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_columns_of_ones_own_are_refused() -> None:
    check_columns(list(COLUMNS), headers=False)
    check_columns([*COLUMNS, HEADERS], headers=True)
    for found, headers in (([*COLUMNS, HEADERS], False), (list(COLUMNS), True), ([], False)):
        with pytest.raises(OptionError, match="a topic has its own columns"):
            check_columns(found, headers=headers)


def test_the_schema_follows_the_headers() -> None:
    assert HeadwaterDataSource({"subscribe": "a"}).schema() == source_schema(headers=False)
    with_headers = HeadwaterDataSource({"subscribe": "a", "includeHeaders": "true"}).schema()
    assert with_headers == source_schema(headers=True)
    assert HeadwaterDataSource.name() == "headwater"
    with pytest.raises(OptionError, match="did you mean includeHeaders"):
        HeadwaterDataSource({"subscribe": "a", "includeHeader": "true"}).schema()
