"""A program that uses Spark Connect, for the tests beside it; tells what came of it as JSON.

A process has one kind of session for good, so this is a process of its own.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater import functions as hf
from headwater.base.errors import HeadwaterError

AVRO = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}'


class Place:
    """Topics of a broker, by their names, and a session of Connect."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.options = {"kafka.bootstrap.servers": bootstrap}
        self.folder = folder
        log4j = Path(__file__).resolve().parent.parent / "log4j2.properties"
        self.spark = (
            SparkSession.builder.remote("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log4j}")
            .config("spark.sql.shuffle.partitions", "2")
            .getOrCreate()
        )

    def source(self, *, streaming: bool) -> DataFrame:
        reader: Any = self.spark.readStream if streaming else self.spark.read
        options = {**self.options, "subscribe": "orders", "includeHeaders": "true"}
        frame: DataFrame = (
            reader.format("headwater").options(**options, startingOffsets="earliest").load()
        )
        return frame

    def batch_source(self) -> object:
        rows = self.source(streaming=False).transform(hf.json("id int", mode="drop"))
        return sorted(row.id for row in rows.collect())

    def batch_sink(self) -> object:
        rows = self.source(streaming=False).where("value <> 'junk'").select("key", "value")
        writer = rows.write.format("headwater").options(**self.options, topic="copied")
        writer.mode("append").save()
        return None

    def stream(self) -> object:
        rows = self.source(streaming=True).select("key", "value")
        writer = rows.writeStream.format("headwater").options(**self.options, topic="streamed")
        checkpoint = str(self.folder / "checkpoint")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        return query.awaitTermination(120)

    def avro(self) -> object:
        frame = self.spark.range(2).transform(hf.to_avro(AVRO)).transform(hf.avro(AVRO))
        return sorted(row.id for row in frame.collect())

    def pipeline(self) -> object:
        decoded = self.source(streaming=True).transform(hf.json("id int", dead_letters="letters"))
        target = hw.topic("decoded", options=self.options)
        hw.pipeline("connected", decoded.select("id")).to(target).run(once=True)
        kept = Path("headwater-data", "checkpoints", "connected", "progress.json")
        batch = json.loads(kept.read_text())
        return [batch["rows"], batch["undecodable"], batch["lag"]]

    def counted(self) -> object:
        counts = self.source(streaming=True).groupBy("key").count()
        for _ in range(2):
            pipeline = hw.pipeline("counted", counts)
            pipeline.to(hw.topic("counted", options=self.options)).run(once=True)
            # As if it had been killed before Spark knew of its last batch.
            for name in ("0", ".0.crc"):
                Path("headwater-data", "checkpoints", "counted", "spark", "commits", name).unlink()
        return pipeline.mode

    def changed(self) -> object:
        rows = self.source(streaming=True).dropDuplicates(["key"]).select("value")
        hw.pipeline("connected", rows).to(hw.topic("decoded", options=self.options)).run(once=True)
        return None

    def session(self) -> object:
        return str(hw.session())


def told(work: Callable[[], object]) -> object:
    try:
        return work()
    except HeadwaterError as error:
        return [type(error).__name__, error.message, error.hint]


def main() -> None:
    """Try everything, and tell."""
    place = Place(sys.argv[1], Path.cwd())
    names = (
        "batch_source",
        "batch_sink",
        "stream",
        "avro",
        "pipeline",
        "counted",
        "changed",
        "session",
    )
    found = {name: told(getattr(place, name)) for name in names}
    print(json.dumps(found))
    place.spark.stop()


if __name__ == "__main__":
    main()
