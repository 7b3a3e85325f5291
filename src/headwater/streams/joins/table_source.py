"""Tables that topics hold: `hw.table` and `hw.tables`.

This file alone decides how a record becomes a row of a table. Its value is the row, as a JSON
object, or the envelope that Debezium puts around rows; a record without a value deletes the row
that its key names: see `table_keys`.

Debezium writes two records for a delete: its envelope, which knows when the row was deleted, and
behind it one without a value, for compaction, which knows only when it was written itself. Where
times are those of changes, the second has none: it would end what was inserted again in between.

Several tables can be one source: their topics are then read up to one cut of offsets, batch by
batch, and have one clock.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType, TimestampType

from headwater.base.spelling import suggestion
from headwater.streams.errors import hints_shown
from headwater.streams.formats.batches import DECODED, ERROR
from headwater.streams.formats.decoding import Decoding, Wish, transform
from headwater.streams.formats.json import json
from headwater.streams.formats.letters import MISSING_FIELD
from headwater.streams.formats.types import quoted
from headwater.streams.joins.errors import TableError
from headwater.streams.joins.table_keys import hint_of, named_by
from headwater.streams.kernel.changes import key_metadata, table_op
from headwater.streams.kernel.operator import TIME
from headwater.streams.kernel.packing import REACH
from headwater.streams.kernel.ways import OP
from headwater.streams.time.clocks import HIDDEN
from headwater.streams.time.durations import Duration
from headwater.streams.time.watermark import watermark

JSON: Final = "json"
DEBEZIUM: Final = "debezium"
_FORMATS: Final = (JSON, DEBEZIUM)
_MODES: Final = ("fail", "drop")

_ORIGIN: Final = ("topic", "partition", "offset")
_RECORD_TIME: Final = "timestamp"
_CHANGE_TIME: Final = "ts_ms"

_DEBEZIUM_ROW_OPS: Final = ("c", "u", "r", "d")
"""What Debezium's `op` says of a row: created, updated, read by a snapshot, deleted. There is also
`t`: the table was truncated, which names no row."""

_NOT_A_ROW: Final = "NOT_A_ROW"

_DOCUMENT: Final = "__hw_document"
_ROW: Final = "__hw_row"
_TIME: Final = "__hw_valid_from"
_IS_DELETE: Final = "__hw_is_delete"


@dataclass(frozen=True)
class _Table:
    """What was said about one table.

    Attributes:
        topic: Where its changes are.
        columns: Its columns.
        key: Those of them that tell its rows apart.
        valid_from: The column that says from when on a row holds.
        format: How rows stand in records.
        mode: What becomes of records that cannot be decoded.
        dead_letters: The topic where they go instead.
    """

    topic: str
    columns: StructType
    key: tuple[str, ...]
    valid_from: str | None
    format: str
    mode: Any
    dead_letters: str | None


def table(  # noqa: PLR0913 - each is one thing to say about a table
    spark: SparkSession,
    topic: str,
    *,
    schema: str | StructType,
    key: str | Sequence[str],
    valid_from: str | None = None,
    delay: Duration = "0 seconds",
    idle: Duration | None = "30 seconds",
    future: Duration | None = None,
    at_end: Literal["hold", "close"] = "hold",
    format: str = JSON,  # noqa: A002 - as Spark calls it
    mode: str = "fail",
    dead_letters: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read a topic as the table whose changes it holds, from its beginning on.

    The value of a record is the row as it is now, as a JSON object; a record without a value
    deletes the row that its key names: as a JSON object of the key columns, in Kafka Connect's
    envelope or without; or, where there is only one key column, as its JSON or plain text. For
    `hf.join_latest`, `hf.join_asof`, `hf.join_tables`, `hf.aggregate` and `hf.top`. Choose rows
    behind the join: a condition in front of it would hide that a row is gone.

    Args:
        spark: The session.
        topic: The topic, compacted or not.
        schema: Names and types, as DDL text ("id bigint, name string") or StructType.
        key: The primary key: the columns that tell rows apart.
        valid_from: The column that says from when on a row holds, for `hf.join_asof`; "timestamp"
            is when the record was written, if no column is called so. A row is gone from the time
            on at which the record was written that deletes it; that moves the watermark, too.
        delay: How late a version may be written, from the time at which it begins to hold; see
            `hf.watermark`.
        idle: For how long a partition is waited for; None: for ever.
        future: How far ahead rows may be dated to be believed; None: a table may say today what
            holds next year. Such rows move the watermark no further than to when they were written.
        at_end: What becomes of times that are open when a query that ends by itself has read
            everything, as for `hf.watermark`. Both sides of `hf.join_asof` need "close" for its
            last rows.
        format: "json", or "debezium" for rows in its envelope; `valid_from="ts_ms"` is then the
            time of the change in the database. A row is gone from the time of the change on that
            deletes it; the record without a value behind that one has no time.
        mode: What becomes of a record that cannot be decoded: "fail" or "drop".
        dead_letters: The topic to which such records go instead.
        options: Options of the source, such as `kafka.bootstrap.servers`.

    Returns:
        The table's columns and `op`, "upsert" or "delete", with the primary key noted.

    Raises:
        TableError: The table cannot be read like this.
    """
    said = {
        "topic": topic,
        "schema": schema,
        "key": key,
        "valid_from": valid_from,
        "format": format,
        "mode": mode,
        "dead_letters": dead_letters,
    }
    return tables(
        spark, {topic: said}, delay=delay, idle=idle, future=future, at_end=at_end, options=options
    )[topic]


def tables(
    spark: SparkSession,
    wanted: Mapping[str, Mapping[str, Any]],
    *,
    delay: Duration = "0 seconds",
    idle: Duration | None = "30 seconds",
    future: Duration | None = None,
    at_end: Literal["hold", "close"] = "hold",
    options: Mapping[str, str] | None = None,
) -> dict[str, DataFrame]:
    """Read several topics as tables, by one source: each batch has all of them up to one cut.

    A cut holds the end of each partition at the moment it is read. A log transaction over several
    partitions may be split between two batches: its end reaches one partition after the other.

    Args:
        spark: The session.
        wanted: Of each table, under its name, what `hw.table` is told: `topic`, `schema`, `key`,
            and if need be `valid_from`, `format`, `mode`, `dead_letters`. Either all have a
            `valid_from` or none: there is one clock for all.
        delay: As for `hw.table`.
        idle: As for `hw.table`.
        future: As for `hw.table`.
        at_end: As for `hw.table`.
        options: Options of the source.

    Returns:
        The tables under their names.

    Raises:
        TableError: A table cannot be read like this.
    """
    with hints_shown():
        asked = {name: _checked(name, said) for name, said in wanted.items()}
        _check_together(asked)
        rows = _source(spark, list(asked.values()), options or {})
        if any(each.valid_from is not None for each in asked.values()):
            time = functools.reduce(
                lambda other, each: F.when(F.col("topic") == each.topic, _time(each)).otherwise(
                    other
                ),
                asked.values(),
                F.lit(None).cast("timestamp"),
            )
            rows = rows.withColumn(_TIME, time).transform(
                watermark(_TIME, delay, idle, future, at_end)
            )
            if not all(map(_goes_by_record, asked.values())):
                rows = _with_reach(rows)
        return {name: _table_of(rows, each, len(asked)) for name, each in asked.items()}


def _with_reach(rows: DataFrame) -> DataFrame:
    """Let a version move the watermark no further than to when it was written.

    One that is dated ahead says nothing of what holds until then: others that are dated before it
    may stand behind it in the log. Where a record has no time there is nothing better than its own.
    """
    hidden, written_us = F.col(HIDDEN), F.unix_micros(F.col(_RECORD_TIME))
    reach = F.least(hidden[TIME], F.when(written_us >= 0, written_us))
    # `least` passes nulls over, and a row without a time moves nothing.
    made = hidden.withField(REACH, F.when(hidden[TIME].isNotNull(), reach))
    return rows.withColumn(HIDDEN, made.alias(HIDDEN, metadata=rows.schema[HIDDEN].metadata))


def _source(spark: SparkSession, asked: Sequence[_Table], options: Mapping[str, str]) -> DataFrame:
    given = {"startingOffsets": "earliest", "subscribe": ",".join(each.topic for each in asked)}
    if any(each.dead_letters is not None for each in asked):
        given["includeHeaders"] = "true"
    # Spark does not keep upper and lower case of an option's name apart.
    said = {name.lower() for name in options}
    given = {name: text for name, text in given.items() if name.lower() not in said}
    return spark.readStream.format("headwater").options(**given).options(**options).load()


def _table_of(rows: DataFrame, wanted: _Table, of: int) -> DataFrame:
    if of > 1:
        rows = rows.where(F.col("topic") == wanted.topic)
    decoded = rows.withColumn(_DOCUMENT, F.col("value")).transform(
        json(
            _document(wanted),
            column=_DOCUMENT,
            into=_DOCUMENT,
            mode=wanted.mode,
            dead_letters=wanted.dead_letters,
        )
    )
    names = [*wanted.columns.names, _IS_DELETE]
    form = Decoding("row of a table", names, functools.partial(_attempt, wanted), _as_it_is)
    decoded = decoded.transform(
        transform(form, Wish(_DOCUMENT, wanted.mode, wanted.dead_letters, _ROW))
    )
    time = F.col(_TIME) if wanted.valid_from is not None else None
    metadata = rows.schema[HIDDEN].metadata if time is not None else {}
    columns = []
    for name in wanted.columns.names:
        is_time = time is not None and name == wanted.valid_from
        noted = key_metadata(name, wanted.key) | (metadata if is_time else {})
        column = time if is_time else F.col(f"{_ROW}.{quoted(name)}")
        assert column is not None
        columns.append(column.alias(name, metadata=noted) if noted else column.alias(name))
    if time is not None and wanted.valid_from not in wanted.columns.names:
        assert wanted.valid_from is not None
        columns.append(time.alias(wanted.valid_from, metadata=metadata))
    origin = [HIDDEN] if time is not None else _ORIGIN
    return decoded.select(*columns, table_op(F.col(f"{_ROW}.{_IS_DELETE}")), *origin)


# --- records --------------------------------------------------------------------------------------


def _document(wanted: _Table) -> StructType:
    """Return what the value of a record is."""
    if wanted.format == JSON:
        return wanted.columns
    plain = StructType([StructField(field.name, field.dataType) for field in wanted.columns])
    return StructType(
        [
            StructField("before", plain),
            StructField("after", plain),
            StructField(OP, StringType(), nullable=False),
        ]
    )


def _attempt(wanted: _Table, frame: DataFrame) -> DataFrame:
    """Make the row of a document, and tell what is missing."""
    document = F.col(_DOCUMENT)
    is_delete = F.col("value").isNull()
    row = document
    if wanted.format == DEBEZIUM:
        is_delete |= document[OP] == F.lit("d")
        row = F.when(document[OP] == F.lit("d"), document["before"]).otherwise(document["after"])
    named = named_by(F.col("key"), [wanted.columns[name] for name in wanted.key])
    fields = []
    for field in wanted.columns:
        value = row[field.name]
        if field.name in wanted.key:
            value = F.coalesce(value, F.when(is_delete, named[field.name]))
        fields.append(value.alias(field.name))
    error: Column = F.lit(None).cast("string")
    if wanted.format == DEBEZIUM:
        op = document[OP]
        text = F.concat(F.lit(f"{_NOT_A_ROW}: Debezium's op is "), op, F.lit(", not one of a row"))
        error = F.when(~op.isin(*_DEBEZIUM_ROW_OPS), text)
    for name in wanted.key:
        missing = F.col(DECODED)[name].isNull()
        why = F.when(
            F.col(DECODED)[_IS_DELETE],
            F.concat(
                F.lit(f"{MISSING_FIELD}: it deletes a row, but its key does not say which: {name}"),
                hint_of(F.col("key")),
            ),
        ).otherwise(F.lit(f"{MISSING_FIELD}: the key column {name}"))
        error = F.coalesce(error, F.when(missing, why))
    made = F.struct(*fields, F.coalesce(is_delete, F.lit(False)).alias(_IS_DELETE))
    return frame.withColumn(DECODED, made).withColumn(ERROR, error)


def _as_it_is(dead: DataFrame) -> DataFrame:
    return dead.drop(DECODED)


def _goes_by_record(wanted: _Table) -> bool:
    """Return whether rows hold from when their records were written."""
    return wanted.valid_from == _RECORD_TIME and _RECORD_TIME not in wanted.columns.names


def _time(wanted: _Table) -> Column:
    """Return from when on a record holds."""
    assert wanted.valid_from is not None
    record = F.col(_RECORD_TIME)
    if _goes_by_record(wanted):
        return record
    text = F.col("value").cast("string")
    time = StructType([StructField(wanted.valid_from, TimestampType())])
    if wanted.format == JSON:
        return F.when(text.isNull(), record).otherwise(F.from_json(text, time)[wanted.valid_from])
    change = StructType(
        [
            StructField(OP, StringType()),
            StructField(_CHANGE_TIME, LongType()),
            StructField("after", time),
        ]
    )
    envelope = F.from_json(text, change)
    changed = F.timestamp_millis(envelope[_CHANGE_TIME])
    is_delete = envelope[OP] == F.lit("d")
    held = (
        envelope["after"][wanted.valid_from]
        if wanted.valid_from in wanted.columns.names
        else changed
    )
    return F.when(is_delete, F.coalesce(changed, record)).otherwise(held)


# --- what is refused ------------------------------------------------------------------------------


def _checked(name: str, said: Mapping[str, Any]) -> _Table:
    known = ("topic", "schema", "key", "valid_from", "format", "mode", "dead_letters")
    for word in said:
        if word not in known:
            raise TableError(
                f"table {name!r}: {word!r} is not known" + suggestion(word, known),
                hint=f"there are {', '.join(known)}",
            )
    for word in known[:3]:
        if not said.get(word):
            raise TableError(f"table {name!r} has no {word}", hint=f"say {word}=...")
    columns = _columns(name, said["schema"])
    key = said["key"]
    wanted = _Table(
        topic=said["topic"],
        columns=columns,
        key=tuple([key] if isinstance(key, str) else key),
        valid_from=said.get("valid_from"),
        format=said.get("format") or JSON,
        mode=said.get("mode") or "fail",
        dead_letters=said.get("dead_letters"),
    )
    for word, value, allowed in (
        ("format", wanted.format, _FORMATS),
        ("mode", wanted.mode, _MODES),
    ):
        if value not in allowed:
            raise TableError(f"table {name!r}: {word} = {value!r}", hint=f"there are {allowed}")
    for column in wanted.key:
        if column not in columns.names:
            raise TableError(
                f"table {name!r}: the key column {column!r} is not in the schema"
                + suggestion(column, columns.names),
                hint=f"columns are: {', '.join(columns.names)}",
            )
    _check_names(name, wanted)
    return wanted


def _columns(name: str, schema: str | StructType) -> StructType:
    try:
        found = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    except Exception as error:
        raise TableError(
            f"table {name!r}: not a schema: {schema!r}", hint=str(error).strip().split("\n")[0]
        ) from error
    if not isinstance(found, StructType) or not found.fields:
        raise TableError(
            f"table {name!r}: a schema has columns: {schema!r}",
            hint='write "id bigint, name string"',
        )
    return found


def _check_names(name: str, wanted: _Table) -> None:
    taken = [OP, *([] if wanted.valid_from else _ORIGIN)]
    for column in wanted.columns.names:
        if column.lower() in taken or column.startswith("__hw"):
            raise TableError(
                f"table {name!r}: no column can be called {column!r}, which has its own meaning",
                hint="leave it out of the schema, or call it otherwise where it is written",
            )
    if wanted.valid_from is None:
        return
    if wanted.valid_from in wanted.columns.names:
        kind = wanted.columns[wanted.valid_from].dataType.simpleString()
        if kind != "timestamp":
            raise TableError(
                f"table {name!r}: valid_from = {wanted.valid_from!r} is of type {kind}",
                hint="say timestamp in the schema; texts such as 2026-11-16T12:00:00Z are read",
            )
        return
    own = [_RECORD_TIME, *([_CHANGE_TIME] if wanted.format == DEBEZIUM else [])]
    if wanted.valid_from not in own:
        raise TableError(
            f"table {name!r}: valid_from = {wanted.valid_from!r} is not in the schema"
            + suggestion(wanted.valid_from, wanted.columns.names),
            hint=f"columns are: {', '.join(wanted.columns.names)}; else say {' or '.join(own)}",
        )


def _check_together(asked: Mapping[str, _Table]) -> None:
    if not asked:
        raise TableError("no tables are asked for", hint='as in {"posts": dict(topic=..., ...)}')
    topics = [each.topic for each in asked.values()]
    twice = sorted({topic for topic in topics if topics.count(topic) > 1})
    if twice:
        raise TableError(
            f"two tables are in one topic: {', '.join(twice)}", hint="give each its own topic"
        )
    timed = [name for name, each in asked.items() if each.valid_from is not None]
    if timed and len(timed) < len(asked):
        others = [name for name in asked if name not in timed]
        raise TableError(
            f"tables with and without valid_from have no clock in common: {', '.join(others)} "
            "have none",
            hint='say valid_from="timestamp" for them, or read them by hw.table, one by one',
        )
