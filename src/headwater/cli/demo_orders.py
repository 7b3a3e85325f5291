"""The pipeline of `headwater demo`: a price for every order, exactly once.

This file alone decides what Spark does in the demo. It is a definition file like anybody's: it is
run by `headwater run`, and loads no Spark where it is only imported for its names.
"""

from headwater.cli.demo_worker import TOPIC

PRICED = "orders.priced"
PIPELINE = "prices"


def define() -> None:
    """Say what is computed, and where it goes."""
    from pyspark.sql import functions as F  # noqa: PLC0415 - an extra, and slow to load

    import headwater as hw  # noqa: PLC0415 - as in anybody's file
    from headwater import functions as hf  # noqa: PLC0415 - as above

    spark = hw.session("headwater demo")
    orders = (
        spark.readStream.format("headwater")
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load()
    )
    priced = (
        orders.transform(hf.json("number long, product string, country string, qty int"))
        .withColumn("price", F.round(F.col("qty") * F.length("product") * 0.35, 2))
        .select("number", "country", "product", "qty", "price")
    )
    hw.pipeline(PIPELINE, priced).to(hw.topic(PRICED, key="country")).run()


if __name__ == "__main__":
    define()
