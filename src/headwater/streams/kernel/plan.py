"""An operator in a DataFrame's plan: rows to buckets, steps, rows again.

This file alone decides how the three are put together in Spark: what is packed, that every bucket
hears what time it is, past whatever is between the source and here, and what comes out.
"""

import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from headwater.streams.errors import hints_shown
from headwater.streams.formats.letters import LATE_COUNTS, LATE_EVENTS
from headwater.streams.kernel.buckets import EVERYWHERE, bucket_ids, check_buckets
from headwater.streams.kernel.errors import RowOriginError, StateStoreError
from headwater.streams.kernel.keys import check_key_type
from headwater.streams.kernel.operator import (
    KEY,
    OFFSET,
    PARTITION,
    TIME,
    TOPIC,
    VERSION,
    WEIGHT,
    Operator,
    value_name,
)
from headwater.streams.kernel.packing import NULL_KEY, REACH, Packer, key_name, unpacked
from headwater.streams.kernel.processor import (
    BLOB_COLUMNS,
    GREETING,
    RESULT_COLUMNS,
    BucketProcessor,
    Setting,
)
from headwater.streams.time.clocks import (
    CLOCK,
    FAULT,
    HIDDEN,
    Clock,
    check_hidden,
    clock_frame,
    clock_of,
    columns_of,
    hidden_names,
    merged,
    reattach,
    reporter_of,
)
from headwater.streams.time.errors import WatermarkError
from headwater.streams.time.faults import (
    CLAIMED,
    FURTHEST,
    FUTURE,
    NO_TIME,
    ROWS,
    Faults,
    counts_name,
)
from headwater.streams.time.report import Reporter
from headwater.streams.time.sources import sources_of

_STORE: Final = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_PACKED_COLUMNS: Final = (
    "bucket int, input int, blob binary, "
    f"{ROWS} long, {NO_TIME} long, {FUTURE} long, {FURTHEST} long"
)

_numbers = itertools.count(1)
_Batches = Iterator[pa.RecordBatch]


class Prepared(NamedTuple):
    """Rows as packers take them: keys, time, origin and values, without the names people gave.

    Attributes:
        frame: The rows.
        schema: The same as Arrow's.
        key_names: What people call the keys.
        key_types: The types of the keys.
        values: The types of the values, under their names in an operator.
        clock: By which clock they have their time; none for those who need no time.
        reporter: How tasks say how far they have come, where they read the source itself.
        counts: Under which name rows without a time are counted, if they are.
    """

    frame: DataFrame
    schema: pa.Schema
    key_names: tuple[str, ...]
    key_types: tuple[pa.DataType, ...]
    values: pa.Schema
    clock: Clock | None
    reporter: Reporter | None
    counts: str | None = None

    def rows(self, *, marks_null_keys: bool) -> pa.Schema:
        """Return the columns that an operator is given."""
        others = [
            field
            for field in self.schema
            if not field.name.startswith("k") and field.name not in {CLAIMED, REACH}
        ]
        if TIME not in self.schema.names:
            others.append(pa.field(TIME, pa.int64()))
        marks = [pa.field(NULL_KEY, pa.bool_())] if marks_null_keys else []
        return pa.schema([pa.field(KEY, pa.binary()), *others, *marks])


def prepare(
    frame: DataFrame,
    keys: Mapping[str, Column],
    values: Sequence[Column],
    *,
    time: Column | None = None,
    weight: Column | None = None,
    needs_time: bool = True,
    counts_faults: bool = True,
) -> Prepared:
    """Reduce rows to what an operator needs.

    Args:
        frame: Rows that have passed `hf.watermark`.
        keys: What rows are brought together by, and what people call it.
        values: What the operator computes with.
        time: When rows were, in microseconds, if not when the hidden column says; rows that have no
            time by that one have none.
        weight: 1 for rows that appear, -1 for rows that are taken back.
        needs_time: Whether the operator can do nothing without a watermark.
        counts_faults: Whether rows without a time are counted, where it needs one; not if another
            operator counts the same.

    Raises:
        WatermarkMissingError: It needs one, and there is none.
        RowOriginError: Nobody can say where the rows come from.
        WatermarkError: They have a column of their own that is called like the hidden one.
    """
    check_hidden(frame)
    clock = clock_of(frame) if needs_time or _has_clock(frame) else None
    chosen = [column.alias(key_name(number)) for number, column in enumerate(keys.values())]
    chosen += _origin(frame, time)
    if weight is not None:
        chosen.append(weight.cast("byte").alias(WEIGHT))
    chosen += [column.alias(value_name(number)) for number, column in enumerate(values)]
    chosen_frame = frame.select(*chosen)
    schema = _without_nullability(to_arrow_schema(chosen_frame.schema, timezone="UTC"))
    key_types = tuple(schema.field(key_name(number)).type for number in range(len(keys)))
    for name, key_type in zip(keys, key_types, strict=True):
        check_key_type(name, key_type)
    first_value = len(schema) - len(values)
    is_source = FAULT in hidden_names(frame)
    return Prepared(
        chosen_frame,
        schema,
        tuple(keys),
        key_types,
        pa.schema([schema.field(first_value + number) for number in range(len(values))]),
        clock,
        reporter_of(clock) if clock is not None and is_source else None,
        counts_name(next(_numbers), columns_of(clock))
        if clock is not None and needs_time and counts_faults
        else None,
    )


def new_counts(operator: Operator) -> str:
    """Return a name for an operator's count of late events, unique in this process."""
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(operator).__name__).lower()
    return f"{LATE_COUNTS}{next(_numbers)}.{kind}"


def apply(
    operator: Operator,
    inputs: Sequence[Prepared],
    *,
    buckets: int,
    counts: str | None = None,
    gives_keys: bool = True,
    names: Sequence[str] = (),
) -> DataFrame:
    """Put an operator behind its inputs.

    Args:
        operator: What is computed.
        inputs: Of which rows.
        buckets: Into how many parts its state is cut.
        counts: Under which name late events are counted, if the name is needed elsewhere.
        gives_keys: Whether what comes out has the key of the rows that it comes of.
        names: What people call its values, where that must stay the same as long as a state lives:
            where two of one type are exchanged, nothing else would show it.

    Returns:
        A DataFrame with the keys (`k0`, ...), `weight`, `version`, the operator's values (`c0`,
        ...) and the hidden column.

    Raises:
        BucketCountError: State cannot be cut like that.
        StateStoreError: The session's store cannot hold it.
    """
    check_buckets(buckets)
    session = inputs[0].frame.sparkSession
    _check_store(session)
    marks = len(inputs) > 1
    clocks = [each.clock for each in inputs if each.clock is not None]
    clock = merged(clocks) if clocks else None
    sent = [
        _packed(operator, which, each, buckets, greets=clock is None)
        for which, each in enumerate(inputs)
    ]
    if clock is not None:
        sent.insert(0, _told(clock, buckets))
    setting = Setting(
        operator=operator,
        rows=tuple(each.rows(marks_null_keys=marks) for each in inputs),
        fingerprint=fingerprint(operator, inputs, buckets=buckets, names=names),
        buckets=buckets,
        clocks=0 if clock is None else len(clock.names),
    )
    stepped = (
        functools.reduce(DataFrame.unionAll, sent)
        .groupBy("bucket")
        .transformWithState(BucketProcessor(setting), RESULT_COLUMNS, "Append", "None")
    )
    late = F.sum("late").alias(LATE_EVENTS)
    counted = stepped.observe(counts or new_counts(operator), late)
    key_types = inputs[0].key_types if gives_keys else ()
    given = _given_schema(operator, key_types)
    blobs = counted.where(F.col("blob").isNotNull()).select("blob")
    timezone = session.conf.get("spark.sql.session.timeZone") or "UTC"
    rows = blobs.mapInArrow(_unpacking(key_types, given, timezone), from_arrow_schema(given))
    hidden = F.struct(PARTITION, OFFSET, TIME)
    rows = rows.withColumn(HIDDEN, hidden).drop(PARTITION, OFFSET, TIME)
    return rows if clock is None else reattach(rows, clock, operator.hold_us)


def _check_store(session: SparkSession) -> None:
    """Refuse what Spark would refuse in the first batch, without saying what to do."""
    store = session.conf.get(_STORE, "") or ""
    if not store.endswith("RocksDBStateStoreProvider"):
        raise StateStoreError(
            "state is kept in RocksDB, and this session has another store for it",
            hint=f'use hw.session(), or set {_STORE} to "{_ROCKSDB}" before the query starts',
        )


def _has_clock(frame: DataFrame) -> bool:
    """Tell whether rows have a watermark; what operators make of rows without one has none."""
    return HIDDEN in frame.columns and CLOCK in frame.schema[HIDDEN].metadata


def _origin(frame: DataFrame, time: Column | None) -> list[Column]:
    """Return when rows were and where they come from, as far as it is known."""
    if HIDDEN in frame.columns:
        known = hidden_names(frame)
        names = [name for name in (TOPIC, PARTITION, OFFSET, CLAIMED, REACH) if name in known]
        own = F.col(f"{HIDDEN}.{TIME}")
        when = own if time is None else F.when(own.isNotNull(), time)
        return [when.alias(TIME), *(F.col(f"{HIDDEN}.{name}").alias(name) for name in names)]
    missing = [name for name in (TOPIC, PARTITION, OFFSET) if name not in frame.columns]
    if missing:
        raise RowOriginError(
            f"it is not known any more where rows come from: {', '.join(missing)} were dropped",
            hint="keep the source's columns up to here, or use hf.watermark before dropping them",
        )
    # Moving a name with every row costs more than all else that says where the row comes from.
    topic = [] if _is_of_one_topic(frame) else [F.col(TOPIC)]
    return [
        *topic,
        F.col(PARTITION).cast("int").alias(PARTITION),
        F.col(OFFSET).cast("long").alias(OFFSET),
    ]


def _is_of_one_topic(frame: DataFrame) -> bool:
    try:
        return sources_of(frame).topic() is not None
    except WatermarkError:
        return False


def _told(clock: Clock, buckets: int) -> DataFrame:
    return clock_frame(clock, bucket_ids(buckets)).select(
        "bucket",
        F.lit(-1).alias("input"),
        F.lit(None).cast("binary").alias("blob"),
        "clock",
        "watermark",
        "idle",
        "hold",
    )


def _packed(
    operator: Operator, which: int, prepared: Prepared, buckets: int, *, greets: bool
) -> DataFrame:
    packed = prepared.frame.mapInArrow(
        _packing(operator, which, prepared, buckets, greets=greets), _PACKED_COLUMNS
    )
    if prepared.counts is not None:
        sums = [F.sum(name).alias(name) for name in (ROWS, NO_TIME, FUTURE)]
        packed = packed.observe(prepared.counts, *sums, F.max(FURTHEST).alias(FURTHEST))
    missing = BLOB_COLUMNS.split(", ")[3:]
    return packed.where(F.col("blob").isNotNull()).select(
        "bucket",
        "input",
        "blob",
        *(F.lit(None).cast(kind).alias(name) for name, kind in (each.split() for each in missing)),
    )


def _packing(
    operator: Operator, which: int, prepared: Prepared, buckets: int, *, greets: bool
) -> Callable[[_Batches], _Batches]:
    """Return what runs in tasks; it must hold on to no DataFrame.

    Where no clock calls on all buckets, one of them is called on in every batch: if its state is
    that of another operator, or of another number of buckets, no batch can leave the others with
    the state of both.
    """
    schema = prepared.schema
    keys = len(prepared.key_types)
    reporter = prepared.reporter
    ids = bucket_ids(buckets)

    def pack(batches: _Batches) -> _Batches:
        with hints_shown():
            packer = Packer(
                operator,
                which,
                schema,
                keys=keys,
                buckets=buckets,
                notes_reach=reporter is not None,
            )
            for blobs in packer.pack(batches):
                numbers = [ids[each] for each in blobs.buckets]
                yield _sent(numbers, which, blobs.data, Faults())
            if greets:
                yield _sent([EVERYWHERE], which, pa.array([GREETING], pa.binary()), Faults())
            if reporter is not None:
                reporter.report(packer.reached)
            yield _sent([None], which, pa.nulls(1, pa.binary()), packer.faults)

    return pack


def _sent(
    numbers: Sequence[int | None], which: int, blobs: pa.BinaryArray, faults: Faults
) -> pa.RecordBatch:
    """Return blobs for buckets; or none for nobody, with what a task has counted."""
    count = len(numbers)
    counts = zip((ROWS, NO_TIME, FUTURE, FURTHEST), faults, strict=True)
    return pa.record_batch(
        {
            "bucket": pa.array(numbers, pa.int32()),
            "input": pa.array([which] * count, pa.int32()),
            "blob": blobs,
            **{name: pa.array([each] * count, pa.int64()) for name, each in counts},
        }
    )


def _unpacking(
    key_types: Sequence[pa.DataType], given: pa.Schema, timezone: str
) -> Callable[[_Batches], _Batches]:
    seen = pa.schema([_in_zone(field, timezone) for field in given])

    def unpack(batches: _Batches) -> _Batches:
        for batch in batches:
            for blob in batch.column(0):
                for rows in unpacked(blob.as_buffer(), key_types):
                    yield rows.select(given.names).cast(seen)

    return unpack


def _given_schema(operator: Operator, key_types: Sequence[pa.DataType]) -> pa.Schema:
    return pa.schema(
        [
            *(pa.field(key_name(number), kind) for number, kind in enumerate(key_types)),
            pa.field(TIME, pa.int64()),
            pa.field(WEIGHT, pa.int8()),
            pa.field(VERSION, pa.int32()),
            pa.field(PARTITION, pa.int32()),
            pa.field(OFFSET, pa.int64()),
            *operator.output,
        ]
    )


def fingerprint(
    operator: Operator, inputs: Sequence[Prepared], *, buckets: int, names: Sequence[str] = ()
) -> dict[str, str]:
    """Write down what a state depends on, in words for whoever changed it."""
    found = {"operator": type(operator).__name__, "number of buckets": str(buckets)}
    found |= {name: _worded(value) for name, value in operator.parameters.items()}
    keys = zip(inputs[0].key_names, inputs[0].key_types, strict=True)
    for number, (name, key_type) in enumerate(keys, start=1):
        found[f"key {number}"] = f"{name} ({key_type})"
    found |= {f"result {number}": name for number, name in enumerate(names, start=1)}
    for which, each in enumerate(inputs):
        side = f" of input {which + 1}" if len(inputs) > 1 else ""
        for number, field in enumerate(each.values):
            found[f"value {number + 1}{side}"] = str(field.type)
    return found


def _worded(value: object) -> str:
    """Return what an operator depends on, as it says it, or as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _without_nullability(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _in_zone(field: pa.Field, timezone: str) -> pa.Field:
    is_instant = pa.types.is_timestamp(field.type) and field.type.tz is not None
    return field.with_type(pa.timestamp("us", tz=timezone)) if is_instant else field
