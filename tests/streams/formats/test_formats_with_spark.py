"""Formats on real DataFrames: which rows come through, and where the others go."""

import datetime as dt
import itertools
import json
import random
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from headwater import functions as hf
from headwater.cli import main
from headwater.streams.formats.avro_form import AvroForm
from headwater.streams.formats.dead_letters import dead_letter_topics
from headwater.streams.formats.errors import FormatError
from headwater.streams.formats.letters import Header, maybe_origin
from headwater.streams.formats.protobuf_form import ProtobufForm
from tests.streams.brokers import Broker
from tests.streams.formats.test_protobuf_form import FILES

SOURCE = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key: string, value: binary>>"
)
NOON = dt.datetime(2026, 11, 15, 12, 0, tzinfo=dt.UTC)
ORDER = "id bigint not null, qty int, at timestamp, price double"
_numbers = itertools.count(1)


def record(value: bytes | None, offset: int, *headers: tuple[str, bytes]) -> tuple[Any, ...]:
    """Make a row as the source gives it."""
    return (b"k", value, "orders", 3, offset, NOON, 0, list(headers) or None)


def source(spark: SparkSession, *values: bytes | None) -> DataFrame:
    rows = [record(value, offset) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, SOURCE)


# What Spark by itself would take for an object, in part or in whole, stands among them.
REFUSED = {
    b"": "NOT_JSON",
    b"  ": "NOT_JSON",
    b'{"id": 1} and more': "NOT_JSON",
    b'{"id": 1}{"id": 2}': "NOT_JSON",
    b'{"id": 1},{"id": 2}': "NOT_JSON",
    b'{"id": 1}] and more': "NOT_JSON",
    b'{"id": 1}]["x"': "NOT_JSON",
    b'{"id": 1, "more": {}} {"id": 2}': "NOT_JSON",
    b'{"id": 1}}': "NOT_JSON",
    b'{"id": 1,}': "NOT_JSON",
    b"{} {}": "NOT_JSON",
    b"{}]": "NOT_JSON",
    "{}\u2028".encode(): "NOT_JSON",
    "{}\n\u0085".encode(): "NOT_JSON",
    b'{"id": 1, "__hw_end": true} and more}': "NOT_JSON",
    b'{"id": 1': "NOT_JSON",
    b"{'id': 1}": "WRONG_TYPE",  # as a dead letter: NOT_JSON, by Python's more precise word
    b'{"id": NaN}': "NOT_JSON",
    b"\xff": "NOT_UTF8",
    b'{"id": 1, "note": "\xff"}': "NOT_UTF8",
    b"null": "WRONG_TYPE",
    b"[]": "WRONG_TYPE",
    b'[{"id": 1}]': "WRONG_TYPE",
    b"5": "WRONG_TYPE",
    b'{"id": "x"}': "WRONG_TYPE",
    b'{"id": 1, "price": {"amount": 2}}': "WRONG_TYPE",
    b'{"id": 1, "qty": 99999999999}': "WRONG_TYPE",
    b'{"id": 1, "at": "noon"}': "WRONG_TYPE",
    b'{"qty": 1}': "MISSING_FIELD",
    b'{"id": null}': "MISSING_FIELD",
    b" { } ": "MISSING_FIELD",
    # Spark reads this; what Python reads to tell about it has its limit.
    b'{"more": ' + b"[" * 995 + b"]" * 995 + b"}": "MISSING_FIELD",
}
TAKEN = {
    b'{"id": 1}': (1, None, None),
    b' {"id": 2, "qty": 3, "more": [1]} ': (2, 3, None),
    b'{"id": 4, "at": "2026-11-15T12:00:00Z"}': (4, None, NOON.replace(tzinfo=None)),
    b'{"id": 5, "more": {"deep": {}}}\r\n': (5, None, None),
    b'{"id": 6, "__hw_end": 5, "__hw_corrupt": 5}': (6, None, None),
    None: (None, None, None),
}
JSON_PIECES = [
    *('{"a":1}', '{"a":1,"b":"}"}', '{"a":{"b":[{}]}}', "{}", '"__hw_end":true', "null"),
    *'{}[]",:\\ab10é \t\r\n\x0b\0\x85\u2028\xa0',
]


def test_json_is_one_document_or_refused(spark: SparkSession) -> None:
    frame = source(spark, *REFUSED, *TAKEN)
    kept = frame.transform(hf.json(ORDER, mode="keep")).orderBy("offset").collect()
    assert [row._error for row in kept] == [*REFUSED.values(), *([None] * len(TAKEN))]
    good = kept[len(REFUSED) :]
    assert [(row.id, row.qty, row.at) for row in good] == list(TAKEN.values())
    assert kept[0].asDict().keys() == {
        *("key", "topic", "partition", "offset", "timestamp", "timestampType", "headers"),
        *("id", "qty", "at", "price", "_error"),
    }
    dropped = frame.transform(hf.json(ORDER, mode="drop"))
    assert dropped.count() == len(TAKEN)
    assert "_error" not in dropped.columns


@pytest.mark.parametrize("kind", ["binary", "string", "framed"])
def test_an_object_is_what_python_takes_for_one(spark: SparkSession, kind: str) -> None:
    dice = random.Random(5)
    # Two of three begin with an object, behind which something may follow.
    texts = {
        "".join([dice.choice(["", '{"a":1}', "{}"]), *dice.choices(JSON_PIECES, k=length)])
        for length in (dice.randint(0, 5) for _ in range(20_000))
    }
    values = [text.encode() for text in sorted(texts)]
    if kind == "framed":
        frame = source(spark, *(b"\0\0\0\0\7" + value for value in values))
    else:
        frame = source(spark, *values).withColumn("value", F.col("value").cast(kind))
    kept = frame.transform(hf.json("unknown int", framed=kind == "framed", mode="keep"))
    taken = {values[row.offset] for row in kept.where("_error is null").collect()}
    expected = {value for value in values if is_object(value)}
    assert taken == expected
    assert 20 < len(expected) < len(values) / 2


def is_object(value: bytes) -> bool:
    try:
        return isinstance(json.loads(value), dict)
    except ValueError:
        return False


@pytest.mark.parametrize("kind", ["binary", "string"])
def test_every_refused_record_becomes_a_letter(spark: SparkSession, kind: str) -> None:
    frame = source(spark, *REFUSED).withColumn("value", F.col("value").cast(kind))
    rows = frame.transform(hf.json(ORDER, dead_letters="dlq")).transform(hf.to_json("id"))
    letters = hf.with_dead_letters(rows, topic="out").collect()
    assert {row.topic for row in letters} == {"dlq"}
    # A text that is no UTF-8 is no text; Spark writes something else in its place.
    expected = [value for value, why in REFUSED.items() if kind == "binary" or why != "NOT_UTF8"]
    assert {bytes(row.value) for row in letters} >= set(expected)
    assert len(letters) == len(REFUSED)


def test_json_behind_the_bytes_of_a_registry(spark: SparkSession) -> None:
    registry = SchemaRegistryClient.new_client({"url": "mock://headwater"})
    schema = '{"title": "order", "type": "object", "properties": {"id": {"type": "integer"}}}'
    serialize = JSONSerializer(schema, registry, lambda row, _: row)
    theirs = serialize({"id": 7}, SerializationContext("orders", MessageField.VALUE))
    refused = [b"\x00\x00\x00\x00", b'{"id": 1}', theirs[:5], theirs + b"}"]
    frame = source(spark, theirs, None, *refused)
    decode = hf.json("id bigint", framed=True, mode="keep")
    kept = frame.transform(decode).orderBy("offset").collect()
    kinds = ["NOT_FRAMED", "NOT_FRAMED", "NOT_JSON", "NOT_JSON"]
    assert [row._error for row in kept] == [None, None, *kinds]
    assert [row.id for row in kept[:2]] == [7, None]
    dead = hf.json("id bigint", framed=True, dead_letters="dlq")(frame)
    letters = hf.with_dead_letters(dead.transform(hf.to_json("id")), topic="out").where(
        "topic = 'dlq'"
    )
    told = [bytes(header.value) for row in letters.collect() for header in row.headers]
    assert sorted(each for each in told if each.startswith(b"NOT_")) == [
        b"NOT_FRAMED: 4 bytes are less than magic byte and schema id",
        b"NOT_FRAMED: begins with 0x7b, not with the magic byte 0x00",
        b"NOT_JSON: Expecting value at character 0: ''",
        b"NOT_JSON: Extra data at character 8: '{\"id\":7}}'",
    ]
    rows = spark.createDataFrame([(7,)], "id bigint")
    schema_id = int.from_bytes(theirs[1:5])
    (ours,) = rows.transform(hf.to_json("id", schema_id=schema_id)).collect()
    assert bytes(ours.value) == theirs


def test_a_query_fails_by_the_name_of_the_record(spark: SparkSession) -> None:
    frame = source(spark, b'{"id": 1}', b"nonsense").transform(hf.json(ORDER))
    with pytest.raises(PySparkException) as told:
        frame.collect()
    assert "orders-3 at offset 1 is not the JSON it should be: NOT_JSON" in str(told.value)
    assert "dead_letters=TOPIC" in str(told.value)


def test_what_cannot_be_meant_is_told_at_once(spark: SparkSession) -> None:
    frame = source(spark)
    with pytest.raises(FormatError, match="key") as told:
        frame.transform(hf.json("key string"))
    assert 'into="data"' in told.value.hint
    assert frame.transform(hf.json("key string", into="data")).schema["data"].simpleString() == (
        "data:struct<key:string>"
    )
    with pytest.raises(FormatError, match="no column 'nothing'"):
        frame.transform(hf.json(ORDER, column="nothing"))
    with pytest.raises(FormatError, match="'offset' is bigint, neither text nor binary"):
        frame.transform(hf.json(ORDER, column="offset"))
    with pytest.raises(FormatError, match="not a schema"):
        frame.transform(hf.json("id bigint,,"))
    with pytest.raises(FormatError, match="mode 'explode'"):
        frame.transform(hf.json(ORDER, mode="explode"))  # type: ignore[arg-type]
    with pytest.raises(FormatError, match="not both"):
        frame.transform(hf.json(ORDER, mode="drop", dead_letters="dlq"))
    with pytest.raises(FormatError, match="headers") as told:
        frame.drop("headers").transform(hf.json(ORDER, dead_letters="dlq"))
    assert "includeHeaders" in told.value.hint


def test_rows_become_records(spark: SparkSession) -> None:
    frame = source(spark, b'{"id": 1, "qty": 2}').transform(hf.json("id bigint, qty int"))
    (plain,) = frame.transform(hf.to_json()).collect()
    assert plain == Row(key=bytearray(b"k"), value=bytearray(b'{"id":1,"qty":2}'))
    chosen = frame.withColumn("qty", F.lit(None).cast("int")).transform(
        hf.to_json("qty", key="id", topic=F.lit("out"), headers="headers", timestamp="timestamp")
    )
    assert chosen.columns == ["key", "headers", "topic", "timestamp", "value"]
    (row,) = chosen.collect()
    assert (bytes(row.key), bytes(row.value), row.topic) == (b"1", b'{"qty":null}', "out")
    with pytest.raises(FormatError, match="no columns"):
        frame.transform(hf.to_json("nothing"))
    with pytest.raises(FormatError, match="nothing to write"):
        source(spark).transform(hf.to_json())


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    ],
}


def test_avro_there_and_back(spark: SparkSession) -> None:
    row = {"id": 7, "tags": [("a", 1)], "at": NOON}
    value = AvroForm(json.dumps(AVRO), schema_id=5).encoder()(row)
    frame = source(spark, value, b"\0\0\0\0\6x", b"x", None)
    kept = frame.transform(hf.avro(AVRO, schemas={5: AVRO}, mode="keep"))
    good, unknown, bare, tombstone = kept.orderBy("offset").collect()
    assert (good.id, good.tags, good.at) == (7, {"a": 1}, NOON.replace(tzinfo=None))
    assert unknown._error == "UNKNOWN_SCHEMA: schema id 6; known: 5"
    assert bare._error.startswith("NOT_FRAMED: ")
    assert (tombstone.id, tombstone._error) == (None, None)
    back = kept.limit(1).transform(hf.to_avro(AVRO, schema_id=5))
    assert back.collect() == [Row(key=bytearray(b"k"), value=bytearray(value))]


def test_protobuf_there_and_back(spark: SparkSession) -> None:
    value = ProtobufForm(FILES, "shop.Order").encoder()({"id": 7, "counts": [("a", 1)]})
    frame = source(spark, value, b"\x0a")
    kept = frame.transform(hf.protobuf(FILES, "shop.Order", into="order", mode="keep"))
    good, bad = kept.orderBy("offset").collect()
    assert (good.order.id, good.order.counts, good.order.note) == (7, {"a": 1}, None)
    assert bad._error.startswith("NOT_PROTOBUF: ")
    fields = kept.where("_error is null").select("key", "order.*")
    back = fields.transform(hf.to_protobuf(FILES, "shop.Order"))
    assert back.collect() == [Row(key=bytearray(b"k"), value=bytearray(value))]


class Stream:
    """A streaming DataFrame that is fed by the test, and a table that it ends in."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        (folder / "in").mkdir()
        self.frame = spark.readStream.schema(SOURCE).parquet(str(folder / "in"))

    def feed(self, *rows: tuple[Any, ...]) -> None:
        given = self._spark.createDataFrame(rows, SOURCE)
        given.coalesce(1).write.mode("append").parquet(str(self._folder / "in"))

    def run(self, frame: DataFrame) -> tuple[list[Row], dict[str, Any]]:
        """Run until all that was fed is done; give all rows so far and the last counts."""
        name = f"t{next(_numbers)}"
        query = (
            frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        )
        query.awaitTermination()
        progress = query.lastProgress
        assert progress is not None
        return self._spark.table(name).collect(), progress["observedMetrics"]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    """Give a stream that nothing has been fed to."""
    return Stream(spark, tmp_path)


def test_dead_letters_leave_beside_the_rows(stream: Stream) -> None:
    stream.feed(
        record(b'{"id": 1, "qty": 5}', 0),
        record(b'{"id": "x"}', 1, ("trace", b"t1")),
        record(b'{"id": 2, "qty": 1}', 2),
        record(b"nonsense", 3),
    )
    # A condition that is not true of rows without content: it must not reach dead letters.
    rows = (
        stream.frame.transform(hf.json(ORDER, dead_letters="orders.dlq"))
        .where("qty > 2")
        .transform(hf.to_json("id", "qty"))
    )
    assert dead_letter_topics(rows) == ["orders.dlq"]
    found, counts = stream.run(hf.with_dead_letters(rows, topic="big", pipeline="sizes"))
    big = [row for row in found if row.topic == "big"]
    assert [(row.key, row.value, row.headers) for row in big] == [(b"k", b'{"id":1,"qty":5}', None)]
    dead = sorted((row for row in found if row.topic == "orders.dlq"), key=lambda row: row.value)
    assert [(row.key, row.value) for row in dead] == [(b"k", b"nonsense"), (b"k", b'{"id": "x"}')]
    origins = [
        maybe_origin([(each.key, bytes(each.value)) for each in row.headers]) for row in dead
    ]
    assert [each and each[:6] for each in origins] == [
        (*("orders", 3, 3, 1_794_744_000_000), _told("NOT_JSON"), "sizes"),
        (*("orders", 3, 1, 1_794_744_000_000), _told("WRONG_TYPE"), "sizes"),
    ]
    assert dead[1].headers[0].asDict() == {"key": "trace", "value": b"t1"}
    (count,) = counts.values()
    assert count.asDict() == {"records": 4, "undecodable": 2}


class _told(str):  # noqa: N801, SLOT000, PLW1641 - reads as a word in an expectation
    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and other.startswith(f"{self}: ")


def test_two_decoders_of_one_query(stream: Stream) -> None:
    stream.feed(record(b'{"id": 1, "qty": 5}', 0), record(b"\0\0\0\0\1x", 1), record(b"", 2))
    by_json = stream.frame.transform(hf.json(ORDER, dead_letters="a.dlq"))
    by_avro = stream.frame.transform(hf.avro(AVRO, dead_letters="b.dlq"))
    rows = by_json.select("key", "id").unionByName(by_avro.select("key", "id"))
    out = rows.transform(hf.to_json(topic=F.lit("out")))
    assert dead_letter_topics(out) == ["a.dlq", "b.dlq"]
    found, counts = stream.run(hf.with_dead_letters(out))
    topics = [row.topic for row in found]
    assert {name: topics.count(name) for name in set(topics)} == {"out": 1, "a.dlq": 2, "b.dlq": 3}
    assert sorted(count.undecodable for count in counts.values()) == [2, 3]


def test_an_aggregate_never_counts_a_letter(stream: Stream) -> None:
    stream.feed(record(b'{"id": 1}', 0), record(b"x", 1), record(b'{"id": 2}', 2))
    later = NOON + dt.timedelta(hours=1)
    stream.feed((*record(b'{"id": 3}', 3)[:5], later, 0, None), record(b"y", 4))
    totals = (
        stream.frame.transform(hf.json(ORDER, dead_letters="d"))
        .withWatermark("timestamp", "1 minute")
        .groupBy(F.window("timestamp", "10 minutes"))
        .agg(F.sum("id").alias("total"), F.count("*").alias("count"))
        .transform(hf.to_json("total", "count"))
    )
    found, _ = stream.run(hf.with_dead_letters(totals, topic="out"))
    assert sorted((row.topic, bytes(row.value)) for row in found) == [
        ("d", b"x"),
        ("d", b"y"),
        ("out", b'{"total":3,"count":2}'),
    ]


def test_without_dead_letters_rows_stay_as_they_are(spark: SparkSession) -> None:
    rows = source(spark, b'{"id": 1}').transform(hf.json(ORDER)).transform(hf.to_json())
    assert hf.with_dead_letters(rows) is rows
    assert hf.with_dead_letters(rows, topic="t").columns == ["key", "value", "topic"]
    doubtful = source(spark).transform(hf.json(ORDER, dead_letters="d")).transform(hf.to_json())
    with pytest.raises(FormatError, match="need a topic"):
        hf.with_dead_letters(doubtful)


class Orders:
    """Orders in Avro, written with schemas of a folder, on their way to a topic as JSON."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self._spark = spark
        self._broker = broker
        self._checkpoint = folder / "checkpoint"
        self.source = broker.topic("orders", partitions=2)
        self.target = broker.topic("out", partitions=2)
        self.letters = broker.topic("letters", partitions=2)
        self.schemas = folder / "schemas"
        self.schemas.mkdir()

    def write(self, schema_id: int, *ids: int) -> None:
        """Write orders as somebody who has that schema."""
        encode = AvroForm(json.dumps(AVRO), schema_id=schema_id).encoder()
        values = [encode({"id": number, "tags": [], "at": None}) for number in ids]
        self._broker.send(self.source, [(b"k", value) for value in values])

    def run(self) -> None:
        """Process what is there, and end."""
        frame = (
            self._spark.readStream.format("headwater")
            .option("kafka.bootstrap.servers", self._broker.bootstrap)
            .option("subscribe", self.source)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .load()
        )
        rows = frame.transform(
            hf.avro(AVRO, schemas=self.schemas, dead_letters=self.letters)
        ).transform(hf.to_json("id"))
        query = (
            hf.with_dead_letters(rows, topic=self.target, pipeline="orders")
            .writeStream.format("headwater")
            .option("kafka.bootstrap.servers", self._broker.bootstrap)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def forget_the_last_batch(self) -> None:
        """Make Spark do it again, as after a crash between the sink's commit and Spark's."""
        commits = self._checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    def ids(self) -> list[int]:
        return sorted(json.loads(value or b"")["id"] for value in self._broker.values(self.target))

    def reasons(self) -> list[str]:
        """Return the kinds of all letters, with where each was."""
        found = []
        for message in self._broker.read(self.letters):
            headers = cast("list[Header]", message.headers())
            origin = maybe_origin(headers)
            assert origin is not None
            assert origin.topic == self.source
            found.append(origin.error.partition(":")[0])
        return sorted(found)


def test_letters_are_written_once_and_come_back_when_the_schema_is_known(
    spark: SparkSession,
    broker: Broker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    orders = Orders(spark, broker, tmp_path)
    (orders.schemas / "1.avsc").write_text(json.dumps(AVRO))
    orders.write(1, 10, 11)
    orders.write(2, 20, 21, 22)
    broker.send(orders.source, [(b"k", b"nonsense")])
    orders.run()
    unknown = ["UNKNOWN_SCHEMA"] * 3
    assert orders.ids() == [10, 11]
    assert orders.reasons() == ["NOT_FRAMED", *unknown]
    orders.forget_the_last_batch()
    orders.write(1, 12)
    orders.run()
    assert orders.ids() == [10, 11, 12]
    assert orders.reasons() == ["NOT_FRAMED", *unknown]
    (orders.schemas / "2.avsc").write_text(json.dumps(AVRO))
    address = ["--bootstrap", broker.bootstrap, "--json"]
    capsys.readouterr()
    assert main(["dlq", "redrive", orders.letters, "--reason", "UNKNOWN_SCHEMA", *address]) == 0
    assert json.loads(capsys.readouterr().out)["redriven"] == 3
    orders.run()
    assert orders.ids() == [10, 11, 12, 20, 21, 22]
    assert main(["dlq", "ls", orders.letters, *address]) == 0
    (counted,) = json.loads(capsys.readouterr().out)
    assert (counted["letters"], counted["waiting"]) == (4, 1)
