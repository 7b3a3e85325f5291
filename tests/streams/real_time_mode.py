"""A driver with one query in Real-Time Mode; `test_sparks_own_connector_with_spark` starts it.

It ends when as many rows have come out as went in, and says how many batches had ended by then:
in this mode rows come out while their batch is still running.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

WITHIN_S = 90.0
LOG4J = Path(__file__).resolve().parent / "log4j2.properties"


def wait_for_rows(plan: dict[str, Any]) -> None:
    """Read the topic until all rows were seen."""
    settings = {"bootstrap.servers": plan["bootstrap"], "group.id": "real-time-reader"}
    consumer = Consumer({**settings, "enable.auto.commit": "false"})
    consumer.assign([TopicPartition(plan["to"], 0, OFFSET_BEGINNING)])
    seen = 0
    while seen < plan["rows"]:
        message = consumer.poll(WITHIN_S)
        assert message is not None, f"{seen} of {plan['rows']} rows came"
        seen += message.error() is None
    consumer.close()


def main() -> None:
    """Run the plan that is given as JSON."""
    plan = json.loads(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[4]")
        .config("spark.ui.enabled", "false")
        .config("spark.jars", ",".join(plan["jars"]))
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={LOG4J}")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", plan["bootstrap"])
        .option("subscribe", plan["from"])
        .option("startingOffsets", "earliest")
        .load()
        .select("key", F.upper(F.col("value").cast("string")).alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", plan["bootstrap"])
        .option("topic", plan["to"])
        .option("checkpointLocation", f"{plan['folder']}/checkpoint")
        .outputMode("update")
        # Its type hints do not know this trigger yet.
        .trigger(realTime="60 seconds")  # type: ignore[call-overload]
        .start()
    )
    wait_for_rows(plan)
    ended = len(query.recentProgress)
    query.stop()
    spark.stop()
    print(json.dumps({"batches while rows arrived": ended}))


if __name__ == "__main__":
    main()
