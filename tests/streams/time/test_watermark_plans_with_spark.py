"""What is refused before anything runs, and how rows keep their clock. Nothing is read here."""

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField

from headwater import functions as hf
from headwater.base.errors import HeadwaterError
from headwater.streams.formats import json
from headwater.streams.time import clocks
from headwater.streams.time.clocks import (
    CLOCK,
    HIDDEN,
    HOLD,
    Clock,
    clock_frame,
    clock_of,
    merged,
    reattach,
    reporter_of,
)
from headwater.streams.time.errors import DurationError, WatermarkError, WatermarkMissingError
from headwater.streams.time.watermark import clamp, watermark

HERE = "localhost:1"


def source(spark: SparkSession, topic: str = "orders", at: str = HERE, **options: str) -> DataFrame:
    chosen = {} if {"subscribePattern", "assign"} & options.keys() else {"subscribe": topic}
    return (
        spark.readStream.format("headwater")
        .options(**{"kafka.bootstrap.servers": at, **chosen, **options})
        .load()
        .withColumn("at", F.col("timestamp"))
    )


def hidden_fields(rows: DataFrame) -> list[str]:
    return rows.select(f"{HIDDEN}.*").columns


def test_rows_keep_their_clock_through_what_people_do_with_rows(spark: SparkSession) -> None:
    rows = source(spark).transform(watermark("at", "10 seconds"))
    clock = clock_of(rows)
    assert rows.schema["at"].metadata == rows.schema[HIDDEN].metadata == clock.metadata()
    assert hidden_fields(rows) == ["partition", "offset", "time", "fault", "claimed"]
    for same in (
        rows.select("value", HIDDEN),
        rows.filter("partition = 0").withColumn("twice", F.expr("offset * 2")),
        rows.drop("topic", "partition", "offset", "at"),
        rows.withColumnRenamed("value", "worth").dropna(),
        rows.union(rows),
        rows.join(spark.range(3), F.col("offset") == F.col("id")),
        rows.alias("r").select("r.*"),
    ):
        assert clock_of(same) == clock


def test_the_same_rows_have_the_same_clock_and_others_another(spark: SparkSession) -> None:
    rows = source(spark, "same")
    ten = watermark("at", "10 seconds")
    clock = clock_of(rows.transform(ten))
    assert clock_of(rows.transform(ten)) == clock
    assert clock_of(source(spark, "same").transform(ten)) == clock
    other_delay = clock_of(rows.transform(watermark("at", "20 seconds")))
    other_topic = clock_of(source(spark, "another").transform(ten))
    other_meaning = clock_of(rows.withColumn("at", F.expr("at - interval 1 hour")).transform(ten))
    assert len({clock, other_delay, other_topic, other_meaning}) == 4
    name, delayed, _, meaning = (
        reporter_of(each).name for each in (clock, other_delay, other_topic, other_meaning)
    )
    assert name.startswith("at/mark 3600000000/p")
    assert name == delayed, "a query may be started again with another delay"
    assert name != meaning, "both see the topic, and must not be taken for one"


def test_the_name_of_reports_does_not_depend_on_what_the_process_did_before(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a cell of a notebook is changed, run again, and the kernel is started anew."""

    def name_of(rows: DataFrame) -> str:
        return reporter_of(clock_of(rows.transform(watermark("at", "10 seconds")))).name

    name_of(source(spark, "cell").filter("partition = 1"))
    changed = name_of(source(spark, "cell").filter("partition = 0"))
    monkeypatch.setattr(clocks, "_kept", {})
    assert name_of(source(spark, "cell").filter("partition = 0")) == changed


def test_the_name_of_reports_does_not_depend_on_what_a_process_draws_or_counts(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark of `hf.json` is another one in each process; variables of lambdas are counted."""

    def name_of(more: int = 1) -> str:
        rows = source(spark, "drawn").drop("at").transform(hf.json("at timestamp, n array<int>"))
        added = rows.withColumn("n", F.transform("n", lambda n: n + more))
        nested = added.withColumn(
            "m", F.transform("n", lambda n: F.transform("n", lambda m: n - m)[0])
        )
        return reporter_of(clock_of(nested.transform(watermark("at", "10 seconds")))).name

    before = name_of()
    assert json._END.encode() in json._END_MARK
    drawn = f"{json.END_PREFIX}{'0a' * (json.END_DIGITS // 2)}"
    mark = json._END_MARK.replace(json._END.encode(), drawn.encode())
    monkeypatch.setattr(json, "_END_MARK", mark)
    fields = [json._OWN_FIELDS[0], StructField(drawn, BooleanType())]
    monkeypatch.setattr(json, "_OWN_FIELDS", fields)
    monkeypatch.setattr(json, "_END", drawn)
    monkeypatch.setattr(clocks, "_kept", {})
    assert name_of() == before
    assert name_of(2) != before


def test_however_many_columns_there_are_clocks_are_told_apart(spark: SparkSession) -> None:
    ten = watermark("at", "10 seconds")
    more = {f"c{number:03}": F.lit(number) for number in range(60)}
    one, two = (
        source(spark, "wide")
        .drop("at")
        .withColumns({**more, "at": F.expr(f"timestamp - interval {hours} hours")})
        for hours in (1, 2)
    )
    assert clock_of(one.transform(ten)) != clock_of(two.transform(ten))


def test_who_reports_knows_the_topic_if_there_is_one(spark: SparkSession) -> None:
    ten = watermark("at", "10 seconds")
    assert reporter_of(clock_of(source(spark, "one").transform(ten))).topic == "one"
    for options in ({"subscribePattern": "o.*"}, {"assign": '{"a": [0], "b": [1]}'}):
        rows = source(spark, **options).transform(ten)
        assert reporter_of(clock_of(rows)).topic is None
        assert hidden_fields(rows)[0] == "topic"
    both = source(spark, "one").union(source(spark, "two")).transform(ten)
    assert reporter_of(clock_of(both)).topic is None


def test_an_operator_gives_its_rows_the_clock_of_its_inputs(spark: SparkSession) -> None:
    ten = watermark("at", "10 seconds")
    one, two = source(spark, "one").transform(ten), source(spark, "two").transform(ten)
    given = reattach(one.select(HIDDEN), clock_of(one), 5)
    (first,), (second,) = clock_of(one).names, clock_of(two).names
    assert given.schema[HIDDEN].metadata == {CLOCK: first, HOLD: "5"}
    assert clock_of(reattach(given, clock_of(given), 7)) == Clock((first,), (12,))
    joined = merged([clock_of(given), clock_of(two), clock_of(one)])
    assert joined == Clock((first, second), (5, 0))
    assert clock_of(reattach(given, joined, 7)) == Clock((first, second), (12, 7))
    frame = clock_frame(joined, [1, 2, 3])
    assert frame.isStreaming
    assert frame.dtypes == [
        ("bucket", "int"),
        ("clock", "string"),
        ("watermark", "bigint"),
        ("idle", "boolean"),
        ("hold", "bigint"),
    ]
    with pytest.raises(WatermarkError, match="several clocks"):
        reporter_of(joined)


def test_clocks_are_in_the_order_of_the_inputs_whatever_their_numbers_are(
    spark: SparkSession,
) -> None:
    """By this order Spark finds what a checkpoint has of each."""
    ten = watermark("at", "10 seconds")
    made = [clock_of(source(spark, f"number{each}").transform(ten)) for each in range(11)]
    for one, two in ((made[0], made[1]), (made[1], made[0]), (made[-3], made[-1])):
        assert merged([one, two, one]).names == (*one.names, *two.names)


def test_passwords_are_in_no_plan_and_no_schema(spark: SparkSession) -> None:
    secret = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "ada",
        "kafka.sasl.password": "engine",
    }
    rows = source(spark, **secret).transform(watermark("at", "10 seconds"))
    clock = clock_of(rows)
    assert reporter_of(clock).client.security["sasl.password"] == "engine"
    for frame in (rows, clock_frame(clock, [1])):
        assert "engine" not in frame._jdf.queryExecution().toString()
        assert "engine" not in frame.schema.json()


Make = Callable[[SparkSession], DataFrame]
REFUSED: dict[str, tuple[Make, dict[str, Any], str, str]] = {
    "no such column": (source, {"column": "att"}, "no column 'att'", "at"),
    "no timestamp": (
        lambda spark: source(spark).withColumn("at", F.col("value").cast("string")),
        {},
        "type string, not timestamp",
        "to_timestamp",
    ),
    "no zone": (
        lambda spark: source(spark).withColumn("at", F.col("at").cast("timestamp_ntz")),
        {},
        "type timestamp_ntz",
        "cast",
    ),
    "dropped": (
        lambda spark: source(spark).select("value", "at", "timestamp"),
        {},
        "dropped: topic, partition, offset",
        "before select",
    ),
    "no stamp": (
        lambda spark: source(spark).drop("timestamp"),
        {},
        "dropped: timestamp",
        "future=None",
    ),
    "a batch": (
        lambda spark: spark.range(3).withColumn("at", F.current_timestamp()),
        {},
        "do not stream",
        "readStream",
    ),
    "no topic": (
        lambda spark: spark.readStream.format("rate").load().withColumnRenamed("timestamp", "at"),
        {},
        "'rate",
        "headwater",
    ),
    "two clusters": (
        lambda spark: source(spark).union(source(spark, at="elsewhere:1")),
        {},
        "two clusters: elsewhere:1 and localhost:1",
        "join",
    ),
    "twice": (
        lambda spark: source(spark).transform(watermark("at", "1 second")),
        {},
        "already",
        "second",
    ),
    "an end that nobody sees": (
        lambda spark: source(spark, maxOffsetsPerTrigger="9"),
        {"at_end": "close"},
        "read in parts",
        "maxOffsetsPerTrigger",
    ),
    "no such end": (source, {"at_end": "shut"}, "at_end is 'shut'", "close"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_when_it_is_planned(spark: SparkSession, case: str) -> None:
    make, arguments, said, hint = REFUSED[case]
    with pytest.raises(WatermarkError, match=said) as caught:
        make(spark).transform(watermark(**{"column": "at", "delay": "10 seconds", **arguments}))
    assert hint in caught.value.hint


def test_files_have_no_offsets(spark: SparkSession, tmp_path: Any) -> None:  # noqa: ANN401
    rows = spark.readStream.schema("at timestamp").format("json").load(str(tmp_path))
    with pytest.raises(WatermarkError, match="no partitions and offsets"):
        rows.transform(watermark("at", "10 seconds"))


def test_what_the_client_cannot_do_is_refused_when_it_is_planned(spark: SparkSession) -> None:
    rows = source(spark, **{"kafka.security.protocol": "CARRIER_PIGEON"})
    with pytest.raises(HeadwaterError, match="CARRIER_PIGEON"):
        rows.transform(watermark("at", "10 seconds"))


@pytest.mark.parametrize("argument", ["delay", "idle", "future"])
def test_a_length_of_time_that_cannot_be_read_is_refused_at_once(argument: str) -> None:
    arguments: dict[str, Any] = {"column": "at", "delay": "1 second", argument: "soon"}
    with pytest.raises(DurationError, match=f"{argument} = 'soon'"):
        watermark(**arguments)


def test_lengths_of_time_may_be_those_of_python(spark: SparkSession) -> None:
    length = dt.timedelta(seconds=10)
    rows = source(spark, "delta")
    one = rows.transform(watermark("at", length, length, clamp(length)))
    two = rows.transform(watermark("at", "10 s", "10000 ms", clamp("10 seconds")))
    assert clock_of(one) == clock_of(two)


def test_rows_that_never_had_a_watermark(spark: SparkSession) -> None:
    with pytest.raises(WatermarkMissingError, match="no watermark") as caught:
        clock_of(source(spark))
    assert "hf.watermark" in caught.value.hint


def test_rows_that_have_lost_it(spark: SparkSession) -> None:
    rows = source(spark).transform(watermark("at", "10 seconds"))
    with pytest.raises(WatermarkMissingError, match="left out __hw"):
        clock_of(rows.select("value"))
    made_anew = rows.select(HIDDEN).mapInArrow(lambda batches: batches, _plain(rows))
    with pytest.raises(WatermarkMissingError, match="does not say any more"):
        clock_of(made_anew)


def _plain(rows: DataFrame) -> str:
    kind = rows.schema[HIDDEN].dataType.simpleString()
    return f"{HIDDEN} {kind}"


def test_rows_that_were_put_together_behind_their_watermarks(spark: SparkSession) -> None:
    ten = watermark("at", "10 seconds")
    rows = source(spark, "one").transform(ten).union(source(spark, "two").transform(ten))
    with pytest.raises(WatermarkMissingError, match="put together") as caught:
        clock_of(rows)
    assert "behind union" in caught.value.hint


def test_one_topic_under_two_watermarks(spark: SparkSession) -> None:
    short, long = (watermark("at", delay) for delay in ("5 seconds", "1000 seconds"))
    rows = source(spark).transform(short).union(source(spark).transform(long))
    with pytest.raises(WatermarkMissingError, match="put together"):
        clock_of(rows.withColumn("more", F.lit(1)))
    same = source(spark).transform(short)
    assert clock_of(same.union(same.where("value IS NOT NULL"))) == clock_of(same)


def test_what_operators_gave_and_was_put_together(spark: SparkSession) -> None:
    """A table without a watermark may be among an operator's inputs; a second clock may not."""
    ten = watermark("at", "10 seconds")
    given = []
    for topic in ("one", "two"):
        rows = source(spark, topic).transform(ten)
        clock = clock_of(rows)
        hidden = F.struct(*(F.lit(1).alias(name) for name in ("partition", "offset", "time")))
        told = clock_frame(clock, [1]).select(hidden.alias(HIDDEN))
        table = source(spark, "table").select(hidden.alias(HIDDEN))
        given.append(reattach(told.union(table), clock, 0))
        assert clock_of(given[-1]) == clock
    with pytest.raises(WatermarkMissingError, match="put together"):
        clock_of(given[0].union(given[1]))


def test_a_role_that_does_not_exist(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="role is one of: time"):
        spark.readStream.format("headwater").option("role", "space").load()
