"""How long orders wait for a table of a real topic: until all that they need of it was read."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any, Self

from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater import functions as hf
from tests.streams.brokers import Broker
from tests.streams.joins.topics import (
    SECOND,
    WITHIN_S,
    Changes,
    events,
    iso,
    send,
)

BUCKETS = 1
MINUTE = 60 * SECOND
DECEMBER = "2099-12-01T00:00:00Z"


def price(product: int, price: float, since: str) -> tuple[str, dict[str, Any]]:
    return str(product), {"product": product, "price": price, "since": since}


def prices(spark: SparkSession, near: Broker, topic: str, **said: Any) -> DataFrame:  # noqa: ANN401
    options = {"kafka.bootstrap.servers": near.bootstrap, **said.pop("options", {})}
    return hw.table(
        spark,
        topic,
        schema="product long, price double, since timestamp",
        key="product",
        valid_from="since",
        options=options,
        **said,
    )


def orders(spark: SparkSession, near: Broker, topic: str, delay: str = "0 seconds") -> DataFrame:
    rows = events(spark, near, topic, "product long, id long")
    return rows.transform(hf.watermark("at", delay))


def order(number: int, product: int, us: int) -> tuple[None, dict[str, Any]]:
    return None, {"us": us, "product": product, "id": number}


def test_a_version_dated_ahead_does_not_end_the_waiting_for_others(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    ordered, priced = near.topic("orders"), near.topic("prices")
    for record, us in (
        (price(7, 5.0, iso(0)), 0),
        (price(9, 1.0, DECEMBER), MINUTE),
        (price(8, 1.0, iso(2 * MINUTE)), 2 * MINUTE),
        (price(8, 1.0, iso(3 * MINUTE)), 3 * MINUTE),
        (price(7, 6.5, iso(5 * MINUTE)), 5 * MINUTE),
        (price(9, 2.0, iso(50 * MINUTE)), 50 * MINUTE),
    ):
        send(near, priced, [record], at_us=us)
    for number, (product, us) in enumerate([(7, 10 * MINUTE), (9, 55 * MINUTE)]):
        send(near, ordered, [order(number, product, us)], at_us=us)
    # One record in a batch: the version of December was read, and the price of 12:05 was not.
    table = prices(spark, near, priced, options={"maxOffsetsPerTrigger": "1"})
    joined = orders(spark, near, ordered).transform(
        hf.join_asof(table, on="product", time="at", how="left", buckets=BUCKETS)
    )
    given = Changes(joined, tmp_path)
    given.run()
    assert given.standing("id", "price") == Counter([(0, 6.5)])


def test_the_delay_of_a_table_that_is_awake_counts_once(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    ordered, priced = near.topic("orders"), near.topic("prices")
    table = prices(spark, near, priced, delay="10 minutes")
    joined = orders(spark, near, ordered).transform(
        hf.join_asof(table, on="product", time="at", how="left", buckets=BUCKETS)
    )
    given = Changes(joined, tmp_path)
    send(near, priced, [price(7, 5.0, iso(0))], at_us=0)
    send(near, ordered, [order(0, 7, MINUTE)], at_us=MINUTE)
    due = Counter([(0, 5.0)])
    for number, (minute, expected) in enumerate([(9, Counter()), (13, due)], start=1):
        us = minute * MINUTE
        send(near, priced, [price(8, 1.0, iso(us))], at_us=us)
        send(near, ordered, [order(number, 8, us)], at_us=us)
        given.run()
        assert given.standing("id", "price") == expected


class Live:
    """A query that goes on, and the rows that it has given so far."""

    def __init__(self, frame: DataFrame, folder: Path) -> None:
        self._rows: dict[int, float | None] = {}
        self._changed = threading.Condition()
        self._query = (
            frame.drop("__hw")
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )

    def _take(self, frame: DataFrame, _batch: int) -> None:
        with self._changed:
            self._rows |= {row["id"]: row["price"] for row in frame.collect()}
            self._changed.notify_all()

    def price_of(self, number: int) -> float | None:
        """Wait for an order, and return the price that it has."""
        with self._changed:
            assert self._changed.wait_for(lambda: number in self._rows, WITHIN_S), self._rows
            return self._rows[number]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._query.stop()


def test_a_table_that_was_idle_is_read_before_an_order_is_answered(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    ordered, priced = near.topic("orders"), near.topic("prices")
    send(near, priced, [price(7, 5.0, iso(0))])
    send(near, ordered, [order(0, 7, MINUTE), order(1, 7, 2 * MINUTE)])
    table = prices(spark, near, priced, idle="1 second")
    joined = orders(spark, near, ordered).transform(
        hf.join_asof(table, on="product", time="at", how="left", buckets=BUCKETS)
    )
    with Live(joined, tmp_path) as live:
        # By its own watermark the table holds order 0 back: it is idle by the time this is out.
        assert live.price_of(0) == 5.0
        for number in range(2, 8, 2):
            at_us = 5 * MINUTE * number
            send(near, priced, [price(7, 6.5 + number, iso(at_us))])
            send(near, ordered, [order(number, 7, at_us), order(number + 1, 7, at_us + MINUTE)])
            assert live.price_of(number) == 6.5 + number


def test_an_idle_table_still_has_its_delay(
    spark: SparkSession, near: Broker, tmp_path: Path
) -> None:
    """Versions that are written up to ten minutes after they hold are waited for so long."""
    ordered, priced = near.topic("orders"), near.topic("prices")
    table = prices(spark, near, priced, delay="10 minutes", idle="0 seconds")
    joined = orders(spark, near, ordered).transform(
        hf.join_asof(table, on="product", time="at", how="left", buckets=BUCKETS)
    )
    given = Changes(joined, tmp_path)
    send(near, priced, [price(7, 5.0, iso(0))])
    send(near, ordered, [order(0, 7, MINUTE)])
    given.run()
    # The table is idle now: it is not waited for, and the time of the orders decides.
    send(near, ordered, [order(1, 7, 6 * MINUTE), order(2, 7, 8 * MINUTE)])
    given.run()
    send(near, priced, [price(7, 6.5, iso(5 * MINUTE))])
    send(near, ordered, [order(3, 7, 30 * MINUTE)])
    given.run()
    send(near, ordered, [order(4, 7, 31 * MINUTE)])
    given.run()
    assert given.standing("id", "price") == Counter([(0, 5.0), (1, 6.5), (2, 6.5)])
