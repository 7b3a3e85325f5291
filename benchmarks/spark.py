"""What the benchmarks with Spark share: their options, the broker, and the one Spark session.

This file alone decides how Spark is set up where it is measured: two cores, a heap that neither
side fills, and the jars of Spark's own Kafka connector beside ours. It measures nothing.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.broker.brokers import Headwater, closing_broker, scratch
from benchmarks.table import options, say
from headwater.streams.session import session
from tests import peers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The names under which Spark knows the two connectors.
OURS = "headwater"
THEIRS = "kafka"
_CORES = 2


class Bench(NamedTuple):
    """Where a benchmark runs."""

    spark: "SparkSession"
    broker: Headwater
    folder: Path
    began: float

    @property
    def bootstrap(self) -> str:
        """The address of the broker."""
        return f"127.0.0.1:{self.broker.port}"

    def say(self, what: str) -> None:
        """Tell whoever waits how far it is."""
        say(what, self.began)


def parser_of(prog: str, *, rounds: int) -> argparse.ArgumentParser:
    """Return a parser of what can be said to each benchmark with Spark."""
    parser = options(prog, seconds=1.0)
    parser.set_defaults(rounds=rounds)
    parser.add_argument("--only", default="", help="those whose name has this in it")
    parser.add_argument("--scale", type=float, default=1.0, help="of how much is measured")
    return parser


def can_run(*wanted: str) -> bool:
    """Tell whether these peers are here, and on stderr which are not."""
    reasons = [reason for each in wanted if (reason := peers.missing(each))]
    for reason in reasons:
        print(reason, file=sys.stderr)
    return not reasons


@contextmanager
def running(name: str, directory: Path | None, *, cores: int = _CORES) -> Iterator[Bench]:
    """Start a broker of ours and a Spark session, in a new folder, and end both."""
    began = time.monotonic()
    with (
        scratch(directory) as folder,
        closing_broker(Headwater(folder / "broker")) as broker,
    ):
        broker.start()
        spark = session(
            name,
            master=f"local[{cores}]",
            config={
                "spark.jars": ",".join(map(str, peers.spark_connector())),
                "spark.driver.memory": "2g",
                "spark.local.dir": str(folder),
            },
        )
        try:
            yield Bench(spark, broker, folder, began)
        finally:
            spark.stop()
