"""What a test needs of this machine before Spark can start.

This file alone decides when a test with Spark is skipped: where there is no PySpark, Java or bash,
and never where nothing may be absent.
"""

import os

import pytest

from headwater.base.errors import HeadwaterError
from headwater.streams.java import use_java
from headwater.streams.session import check_spark


def require_spark() -> None:
    """Skip what needs Spark where it cannot start, or fail where nothing may be absent."""
    try:
        check_spark()
        use_java()
    except HeadwaterError as error:
        end = pytest.fail if os.environ.get("HEADWATER_PEERS") == "required" else pytest.skip
        end(f"{error.message}; {error.hint}")
