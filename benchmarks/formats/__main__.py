"""`make bench-formats`: our formats beside what a person writes without them.

This file alone decides what is decoded and what is timed. The plain way is Spark's own `from_json`,
which takes more than JSON and says nothing of what it drops, and for Avro and Protobuf a Python
UDF around fastavro and protobuf, which fails on the first bad record. Both decode the same values
from files, in turn, and add up the same columns.
"""

import io
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.broker.brokers import scratch
from benchmarks.spark import parser_of
from benchmarks.table import Row, print_rows, say
from headwater import functions as hf
from headwater.streams.session import session

_COLUMNS = "id bigint, country string, price double"
_ROWS = "SELECT id, concat('country-', id % 100) AS country, id / 7 AS price"
_SUMS = ("count(*)", "sum(id)", "sum(length(country))", "round(sum(price), 3)")
_AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "country", "type": "string"},
            {"name": "price", "type": "double"},
        ],
    }
)

Way = Callable[[DataFrame], DataFrame]


class Case(NamedTuple):
    """A format: how values are made, and the two ways to read them."""

    name: str
    rows: int
    encode: Way
    ours: Way
    plain: Way


def _descriptors() -> bytes:
    """Describe the message, as protoc would."""
    found = descriptor_pb2.FileDescriptorSet()
    message = found.file.add(name="order.proto", package="shop", syntax="proto3").message_type.add(
        name="Order"
    )
    kinds = {"id": Field.TYPE_INT64, "country": Field.TYPE_STRING, "price": Field.TYPE_DOUBLE}
    for number, (name, kind) in enumerate(kinds.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=Field.LABEL_OPTIONAL)
    described: bytes = found.SerializeToString()
    return described


_DESCRIPTORS = _descriptors()


def _plain_json(frame: DataFrame) -> DataFrame:
    text = F.col("value").cast("string")
    return frame.select(F.from_json(text, _COLUMNS).alias("row")).select("row.*")


def _plain_avro(frame: DataFrame) -> DataFrame:
    import fastavro  # noqa: PLC0415 - the function travels to the workers with its own imports

    schema = fastavro.parse_schema(json.loads(_AVRO))

    def decode(value: bytes) -> Any:  # noqa: ANN401 - whatever the schema says
        return fastavro.schemaless_reader(io.BytesIO(value), schema, None)

    return _by_udf(frame, decode)


def _plain_protobuf(frame: DataFrame) -> DataFrame:
    classes: dict[str, Any] = {}

    def decode(value: bytes) -> tuple[int, str, float]:
        if not classes:
            pool = descriptor_pool.DescriptorPool()
            pool.Add(descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTORS).file[0])
            classes["order"] = message_factory.GetMessageClass(
                pool.FindMessageTypeByName("shop.Order")
            )
        message = classes["order"].FromString(value)
        return message.id, message.country, message.price

    return _by_udf(frame, decode)


def _by_udf(frame: DataFrame, decode: Callable[[bytes], Any]) -> DataFrame:
    decoded = F.udf(decode, _COLUMNS)(F.col("value"))
    return frame.select(decoded.alias("row")).select("row.*")


_CASES = (
    Case("json", 2_000_000, hf.to_json("id", "country", "price"), hf.json(_COLUMNS), _plain_json),
    Case("avro", 400_000, hf.to_avro(_AVRO), hf.avro(_AVRO), _plain_avro),
    Case(
        "protobuf",
        400_000,
        hf.to_protobuf(_DESCRIPTORS, "shop.Order"),
        hf.protobuf(_DESCRIPTORS, "shop.Order"),
        _plain_protobuf,
    ),
)


def main() -> int:
    """Measure, print the table, and the rows as JSON on the last line."""
    arguments = parser_of("benchmarks.formats", rounds=5).parse_args()
    began = time.monotonic()
    rows: list[Row] = []
    with scratch(arguments.directory) as folder:
        spark = session("bench-formats", master="local[2]", config={"spark.local.dir": str(folder)})
        try:
            for case in _CASES:
                if arguments.only in case.name:
                    count = max(1_000, int(case.rows * arguments.scale))
                    rows.append(_compare(spark, folder, case, count, arguments.rounds))
                    say(f"{case.name}: {rows[-1].ratio:.2f}x", began)
        finally:
            spark.stop()
    print_rows(rows)
    return 0


def _compare(spark: SparkSession, folder: Path, case: Case, count: int, rounds: int) -> Row:
    path = str(folder / case.name)
    numbers = spark.range(0, count, 1, 2)
    case.encode(spark.sql(f"{_ROWS} FROM {{numbers}}", numbers=numbers)).write.parquet(path)
    ways = {"ours": case.ours, "plain": case.plain}
    measured: dict[str, list[float]] = {name: [] for name in ways}
    # The first round is for the JVM, which compiles what runs often, and for Python's processes.
    for round_no in range(-1, rounds):
        sums = set()
        for name in sorted(ways, reverse=bool(round_no % 2)):
            began = time.monotonic()
            (found,) = ways[name](spark.read.parquet(path)).selectExpr(*_SUMS).collect()
            took_s = time.monotonic() - began
            sums.add(tuple(found))
            if round_no >= 0:
                measured[name].append(count / took_s)
        assert len(sums) == 1, f"{case.name}: the two ways have read different rows: {sums}"
    ours, plain = (statistics.median(measured[name]) for name in ("ours", "plain"))
    return Row(f"{case.name}: rows/s", ours, plain, "rows/s", None)


if __name__ == "__main__":
    sys.exit(main())
