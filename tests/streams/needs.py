"""What a test needs of this machine before Spark can start, and Spark started for a test.

This file alone decides when a test with Spark is skipped: where there is no PySpark or Java, and
never where nothing may be absent.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from headwater.base.errors import HeadwaterError
from headwater.streams.gateway import start_jvm
from headwater.streams.java import find_java, use_java
from headwater.streams.session import check_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_spark() -> None:
    """Skip what needs Spark where it cannot start, or fail where nothing may be absent."""
    try:
        check_spark()
        use_java()
    except HeadwaterError as error:
        _end(f"{error.message}; {error.hint}")


def require_executors() -> None:
    """Skip what needs executors of their own where Spark cannot start any."""
    require_spark()
    java = find_java()
    if not java.whole:
        _end(f"Spark asks executors for a module that {java.home} has not; install another Java")


def require_sparks_own_start() -> None:
    """Skip what starts Spark by its own scripts where these cannot run; they ask more of Java."""
    require_executors()
    if shutil.which("bash") is None:
        _end("Spark's own scripts are for bash; apt install bash")


def _end(reason: str) -> None:
    end = pytest.fail if os.environ.get("HEADWATER_PEERS") == "required" else pytest.skip
    end(reason)


def start_spark(settings: Mapping[str, str]) -> "SparkSession":
    """Start Spark with these settings and no others of ours."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - it may be absent

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    start_jvm(settings)
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
