"""What joins and tables look like before a query starts, and what is refused by then."""

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headwater as hw
from headwater import functions as hf
from headwater.base.errors import HeadwaterError
from headwater.streams.joins import plan, table_changes
from headwater.streams.joins.errors import (
    JoinColumnError,
    JoinOptionError,
    TableError,
)
from headwater.streams.joins.interval import IntervalJoin
from headwater.streams.joins.latest import LatestJoin
from headwater.streams.joins.sides import sides, signed_us
from headwater.streams.kernel.changes import primary_key
from headwater.streams.kernel.errors import BucketCountError, KeyTypeError, RetractionError
from headwater.streams.kernel.plan import apply
from headwater.streams.time.clocks import CLOCK, HIDDEN, HOLD
from headwater.streams.time.durations import Duration
from headwater.streams.time.errors import DurationError, WatermarkMissingError
from headwater.streams.windows.errors import WindowSettingError

SECOND = 1_000_000


def source(spark: SparkSession, topic: str, schema: str) -> DataFrame:
    return (
        spark.readStream.format("headwater")
        .option("subscribe", topic)
        .load()
        .transform(hf.json(schema))
    )


@pytest.fixture(scope="module")
def orders(spark: SparkSession) -> DataFrame:
    """Orders with a watermark."""
    rows = source(spark, "orders", "product long, id long, at timestamp")
    return rows.transform(hf.watermark("at", "10 seconds"))


@pytest.fixture(scope="module")
def clicks(spark: SparkSession) -> DataFrame:
    """Clicks with another."""
    rows = source(spark, "clicks", "product long, user string, clicked timestamp")
    return rows.transform(hf.watermark("clicked", "10 seconds"))


@pytest.fixture(scope="module")
def prices(spark: SparkSession) -> DataFrame:
    """Prices with the times at which they hold."""
    return hw.table(
        spark,
        "prices",
        schema="product long, price double, since timestamp",
        key="product",
        valid_from="since",
    )


@pytest.fixture(scope="module")
def posts(spark: SparkSession) -> DataFrame:
    """A table without times."""
    return hw.table(spark, "posts", schema="post long, author string", key="post")


def clock_in(frame: DataFrame, column: str) -> object:
    return frame.schema[column].metadata.get(CLOCK)


# --- columns --------------------------------------------------------------------------------------


def test_both_times_of_an_interval_join_can_be_windowed_by(
    orders: DataFrame, clicks: DataFrame
) -> None:
    joined = orders.transform(
        hf.join_interval(clicks, on="product", lower="-5 minutes", upper="2 minutes")
    )
    # The columns of the sources are left behind.
    assert joined.columns == ["product", "id", "at", "user", "clicked", "op", "version", HIDDEN]
    hidden = joined.schema[HIDDEN].metadata
    assert clock_in(joined, "at") == clock_in(joined, "clicked") == hidden[CLOCK]
    assert len(hidden[CLOCK].split(",")) == 2
    # A row of a pair may be older than the other by as much as this.
    assert hidden[HOLD] == f"{300 * SECOND},{300 * SECOND}"
    counted = joined.transform(hf.window("clicked", "1 minute", n=hf.count()))
    assert counted.schema[HIDDEN].metadata[HOLD] == hidden[HOLD]


@pytest.mark.parametrize(
    "lower, upper, how, hold_s",
    [
        ("0 seconds", "2 minutes", "full", 120),
        ("1 minute", "2 minutes", "inner", 120),
        ("-2 minutes", "-1 minute", "right", 120),
        (dt.timedelta(seconds=-30), dt.timedelta(seconds=10), "left", 30),
    ],
)
def test_how_far_behind_the_watermark_a_joined_row_may_be(
    orders: DataFrame, clicks: DataFrame, lower: Duration, upper: Duration, how: str, hold_s: int
) -> None:
    joined = orders.transform(
        hf.join_interval(clicks, on="product", lower=lower, upper=upper, how=how)
    )
    assert joined.schema[HIDDEN].metadata[HOLD] == f"{hold_s * SECOND},{hold_s * SECOND}"


def test_as_of_and_latest_keep_the_time_of_the_events(
    orders: DataFrame, prices: DataFrame, posts: DataFrame
) -> None:
    late = hf.correct(until="1 hour")
    priced = orders.transform(hf.join_asof(prices, on="product", time="at", late=late))
    assert priced.columns == ["product", "id", "at", "price", "since", "op", "version", HIDDEN]
    assert clock_in(priced, "at") == clock_in(priced, HIDDEN)
    assert clock_in(priced, "since") is None
    assert priced.schema[HIDDEN].metadata[HOLD] == f"{3600 * SECOND},{3600 * SECOND}"

    latest = orders.transform(hf.join_latest(posts, on={"id": "post"}))
    assert latest.columns == ["id", "product", "at", "author", "op", "version", HIDDEN]
    # A table that nobody asks for its time holds nobody back.
    assert clock_in(latest, "at") == clock_in(latest, HIDDEN) == clock_in(orders, HIDDEN)
    timed = orders.transform(hf.join_latest(prices, on="product"))
    assert clock_in(timed, HIDDEN) == clock_in(orders, HIDDEN)
    assert timed.transform(hf.window("at", "1 minute", n=hf.count())).columns[0] == "window"


def test_a_join_with_what_is_latest_knows_changes_from_upserts(
    orders: DataFrame, prices: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []

    class Noted(LatestJoin):
        def __init__(self, *values: pa.Schema, kind: str, changes: bool = False) -> None:
            told.append(changes)
            super().__init__(*values, kind=kind, changes=changes)

    monkeypatch.setattr(plan, "LatestJoin", Noted)
    counts = orders.transform(hf.aggregate(by=["product"], n=hf.count()))
    # Of windows that take nothing back, each row replaces the one before it.
    finals = orders.transform(hf.window("at", "1 minute", by=["product"], n=hf.count()))
    for table in (prices, counts, finals):
        orders.transform(hf.join_latest(table, on="product"))

    assert told == [False, True, False]


def test_a_state_remembers_what_its_columns_are_called(
    spark: SparkSession,
    orders: DataFrame,
    clicks: DataFrame,
    prices: DataFrame,
    posts: DataFrame,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = []

    def noted(*given: Any, names: Sequence[str] = (), **more: Any) -> DataFrame:  # noqa: ANN401 - passed on
        told.append(list(names))
        return apply(*given, names=names, **more)

    for module in (plan, table_changes):
        monkeypatch.setattr(module, "apply", noted)
    follows = hw.table(
        spark, "follows", schema="follower long, followee string", key=["follower", "followee"]
    )
    for joined in (
        hf.join_interval(clicks, on="product", lower="0 s", upper="1 s"),
        hf.join_latest(prices, on="product"),
        hf.join_asof(prices, on="product", time="at"),
    ):
        orders.transform(joined)
    posts.transform(hf.join_tables(follows, on={"author": "followee"}))

    assert told == [
        ["id", "at", "user", "clicked"],
        ["id", "at", "price", "since"],
        ["id", "at", "price", "since"],
        ["author"],
        [],
        ["post", "follower"],
    ]


def test_a_stream_can_be_joined_with_itself(orders: DataFrame) -> None:
    others = orders.withColumnsRenamed({"id": "other", "at": "other_at"})
    pairs = orders.transform(
        hf.join_interval(others, on="product", lower="-1 minute", upper="1 minute")
    )
    assert pairs.columns[:5] == ["product", "id", "at", "other", "other_at"]
    assert clock_in(pairs, HIDDEN) == clock_in(orders, HIDDEN)


def test_tables_note_their_key_and_so_do_their_joins(spark: SparkSession, posts: DataFrame) -> None:
    follows = hw.table(
        spark, "follows", schema="follower long, followee string", key=["follower", "followee"]
    )
    assert primary_key(follows) == ("follower", "followee")
    assert primary_key(follows.withColumnRenamed("followee", "whom")) == ("follower", "whom")
    assert primary_key(follows.drop("follower")) is None
    timeline = posts.transform(hf.join_tables(follows, on={"author": "followee"}, how="full"))
    assert timeline.columns == ["author", "post", "follower", "op", "version", HIDDEN]
    assert primary_key(timeline) == ("post", "follower", "author")
    # What comes out are changes, which can be joined again.
    likes = hw.table(spark, "likes", schema="post long, fan string", key=["post", "fan"])
    again = timeline.transform(hf.join_tables(likes, on="post"))
    assert primary_key(again) == ("post", "follower", "author", "fan")


def test_columns_of_the_source_that_were_made_something_else_are_kept(
    spark: SparkSession, posts: DataFrame
) -> None:
    rows = spark.readStream.format("headwater").option("subscribe", "events").load()
    rows = rows.withColumn("value", F.col("value").cast("string")).withColumn(
        "post", F.lit(1).cast("long")
    )
    joined = rows.transform(hf.join_latest(posts, on="post"))
    assert joined.columns[:3] == ["post", "value", "author"]


# --- what is refused ------------------------------------------------------------------------------

Frames = dict[str, DataFrame]


@pytest.fixture(scope="module")
def frames(
    spark: SparkSession, orders: DataFrame, clicks: DataFrame, prices: DataFrame, posts: DataFrame
) -> Frames:
    return {
        "orders": orders,
        "clicks": clicks,
        "prices": prices,
        "posts": posts,
        "plain": source(spark, "plain", "product long, x int"),
    }


def interval(frames: Frames, **changed: Any) -> DataFrame:  # noqa: ANN401 - as asked
    said = {"on": "product", "lower": "0 seconds", "upper": "1 minute", **changed}
    left, right = (
        frames[said.pop(side, name)] for side, name in (("left", "orders"), ("right", "clicks"))
    )
    return left.transform(hf.join_interval(right, **said))


def as_of(
    frames: Frames,
    right: DataFrame | None = None,
    **changed: Any,  # noqa: ANN401 - as asked
) -> DataFrame:
    said = {"on": "product", "time": "at", **changed}
    return frames["orders"].transform(
        hf.join_asof(frames["prices"] if right is None else right, **said)
    )


def corrected(frames: Frames) -> DataFrame:
    """Orders with prices that late ones correct."""
    return as_of(frames, late=hf.correct("1 hour")).drop("price", "since")


@pytest.mark.parametrize(
    "ask, error, words",
    [
        (lambda f: interval(f, on="produkt"), JoinColumnError, "did you mean product"),
        (lambda f: interval(f, on=[]), JoinColumnError, "names no columns"),
        (lambda f: interval(f, on=["id", "id"]), JoinColumnError, "twice: id"),
        (lambda f: interval(f, on={"product": "user"}), JoinColumnError, "bigint .* string"),
        (lambda f: interval(f, how="cross"), JoinOptionError, "cannot be 'cross'"),
        (lambda f: as_of(f, how="outer"), JoinOptionError, "cannot be 'full'"),
        (lambda f: interval(f, where="q = c"), JoinOptionError, "no function"),
        (lambda f: interval(f, late="drop"), WindowSettingError, "late = 'drop'"),
        (lambda f: as_of(f, late=hf.drop), WindowSettingError, "late = <function drop"),
        (lambda f: interval(f, buckets=0), BucketCountError, "0 buckets"),
        (lambda f: as_of(f, buckets=-1), BucketCountError, "-1 buckets"),
        (
            lambda f: interval({**f, "orders": corrected(f)}),
            RetractionError,
            "the left side of this join is given rows that are taken back",
        ),
        (
            lambda f: as_of({**f, "orders": corrected(f)}),
            RetractionError,
            "left side of this join is given rows that are taken back",
        ),
        (
            lambda f: corrected(f).transform(hf.join_latest(f["prices"], on="product")),
            RetractionError,
            "left side of this join is given",
        ),
        (
            lambda f: interval({**f, "clicks": corrected(f).drop("id", "at")}),
            RetractionError,
            "the right side of this join",
        ),
        (lambda f: interval(f, upper="-1 minute"), JoinOptionError, "nothing in it"),
        (lambda f: interval(f, lower="soon"), DurationError, "soon"),
        (lambda f: interval(f, right="plain"), WatermarkMissingError, "no watermark"),
        (lambda f: interval(f, right="orders"), JoinColumnError, "both sides .* id, at"),
        (lambda f: interval(f, right="prices"), JoinColumnError, "is a table"),
        (lambda f: as_of(f, how="full"), JoinOptionError, "full"),
        (lambda f: as_of(f, time="id"), WindowSettingError, "not what"),
        (lambda f: interval(f, late=hf.correct("1 hour")), JoinOptionError, "nothing to correct"),
        (lambda f: as_of(f, f["posts"], on={"id": "post"}), JoinOptionError, "from when on"),
        (lambda f: as_of(f, f["prices"].drop("op")), JoinColumnError, "'op' was dropped"),
        (
            lambda f: as_of(f, f["prices"].withColumn("product", F.col("product") + 1)),
            JoinColumnError,
            "made anew",
        ),
        (
            lambda f: as_of(f, f["plain"].transform(hf.aggregate(by=["product"], n=hf.count()))),
            RetractionError,
            "takes rows back",
        ),
        (
            lambda f: f["clicks"].transform(hf.join_latest(f["posts"], on={"user": "author"})),
            JoinColumnError,
            "primary key is post, but it is joined by author",
        ),
        (
            lambda f: f["posts"].transform(hf.join_latest(f["prices"], on={"post": "product"})),
            JoinColumnError,
            "the left side is a table",
        ),
        (
            lambda f: (
                f["orders"]
                .withColumnRenamed("id", "op")
                .transform(hf.join_latest(f["prices"], on="product"))
            ),
            JoinColumnError,
            "'op'",
        ),
        (
            lambda f: f["plain"].transform(hf.join_tables(f["posts"], on={"product": "post"})),
            JoinColumnError,
            "tell the rows of the left side apart",
        ),
        (
            lambda f: f["plain"].transform(
                hf.join_tables(f["posts"], on={"product": "post"}, key="y")
            ),
            JoinColumnError,
            "no column 'y'",
        ),
        (
            lambda f: f["plain"].transform(
                hf.join_tables(f["posts"], on={"product": "post"}, key="offset")
            ),
            JoinColumnError,
            "column of the source itself",
        ),
        (
            lambda f: (
                f["plain"]
                .withColumn("x", F.array("x"))
                .transform(hf.join_tables(f["posts"], on={"product": "post"}, key="x"))
            ),
            KeyTypeError,
            "column x",
        ),
    ],
)
def test_what_cannot_be_joined_is_refused_before_a_query_starts(
    frames: Frames,
    ask: Callable[[Frames], DataFrame],
    error: type[HeadwaterError],
    words: str,
) -> None:
    with pytest.raises(error, match=words) as caught:
        ask(frames)
    assert caught.value.hint


def counted(frames: Frames) -> DataFrame:
    """How often each product was ordered."""
    return frames["plain"].transform(hf.aggregate(by=["product"], n=hf.count()))


def by_product(frames: Frames) -> Callable[[DataFrame], DataFrame]:
    return hf.join_tables(frames["posts"], on={"product": "post"}, key="product")


@pytest.mark.parametrize(
    "ask, words",
    [
        pytest.param(
            lambda f: interval({**f, "orders": corrected(f).drop("version")}),
            "the left side of this join is given rows",
            id="interval",
        ),
        pytest.param(
            lambda f: as_of({**f, "orders": corrected(f).select("product", "at", HIDDEN)}),
            "column 'op' was dropped",
            id="as of, left",
        ),
        pytest.param(
            lambda f: as_of(f, counted(f).drop("op")), "column 'op' was dropped", id="as of, right"
        ),
        pytest.param(
            lambda f: f["orders"].transform(hf.join_latest(counted(f).drop("op"), on="product")),
            "column 'op' was dropped",
            id="latest",
        ),
        pytest.param(
            lambda f: counted(f).drop("version").transform(by_product(f)),
            "column 'version' was dropped or made anew",
            id="tables without the version",
        ),
        pytest.param(
            lambda f: counted(f).withColumn("version", F.lit(0)).transform(by_product(f)),
            "column 'version' was dropped or made anew",
            id="tables with another version",
        ),
    ],
)
def test_no_join_is_misled_about_what_is_taken_back(
    frames: Frames, ask: Callable[[Frames], DataFrame], words: str
) -> None:
    with pytest.raises(RetractionError, match=words) as caught:
        ask(frames)
    assert caught.value.hint


@pytest.mark.parametrize(
    "how, kind", [("outer", "full"), ("full_outer", "full"), ("left_outer", "left")]
)
def test_joins_go_by_sparks_other_names_too(
    orders: DataFrame, clicks: DataFrame, monkeypatch: pytest.MonkeyPatch, how: str, kind: str
) -> None:
    asked = []

    def noted(left: pa.Schema, right: pa.Schema, **said: Any) -> IntervalJoin:  # noqa: ANN401
        asked.append(said["kind"])
        return IntervalJoin(left, right, **said)

    monkeypatch.setattr(plan, "IntervalJoin", noted)
    orders.transform(
        hf.join_interval(clicks, "product", lower="0 seconds", upper="1 minute", how=how)
    )
    assert asked == [kind]


@pytest.mark.parametrize(
    "answer",
    [pa.array([True]), [True, False, True], None, True],
    ids=["few", "many", "none", "one"],
)
def test_a_condition_answers_for_each_pair(
    orders: DataFrame, clicks: DataFrame, answer: object
) -> None:
    both = sides(orders, clicks, "product")
    ask = plan._named(lambda _: answer, both)
    pairs = pa.table([pa.array([1, 2])] * 4, names=["l0", "l1", "r0", "r1"])
    with pytest.raises(JoinOptionError, match="for 2 pairs, not a boolean for each"):
        ask(pairs)


@pytest.mark.parametrize(
    "said, words",
    [
        ({"key": "nr"}, "'nr' is not in the schema"),
        ({"key": []}, "has no key"),
        ({"schema": "name strin"}, "not a schema"),
        ({"schema": "bigint"}, "a schema has columns"),
        ({"schema": "id long, op string"}, "'op'"),
        ({"schema": "id long, offset long"}, "'offset'"),
        ({"valid_from": "sinc"}, "did you mean since"),
        ({"valid_from": "id"}, "of type bigint"),
        ({"format": "xml"}, "format = 'xml'"),
        ({"mode": "keep"}, "mode = 'keep'"),
    ],
)
def test_what_cannot_be_a_table_is_refused(
    spark: SparkSession, said: dict[str, Any], words: str
) -> None:
    whole = {"schema": "id long, since timestamp", "key": "id", **said}
    with pytest.raises(TableError, match=words) as caught:
        hw.table(spark, "topic", **whole)
    assert caught.value.hint


@pytest.mark.parametrize(
    "wanted, words",
    [
        ({}, "no tables"),
        ({"a": {"topic": "t"}, "b": {"topic": "t"}}, "in one topic: t"),
        ({"a": {"valid_from": "timestamp"}, "b": {}}, "b have none"),
        ({"a": {"keys": ["id"]}}, "did you mean key"),
    ],
)
def test_what_cannot_be_one_source_is_refused(
    spark: SparkSession, wanted: dict[str, dict[str, Any]], words: str
) -> None:
    whole = {
        name: {"topic": name, "schema": "id long", "key": "id", **said}
        for name, said in wanted.items()
    }
    with pytest.raises(TableError, match=words):
        hw.tables(spark, whole)


def test_lengths_of_time_with_a_sign() -> None:
    assert signed_us("-5 minutes", "lower") == -300 * SECOND
    assert signed_us(" - 1 s", "lower") == -SECOND
    assert signed_us("5 minutes", "lower") == 300 * SECOND
    assert signed_us(dt.timedelta(seconds=-1), "lower") == -SECOND
    with pytest.raises(DurationError):
        signed_us("--1 s", "lower")
    with pytest.raises(DurationError):
        signed_us(5, "lower")  # type: ignore[arg-type]
