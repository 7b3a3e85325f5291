"""The clocks of a join keep their own times, in whatever order a process makes them."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater import functions as hf
from headwater.streams.time import clocks
from headwater.streams.time.watermark import watermark
from tests.streams.brokers import Broker
from tests.streams.time.clocked import WITHIN_S, events, send

NOW = 1_800_000_000.0


def pairs(orders: DataFrame, payments: DataFrame) -> DataFrame:
    sides = [each.select(F.lit(1).alias("k"), "at", "__hw") for each in (orders, payments)]
    hour = "1 hour"
    joined = hf.join_interval(
        sides[1].withColumnRenamed("at", "paid"), on="k", lower=f"-{hour}", upper=hour, buckets=1
    )
    return sides[0].transform(joined)


def exchange_clocks(checkpoint: Path) -> None:
    """Change the newest offsets; the clocks are the first two."""
    offsets = checkpoint / "offsets"
    newest = max(
        (path for path in offsets.iterdir() if path.name.isdigit()), key=lambda p: int(p.name)
    )
    *head, one, two, first, second = newest.read_text().split("\n")
    newest.write_text("\n".join([*head, two, one, first, second]))
    (offsets / f".{newest.name}.crc").unlink()


def unchanged(_: Path) -> None:
    """Leave the checkpoint as it is."""


@pytest.mark.parametrize(
    "change",
    [unchanged, exchange_clocks],
    ids=["as it was written", "with the clocks in another order"],
)
def test_no_row_is_late_by_the_time_of_the_other_topic(
    spark: SparkSession,
    near: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], None],
) -> None:
    topics = [near.topic(name) for name in ("orders", "payments")]
    found = []

    def run(order: list[int]) -> None:
        """Run to the end as a new process does that makes the watermarks in this order."""
        monkeypatch.setattr(clocks, "_kept", {})
        made = {}
        for number in order:
            rows = events(spark, near, topics[number])
            made[number] = rows.transform(watermark("at", "0 seconds", idle=None, future=None))
        query = (
            pairs(made[0], made[1])
            .drop("__hw")
            .writeStream.foreachBatch(lambda frame, _: found.extend(frame.collect()))
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(WITHIN_S)
        finally:
            query.stop()

    send(near, topics[0], [NOW])
    send(near, topics[1], [NOW + 7200, NOW + 360_000])
    run([0, 1])
    assert not found
    change(tmp_path)
    for seconds in (7201, 7202):
        send(near, topics[0], [NOW + seconds])
        run([1, 0])
    ats = [row["at"].replace(tzinfo=dt.UTC).timestamp() - NOW for row in found]
    assert sorted(ats) == [7201, 7202]
