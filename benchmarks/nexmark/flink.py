"""The side that runs in Flink: PyFlink SQL from PyPI, in a virtual environment of its own.

This file alone decides how its process is started and talked to. What is asked stands in
`benchmarks.nexmark.flink_sql`, how it is run in `benchmarks.nexmark.flink_job`.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from benchmarks.nexmark.answers import WEIGHT
from benchmarks.nexmark.flink_sql import ANSWERS, tables
from benchmarks.nexmark.load import Load
from benchmarks.spark import Bench
from examples.nexmark.generator import side_input
from examples.nexmark.queries import QUERIES
from tests import peers

FLINK: Final = "PyFlink"
_JOB: Final = Path(__file__).with_name("flink_job.py")
_END_WITHIN_S: Final = 30


class FlinkError(Exception):
    """Flink did not do what it was asked."""


class Flink:
    """A process with PyFlink, which runs one query after the other."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._log = (bench.folder / "flink.log").open("wb")
        self._folder = bench.folder / "flink"
        self._folder.mkdir()
        self._process = subprocess.Popen(
            [
                str(peers.pyflink_python()),
                *(str(_JOB), str(self._folder)),
                *(path.as_uri() for path in peers.pyflink_jars()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=_environment(),
        )

    def emitted(self, name: str, load: Load) -> pa.Table:
        """Run a query to the end of the topic; gives all that it emits, as changes."""
        self._ask(name, load, "files")
        query = QUERIES[name]
        names = ", ".join(
            f"CAST(coalesce(after, before)->>'{field.name}' AS {_sql_type(field.type)})"
            f' AS "{field.name}"'
            for field in query.answer
        )
        files = [str(path) for path in (self._folder / "answer").rglob("*part-*")]
        columns = "{'before': 'JSON', 'after': 'JSON', 'op': 'VARCHAR'}"
        try:
            with duckdb.connect(config={"threads": 2}) as connection:
                return connection.sql(
                    f"""
                    SELECT {names}, CASE op WHEN 'c' THEN 1 ELSE -1 END AS {WEIGHT}
                    FROM read_ndjson({files}, columns = {columns})
                    """
                ).to_arrow_table()
        finally:
            shutil.rmtree(self._folder / "answer")

    def timed(self, name: str, load: Load) -> float:
        """Run a query to the end of the topic; gives events per second of the running job."""
        return load.size / self._ask(name, load, "blackhole")

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _ask(self, name: str, load: Load, sink: str) -> float:
        """Give the seconds that a query took."""
        side = self._folder / "side_input.csv"
        if not side.exists():
            pairs = side_input().to_pylist()
            side.write_text("".join(f"{row['key']},{row['value']}\n" for row in pairs))
        request = {
            "tables": tables(self._bench.bootstrap, load.topic, side),
            "answer": ANSWERS[name],
            "columns": [[field.name, _sql_type(field.type)] for field in QUERIES[name].answer],
            "sink": sink,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                reply: dict[str, Any] = json.loads(line)
                if "error" in reply:
                    raise FlinkError(f"{name}: {reply['error']}")
                return float(reply["took_s"])
        tail = Path(self._log.name).read_text()[-2000:]
        raise FlinkError(f"{name}: its process has ended\n{tail}")


@contextmanager
def maybe_flink(bench: Bench) -> Iterator[Flink | None]:
    """Start PyFlink, if it is here; say so if it is not."""
    if reason := peers.missing("pyflink"):
        print(f"{reason}; its rows are left out", file=sys.stderr)
        yield None
        return
    flink = Flink(bench)
    try:
        yield flink
    finally:
        flink.close()


def _environment() -> dict[str, str]:
    """Give what its process sees: nothing of our interpreter, nor of Spark's settings."""
    hidden = ("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not name.startswith(hidden)}


def _sql_type(kind: pa.DataType) -> str:
    """Name a type of an answer, as Flink and DuckDB both call it."""
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP(3)"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return {pa.int64(): "BIGINT", pa.float64(): "DOUBLE", pa.string(): "STRING"}[kind]
