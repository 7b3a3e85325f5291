"""What Spark's Python workers find in place, without Spark."""

import importlib.util
import json
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from headwater.streams.session import settings_of
from headwater.streams.worker_daemon import without_archives

MODULE = "headwater.streams.worker_daemon"


@pytest.mark.parametrize(
    "worker,tasks", [("pyspark.worker", True), ("pyspark.sql.worker.plan_data_source_read", False)]
)
def test_a_forked_worker_has_what_it_needs_loaded(worker: str, tasks: bool) -> None:
    code = f"""
        import gc, json, sys, threading
        from {MODULE} import preload
        preload({worker!r})
        # What is looked through for garbage behind each task: next to nothing of all that is there.
        searched = len(gc.get_objects()) < gc.get_freeze_count() / 100
        from headwater.streams.source import record_columns
        compiled = [len(each.signatures) for each in (
            record_columns.find_records, record_columns.gather, record_columns.find_headers)
        ] if "numba" in sys.modules and {tasks} else []
        loaded = [name for name in ({worker!r}, "pyarrow", "headwater.streams.data_source",
            "headwater.streams.source.fetching", "headwater.streams.sink.writer")
            if name in sys.modules]
        print(json.dumps([len(loaded), compiled, threading.active_count(), searched]))
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(ran.stdout) == [5, [1, 1, 1] if tasks else [], 1, True]


def test_the_daemon_tells_nothing_but_its_port_and_ends_with_spark() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", MODULE, "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        try:
            port = int.from_bytes(daemon.stdout.read(4), "big")
            with socket.create_connection(("127.0.0.1", port), timeout=60):
                pass
        finally:
            daemon.stdin.close()
        assert daemon.stdout.read() == b""
        daemon.wait(60)


def test_sessions_on_one_machine_use_it_unless_told_otherwise() -> None:
    name = "spark.python.daemon.module"
    assert settings_of("local[2]", {})[name] == MODULE
    assert settings_of("local[2]", {name: "pyspark.daemon"})[name] == "pyspark.daemon"
    assert name not in settings_of("spark://somewhere:7077", {})


def test_pyspark_is_not_on_the_path_twice() -> None:
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    archives = sorted(str(each) for each in (package / "python/lib").glob("*.zip"))
    assert len(archives) == 2, "PySpark's own and py4j's"
    archives.append(str(package / "jars/spark-core_2.13-4.0.0.jar"))
    path = ["", *archives, "/any/users.zip", str(package.parent), "/any/folder"]
    assert without_archives(path) == ["", "/any/users.zip", str(package.parent), "/any/folder"]


def test_an_archive_stays_where_there_is_nothing_else(tmp_path: Path) -> None:
    of_a_cluster = str(tmp_path / "spark/python/lib/pyspark.zip")
    path = [of_a_cluster, "/any/py4j-1-src.zip", *sys.path]
    assert without_archives(path) == path


def test_an_archive_stays_where_py4j_is_only_in_one(tmp_path: Path) -> None:
    package = tmp_path / "pyspark"
    (package / "python/lib").mkdir(parents=True)
    (package / "__init__.py").touch()
    path = [str(package / "python/lib/pyspark.zip"), str(tmp_path)]
    assert without_archives(path) == path
