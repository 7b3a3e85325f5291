"""How records that cannot be decoded leave a query: counted, and in one transaction with its rows.

This file alone decides how dead letters find their way from the place where they are found to the
sink. There, `with_dead_letters` adds them to the rows, each with the topic it goes to: whatever
one sink writes of one batch appears whole or not at all, so a dead letter is written exactly once.

What links the two places is a name in the query's plan. Each decoder that counts has one
(`headwater.decode.1`); under it Spark reports the counts of each batch (`observedMetrics`), and
under it the dead letters are kept here until a sink asks for those of its own plan.
"""

import contextlib
import io
import itertools
import re
import threading
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.streams.formats import letters
from headwater.streams.formats.batches import ERROR
from headwater.streams.formats.errors import FormatError
from headwater.streams.formats.looking import looking

_SINK_COLUMNS: Final = ("key", "value", "headers", "topic", "partition", "timestamp")
_NEEDED: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
_NO_HEADERS: Final = "array<struct<key: string, value: binary>>"
_PREFIXES: Final = "|".join(map(re.escape, (letters.COUNTS, letters.LATE_COUNTS)))
_NAME_IN_PLAN: Final = re.compile(rf"CollectMetrics ((?:{_PREFIXES})\d+(?:\.\w+)?)")


class _Kept(NamedTuple):
    frame: DataFrame
    topic: str


_numbers = itertools.count(1)
_lock = threading.Lock()
_kept: dict[str, _Kept] = {}


def counted(tried: DataFrame, dead: DataFrame | None = None, topic: str | None = None) -> DataFrame:
    """Have the rows counted, and those in which something is wrong.

    Args:
        tried: Rows with the column ERROR.
        dead: Those of them that become dead letters, to be found by `with_dead_letters`.
        topic: Where they go.

    Raises:
        FormatError: A column is missing that a dead letter has to keep.
    """
    with _lock:
        name = f"{letters.COUNTS}{next(_numbers)}"
    if dead is not None:
        assert topic is not None
        missing = [column for column in _NEEDED if column not in dead.columns]
        if missing:
            hint = "decode before columns are dropped"
            if missing == ["headers"]:
                hint = 'read headers, too: .option("includeHeaders", "true")'
            raise FormatError(f"a dead letter needs the columns {missing}", hint=hint)
        _kept[name] = _Kept(dead, topic)
    is_wrong = F.col(ERROR).isNotNull()
    return tried.observe(
        name, F.count(F.lit(1)).alias(letters.RECORDS), F.count_if(is_wrong).alias(letters.DEAD)
    )


def kept_apart(counts: str, rows: DataFrame, topic: str) -> None:
    """Have rows that an operator cannot use found by `with_dead_letters`.

    Args:
        counts: Under which name the operator has them counted.
        rows: They, as records: with the columns of a source, and why in the column ERROR.
        topic: Where they go.
    """
    _kept[counts] = _Kept(rows, topic)


@looking
def with_dead_letters(
    rows: DataFrame,
    *,
    topic: str | None = None,
    pipeline: str = "",
    letters_to: str | None = None,
) -> DataFrame:
    """Add the dead letters of a query to its rows, in front of the sink.

    `hw.pipeline(...).to(...)` does this by itself; call it where a query is written to
    `format("headwater")` by hand. The sink's option `topic` must not be set: rows and dead
    letters carry the topic that they go to.

    Args:
        rows: What the sink is to write, with the columns of the sink.
        topic: Where the rows go; without it they have a column `topic` for it.
        pipeline: The name that dead letters bear.
        letters_to: Where letters go, instead of the topics that their decoders name.

    Returns:
        Rows for the sink. Without dead letters in the query these are the rows that were given.

    Raises:
        FormatError: It is not known where the rows go.
    """
    if topic is not None:
        rows = rows.withColumn("topic", F.lit(topic))
    found = [_kept[name] for name in _names_in(rows) if name in _kept]
    if not found:
        return rows
    if "topic" not in rows.columns:
        raise FormatError(
            "rows that go out beside dead letters need a topic", hint="give topic=TOPIC"
        )
    whole = rows.select(*(_sink_column(rows, name) for name in _sink_columns(rows)))
    for kept in found:
        sent = kept if letters_to is None else kept._replace(topic=letters_to)
        whole = whole.unionByName(_letters(sent, pipeline), allowMissingColumns=True)
    return whole


def dead_letter_topics(rows: DataFrame) -> list[str]:
    """Return the topics to which dead letters of a query go."""
    return sorted({_kept[name].topic for name in _names_in(rows) if name in _kept})


def _names_in(frame: DataFrame) -> list[str]:
    # What `explain` prints is the one form of a plan that every kind of session gives.
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        frame.explain(extended=True)
    return list(dict.fromkeys(_NAME_IN_PLAN.findall(printed.getvalue())))


def _sink_columns(rows: DataFrame) -> list[str]:
    always = ("key", "value", "headers", "topic")
    return [name for name in _SINK_COLUMNS if name in always or name in rows.columns]


def _sink_column(rows: DataFrame, name: str) -> Column:
    if name in {"key", "value"}:
        present = F.col(name) if name in rows.columns else F.lit(None)
        return present.cast("binary").alias(name)
    if name == "headers" and name not in rows.columns:
        return F.lit(None).cast(_NO_HEADERS).alias(name)
    return F.col(name)


def _letters(kept: _Kept, pipeline: str) -> DataFrame:
    own = {
        letters.TOPIC: F.col("topic"),
        letters.PARTITION: F.col("partition").cast("string"),
        letters.OFFSET: F.col("offset").cast("string"),
        letters.TIMESTAMP: F.unix_millis("timestamp").cast("string"),
        letters.ERROR: F.col(ERROR),
        letters.PIPELINE: F.lit(pipeline),
    }
    if not pipeline:
        del own[letters.PIPELINE]
    added = F.array(
        *(
            F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))
            for name, value in own.items()
        )
    )
    before = F.coalesce(F.col("headers"), F.array().cast(_NO_HEADERS))
    return kept.frame.select(
        F.col("key").cast("binary").alias("key"),
        F.col("value").cast("binary").alias("value"),
        F.concat(before, added.cast(_NO_HEADERS)).alias("headers"),
        F.lit(kept.topic).alias("topic"),
    )
