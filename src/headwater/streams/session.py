"""A Spark session that works at once.

This file alone decides what a session of ours has that a plain one has not: an interpreter and a
Java that fit, quiet logs, a state store that holds more than memory, as many shuffle partitions as
cores. It gives a plain SparkSession and needs no jar.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.base.errors import HeadwaterError
from headwater.streams.gateway import is_submitted, start_jvm
from headwater.streams.remote import refuse_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOOTSTRAP_VARIABLE = "HEADWATER_BOOTSTRAP"
MASTER_VARIABLE = "HEADWATER_MASTER"
FRAMES_VARIABLE = "HEADWATER_JAVA_FRAMES"
HIDDEN = "hidden"
"""What the variable says where somebody reads along who has no use for Java's stack traces."""
_LOG4J = Path(__file__).with_name("log4j2.properties")
# Where a session keeps the broker that it was told after its JVM had begun.
_TOLD = "headwater.bootstrap"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# Of a task that fails its message stays, which has the traceback of Python in it.
_WITHOUT_FRAMES = "-Dheadwater.log.throwables=none -Dheadwater.log.tasks=short.message"
# Larger than Spark's 10,000: each batch that crosses to Python costs the same, however full it is.
_ARROW_ROWS = 65_536
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(_ARROW_ROWS),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


class SparkMissingError(HeadwaterError):
    """Something that Spark itself needs is not installed."""


def session(
    name: str | None = None,
    *,
    master: str | None = None,
    config: Mapping[str, object] | None = None,
    bootstrap: str | None = None,
) -> "SparkSession":
    """Give a Spark session; the running one, if there is one.

    Args:
        name: What Spark calls it.
        master: Where Spark runs, unless ``HEADWATER_MASTER`` or ``headwater run --master`` names
            another place; by default all cores of this machine, or what spark-submit was told.
        config: Settings of Spark, over ours.
        bootstrap: The broker of sources and sinks that name none, from now on;
            ``HEADWATER_BOOTSTRAP``, else the one on the usual port.

    Raises:
        SparkMissingError: PySpark is not installed.
        JavaMissingError: There is no Java that will do.
        SparkStartError: Spark's JVM did not start.
        RemoteSessionError: Spark is that of a Connect server.
    """
    check_spark()
    refuse_remote(os.environ.get(MASTER_VARIABLE) or master)
    from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra, and slow to load

    master = os.environ.get(MASTER_VARIABLE) or master or ("" if is_submitted() else "local[*]")
    # The interpreter on the PATH is another one unless a virtual environment is activated.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if bootstrap is not None:
        os.environ[BOOTSTRAP_VARIABLE] = bootstrap
    settings = {"spark.app.name": name or "headwater"}
    if master:
        settings["spark.master"] = master
    settings |= settings_of(master, config or {})
    start_jvm(settings)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    running = builder.getOrCreate()
    _tell_the_broker(running)
    return running


def _tell_the_broker(running: "SparkSession") -> None:
    """Make the environment's broker that of a session whose JVM began with another one."""
    wanted = os.environ.get(BOOTSTRAP_VARIABLE)
    context = running.sparkContext
    assert context._jvm is not None  # noqa: SLF001
    begun_with = context._jvm.java.lang.System.getenv(BOOTSTRAP_VARIABLE)  # noqa: SLF001
    if not wanted or wanted == running.conf.get(_TOLD, begun_with):
        return
    from headwater.streams.data_source import HeadwaterDataSource  # noqa: PLC0415

    # A source that Spark has found by itself lives in the JVM's environment, which cannot change;
    # one that is registered takes along the environment of the context.
    context.environment[BOOTSTRAP_VARIABLE] = wanted
    running.dataSource.register(HeadwaterDataSource)
    running.conf.set(_TOLD, wanted)


def check_spark() -> str:
    """Make sure that PySpark is there; gives its version.

    Raises:
        SparkMissingError: It is not.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise SparkMissingError(
            "PySpark is not installed", hint="install it with: pip install 'headwater[spark]'"
        )
    from pyspark.version import __version__  # noqa: PLC0415 - an extra

    return __version__


def settings_of(master: str, config: Mapping[str, object]) -> dict[str, str]:
    """Put the caller's settings over ours."""
    settings = dict(_SETTINGS)
    cores = _local_cores(master)
    if cores is not None:
        # The checkpoint of a stateful query keeps this number for good.
        settings["spark.sql.shuffle.partitions"] = str(cores)
        settings["spark.python.daemon.module"] = "headwater.streams.worker_daemon"
    if os.environ.get(BOOTSTRAP_VARIABLE):
        # Readers and writers run in processes that a cluster starts on other machines.
        name = f"spark.executorEnv.{BOOTSTRAP_VARIABLE}"
        settings[name] = os.environ[BOOTSTRAP_VARIABLE]
    settings |= {name: _text(value) for name, value in config.items()}
    quiet = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
    if os.environ.get(FRAMES_VARIABLE) == HIDDEN:
        quiet += f" {_WITHOUT_FRAMES}"
    settings[_JAVA_OPTIONS] = f"{quiet} {settings.get(_JAVA_OPTIONS, '')}".rstrip()
    return settings


def _local_cores(master: str) -> int | None:
    found = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master)
    if found is None:
        return None
    if found[1] == "*":
        return os.cpu_count() or 1
    return int(found[1] or 1)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
