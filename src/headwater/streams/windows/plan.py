"""Windows and what goes on without an end: `hf.window`, `hf.aggregate` and `hf.top`.

This file alone decides how windows are asked for, and what the columns of their results are called.
What a window is, the operators decide.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.streams.errors import hints_shown
from headwater.streams.formats.types import quoted
from headwater.streams.joins.table_changes import table_changes
from headwater.streams.kernel.buckets import DEFAULT_BUCKETS
from headwater.streams.kernel.changes import (
    Kind,
    change_columns,
    kind_of,
    primary_key,
    refuse_retracted,
    weight_of,
)
from headwater.streams.kernel.keys import check_key_type
from headwater.streams.kernel.operator import OFFSET, PARTITION, TOPIC, VERSION, value_name
from headwater.streams.kernel.packing import key_name
from headwater.streams.kernel.plan import Prepared, apply, new_counts, prepare
from headwater.streams.kernel.ways import OP
from headwater.streams.kernel.whole import check_alike
from headwater.streams.naming import names_of, no_column
from headwater.streams.time.clocks import CLOCK, HIDDEN
from headwater.streams.time.durations import Duration
from headwater.streams.windows.aggregates import aggregation
from headwater.streams.windows.aggregation import Aggregation
from headwater.streams.windows.aligned import AlignedWindows
from headwater.streams.windows.asked import Asked, Session, Sliding, asked_windows
from headwater.streams.windows.errors import WindowSettingError
from headwater.streams.windows.late import (
    BEHIND,
    CLOSED,
    Late,
    check_late,
    check_time,
    keep_late_rows,
    time_us,
)
from headwater.streams.windows.lateness import Drop
from headwater.streams.windows.measures import Measure, column_asked, column_named
from headwater.streams.windows.native import native_window
from headwater.streams.windows.ranking import Order, check_order_type
from headwater.streams.windows.reversible import maybe_reversible
from headwater.streams.windows.running import RunningGroups
from headwater.streams.windows.sessions import SessionWindows
from headwater.streams.windows.sliding import SlidingWindows
from headwater.streams.windows.top_rows import TopRows

if TYPE_CHECKING:
    from pyspark.sql._typing import ColumnOrName

WINDOW: Final = "window"

_CHANGE: Final = (OP, VERSION, HIDDEN)
"""What every result has besides."""

_REVERSIBLE_HINT: Final = (
    "hf.count can, and hf.sum and hf.avg of whole numbers and decimals; or let what stands before "
    "it give final rows: a window with late=hf.drop()"
)

_Transform = Callable[[DataFrame], DataFrame]


def window(  # noqa: PLR0913 - what is left out has a meaning
    time: str,
    length: Duration | None = None,
    *,
    every: Duration | None = None,
    start: Duration = "0 seconds",
    session: Duration | None = None,
    sliding: Duration | None = None,
    by: "Sequence[ColumnOrName]" = (),
    late: Late = Late(),  # noqa: B008 - a value without state
    engine: str = "headwater",
    buckets: int = DEFAULT_BUCKETS,
    **measures: Measure,
) -> _Transform:
    """Aggregate events by windows of their time, and by key.

    Of these there are four, and one of them is asked for:

    - `length` alone: one window begins where another ends (tumbling).
    - `length` and `every`: windows begin so often, and overlap (hopping).
    - `session`: a stretch of events of a key that are no further apart than this.
    - `sliding`: every event sees what was in the last so long, itself included.

    A window gives its rows when the watermark has passed its end: one for each key that was seen in
    it, with the columns of `by`, `window` (a struct of `start` and `end`), the measures, `op` and
    `version`. Sliding windows give one row for each event, with its columns. Results are "insert"
    and of version 0, unless `late` has them corrected: then a "retract" takes back what was given
    before, and an "insert" of the next version follows.

    Args:
        time: The column that `hf.watermark` was told; `window` for results of another window.
        length: How long windows are.
        every: How often they begin, if more often than that.
        start: By how much they begin later than the epoch, whole multiples apart.
        session: How far apart events of one session are at most.
        sliding: How far each event looks back.
        by: The columns whose values make a group; none: all rows of a window are one. As in
            Spark's `groupBy`, "a.b" is the field b of a, and the result has it as b.
        late: What becomes of events whose windows have all closed: `hf.drop()`, `hf.divert(topic)`
            or `hf.correct(until)`. They are counted in any case.
        engine: "headwater", or "spark" for Spark's own operator, with Spark's rule for time: its
            watermark is that of the partition that is ahead, and rows that it calls late are gone.
        buckets: Into how many parts the state is cut; for as long as the checkpoint lives.
        measures: What is computed, under which name: `total=hf.sum("amount")`.

    Raises:
        WindowSettingError: The window cannot be. From the function: two columns of the result
            would have one name, a column is not there, or the rows are a table.
        WatermarkMissingError: From the function: rows have no watermark.
        RetractionError: From the function: rows may be taken back.
    """
    _check(measures)
    with hints_shown():
        _check_arguments(
            length=length,
            every=every,
            start=start,
            session=session,
            sliding=sliding,
            by=by,
            late=late,
            engine=engine,
            buckets=buckets,
        )
        check_late(late)
        asked = asked_windows(
            length=length, every=every, start=start, session=session, sliding=sliding
        )
        if engine not in {"headwater", "spark"}:
            raise WindowSettingError(
                f"there is no engine {engine!r}", hint='use engine="headwater" or engine="spark"'
            )

    def add(rows: DataFrame) -> DataFrame:
        with hints_shown():
            refuse_retracted(rows, "hf.window")
            _refuse_table(rows)
            check_time(rows, time)
            keys = _named(rows, by)
            _check_columns(rows, measures)
            if engine == "spark":
                _check_names([WINDOW], keys=keys, results=measures)
                return native_window(rows, time, asked, keys, late, measures)
            return _windowed(rows, time, asked, keys, late, measures, buckets)

    return add


def _windowed(
    rows: DataFrame,
    time: str,
    asked: Asked,
    keys: Mapping[str, Column],
    late: Late,
    measures: Mapping[str, Measure],
    buckets: int,
) -> DataFrame:
    """Put the kernel's operator for such windows behind rows."""
    is_sliding = isinstance(asked, Sliding)
    kind = kind_of(rows)
    passed = _passed(rows, keys, kind) if is_sliding else []
    own = _CHANGE if is_sliding else (WINDOW, *_CHANGE)
    _check_names(own, keys=keys, passed=passed, results=measures)
    values = [*_arguments(measures).values(), *map(column_named, passed)]
    prepared = prepare(rows, keys, values, time=time_us(rows, time), weight=weight_of(kind))
    aggregations = _aggregations(measures, prepared)
    operator = _operator(asked, aggregations, prepared.values, late, len(passed))
    counts = new_counts(operator)
    if late.topic is not None:
        keep_late_rows(
            rows,
            keys,
            operator,
            late.topic,
            time=time,
            said=BEHIND if is_sliding else CLOSED,
            counts=counts,
            buckets=buckets,
        )
    names = [*measures, *passed]
    given = apply(operator, [prepared], buckets=buckets, counts=counts, names=names)
    results = _results(measures, 0 if is_sliding else 2)
    changes = change_columns(given, retracts=late.rule != Drop())
    between = [_window_column(given)]
    if is_sliding:
        between = _passed_columns(given, rows, passed, first=len(measures))
    return given.select(*_key_columns(keys), *between, *results, *changes)


def _operator(
    asked: Asked, aggregations: list[Aggregation], values: pa.Schema, late: Late, passed: int
) -> AlignedWindows | SessionWindows | SlidingWindows:
    if isinstance(asked, Session):
        return SessionWindows(asked.gap_us, aggregations, values, late.rule)
    if isinstance(asked, Sliding):
        names = values.names[len(values) - passed :]
        return SlidingWindows(asked.length_us, aggregations, values, late.rule, passed=names)
    return AlignedWindows(asked, aggregations, values, late.rule)


def _passed(rows: DataFrame, keys: Mapping[str, Column], kind: Kind) -> list[str]:
    """Return the columns that rows keep; what says what they are and whence is given anew."""
    own = {HIDDEN}
    if kind is Kind.CHANGES:
        own |= {OP, VERSION}
    elif kind is Kind.TABLE:
        own |= {OP} if HIDDEN in rows.columns else {OP, TOPIC, PARTITION, OFFSET}
    return [name for name in rows.columns if name not in keys and name not in own]


def _passed_columns(
    given: DataFrame, rows: DataFrame, names: Sequence[str], first: int
) -> list[Column]:
    """Return the columns of events under their names; that of the time stays one."""
    metadata = given.schema[HIDDEN].metadata
    return [
        F.col(value_name(first + number)).alias(
            name, metadata=metadata if CLOCK in rows.schema[name].metadata else {}
        )
        for number, name in enumerate(names)
    ]


def aggregate(
    *, by: "Sequence[ColumnOrName]" = (), buckets: int = DEFAULT_BUCKETS, **measures: Measure
) -> _Transform:
    """Keep aggregates of everything so far, by key.

    With each batch, groups that have changed take their result back and give the new one: rows with
    `op` "retract" and "insert". `version` counts the changes of a group; one that comes back after
    all its rows were taken back goes on with a higher one than it had.

    Rows may be changes themselves, as other functions give them, or a table, of which the rows
    count that stand in it now. What is taken back is then taken out of the result, by those
    aggregates that can do so: `hf.count`, and `hf.sum` and `hf.avg` of whole numbers and decimals.
    Any other is refused where rows may be taken back.

    Args:
        by: The columns whose values make a group; none: all rows are one. As in Spark's `groupBy`,
            "a.b" is the field b of a, and the result has it as b.
        buckets: Into how many parts the state is cut; for as long as the checkpoint lives.
        measures: What is computed, under which name: `total=hf.sum("amount")`.

    Raises:
        WindowSettingError: There is nothing to compute. From the function: two columns of the
            result would have one name, a column is not there, or a table has lost its primary key.
        RetractionError: From the function: rows may be taken back, and a measure cannot undo that,
            or is computed from something that differs by then.
    """
    _check(measures)
    with hints_shown():
        _check_arguments(by=by, buckets=buckets)

    def add(rows: DataFrame) -> DataFrame:
        with hints_shown():
            keys = _named(rows, by)
            _check_names(_CHANGE, keys=keys, results=measures)
            _check_columns(rows, measures)
            arguments = _arguments(measures)
            kind = kind_of(rows)
            if kind is Kind.TABLE:
                rows, kind = _table_changes(rows, keys | arguments, buckets), Kind.CHANGES
                keys, arguments = _by_name(keys), _by_name(arguments)
            elif kind is Kind.CHANGES:
                check_alike(rows, keys | arguments)
            weight = weight_of(kind)
            values = list(arguments.values())
            prepared = prepare(rows, keys, values, weight=weight, needs_time=False)
            aggregations = _aggregations(measures, prepared)
            found = [maybe_reversible(each) for each in aggregations]
            for name, each in zip(measures, found, strict=True):
                if each is None:
                    who = f"{name}=hf.{measures[name].name}(...) of hf.aggregate"
                    refuse_retracted(rows, who, hint=_REVERSIBLE_HINT)
            reversible = [each for each in found if each is not None]
            retracts = weight is not None and len(reversible) == len(aggregations)
            operator = RunningGroups(
                reversible if retracts else aggregations, prepared.values, retracts=retracts
            )
            given = apply(operator, [prepared], buckets=buckets, names=list(measures))
            changes = change_columns(given, retracts=True)
            return given.select(*_key_columns(keys), *_results(measures, 0), *changes)

    return add


def top(
    count: int,
    *,
    order: str | Sequence[str],
    by: "Sequence[ColumnOrName]" = (),
    rank: str | None = None,
    buckets: int = DEFAULT_BUCKETS,
) -> _Transform:
    """Keep the first rows of everything so far, by key.

    The last order of each customer: `hf.top(1, by=["customer"], order="at desc")`. With each batch,
    rows that are not among the first any more are taken back, and those that are new among them
    are given: rows with `op` "retract" and "insert". Their columns are those of `by`, then all
    others.

    Events may be asked for, tables, and changes as other functions give them. Of events only the
    first are kept in state; those that are equal in `order` stand as in the log. Of tables and
    changes all rows are kept.

    Args:
        count: How many rows of each key.
        order: The columns that rows are ordered by, each with "desc" behind it if the largest comes
            first: `["price desc", "at"]`. Nulls are smaller than all else.
        by: The columns whose values make a key; none: all rows are one. As in Spark's `groupBy`,
            "a.b" is the field b of a, and the result has it as b.
        rank: A name for a column that says which row is the first (1), the second and so on; a row
            that falls back is then taken back and given again. None: there is no such column.
        buckets: Into how many parts the state is cut; for as long as the checkpoint lives.

    Raises:
        WindowSettingError: From the function: it cannot be ordered like that, two columns of the
            result would have one name, or a table has lost its primary key.
        RetractionError: From the function: rows may be taken back, and the column that says which
            was dropped or changed, or a column is computed from something that differs by then.
    """

    def add(rows: DataFrame) -> DataFrame:
        with hints_shown():
            keys = _named(rows, by)
            kind = kind_of(rows)
            passed = _passed(rows, keys, kind)
            ranks = [] if rank is None else [rank]
            _check_names(_CHANGE, keys=keys, passed=passed, results=ranks)
            if kind is Kind.TABLE:
                rows, kind = _table_changes(rows, keys | _by_name(passed), buckets), Kind.CHANGES
                keys = _by_name(keys)
            elif kind is Kind.CHANGES:
                check_alike(rows, keys | _by_name(passed))
            values = list(map(column_named, passed))
            prepared = prepare(rows, keys, values, weight=weight_of(kind), needs_time=False)
            types = dict(zip(passed, prepared.values.types, strict=True))
            if kind is Kind.CHANGES:
                for name, column_type in types.items():
                    check_key_type(name, column_type)
            operator = TopRows(
                count,
                _orders(order, types),
                prepared.values,
                ranked=rank is not None,
                retracts=kind is Kind.CHANGES,
            )
            names = [*passed, *ranks]
            given = apply(operator, [prepared], buckets=buckets, names=names)
            chosen = [F.col(value_name(number)).alias(name) for number, name in enumerate(names)]
            changes = change_columns(given, retracts=True)
            return given.select(*_key_columns(keys), *chosen, *changes)

    return add


def _orders(order: str | Sequence[str], types: Mapping[str, pa.DataType]) -> list[Order]:
    """Return what rows are ordered by, under the names of an operator."""
    columns = list(types)
    found = []
    for text in [order] if isinstance(order, str) else order:
        name, _, direction = text.rpartition(" ")
        if direction.lower() not in {"asc", "desc"}:
            name, direction = text, "asc"
        if name not in types:
            raise no_column(WindowSettingError, name, columns, why=" beside keys to order rows by")
        check_order_type(name, types[name])
        found.append(Order(value_name(columns.index(name)), direction.lower() == "desc"))
    return found


def _refuse_table(rows: DataFrame) -> None:
    if kind_of(rows) is Kind.TABLE:
        raise WindowSettingError(
            "a table has rows that replace others, and in a window all of them would count",
            hint="hf.aggregate and hf.top take tables as they are; to take every change for an "
            f'event: drop("{OP}")',
        )


def _table_changes(rows: DataFrame, values: Mapping[str, Column], buckets: int) -> DataFrame:
    """Return what the upserts of a table take back and what they give, under the names of values.

    Raises:
        WindowSettingError: It is not known any more what tells the rows of the table apart.
    """
    key = primary_key(rows)
    if key is None:
        raise WindowSettingError(
            "columns of the table's primary key were dropped or made anew",
            hint="keep them as they are up to here",
        )
    changes = table_changes(rows, key, values, buckets=buckets)
    return changes.select(*map(quoted, values), *_CHANGE)


def _check_names(
    own: Sequence[str],
    *,
    keys: Iterable[str] = (),
    passed: Iterable[str] = (),
    results: Iterable[str] = (),
) -> None:
    """Refuse results of which two columns would have one name; Spark sees no capitals.

    Args:
        own: The columns that the result has in any case.
        keys: What rows are brought together by.
        passed: The columns that rows keep.
        results: What else people have named.
    """
    taken = {name.lower() for name in own}
    for names, hint in (
        (keys, 'call it otherwise: by=[F.col("{0}").alias("{0}_1")]'),
        (passed, 'rename yours: withColumnRenamed("{0}", "{0}_1")'),
        (results, "call it otherwise, such as {0}_1"),
    ):
        for name in names:
            if name.lower() in taken:
                raise WindowSettingError(
                    f"there would be two columns {name!r}", hint=hint.format(name)
                )
            taken.add(name.lower())


def _check(measures: Mapping[str, Measure]) -> None:
    with hints_shown():
        if not measures:
            raise WindowSettingError(
                "nothing is to be measured", hint='as in total=hf.sum("amount"), orders=hf.count()'
            )
        for name, measure in measures.items():
            if not isinstance(measure, Measure):
                raise WindowSettingError(
                    f"{name} = {measure!r} is no aggregate",
                    hint=f'as in {name}=hf.sum("amount"); columns to group by are by=[...]',
                )


def _check_arguments(**given: object) -> None:
    """Refuse a measure under a name that means something else here."""
    for name, value in given.items():
        if isinstance(value, Measure):
            raise WindowSettingError(
                f"{name} is an argument of this function, and cannot be what a measure is called",
                hint=f"call it otherwise, such as {name}_1",
            )


def _check_columns(rows: DataFrame, measures: Mapping[str, Measure]) -> None:
    """Refuse measures of columns that are not there."""
    for name, measure in measures.items():
        if measure.column is not None:
            names_of(rows, [measure.column], WindowSettingError, why=f" for {name}=")


def _named(rows: DataFrame, columns: "Sequence[ColumnOrName]") -> dict[str, Column]:
    """Return columns by the names that they have in the result."""
    if isinstance(columns, str):
        columns = [columns]
    found = list(map(column_asked, columns))
    names = names_of(rows, found, WindowSettingError, why=" for by=")
    _check_names([], keys=names)
    return dict(zip(names, found, strict=True))


def _arguments(measures: Mapping[str, Measure]) -> dict[str, Column]:
    """Return the columns of those measures that have one, by the names of the measures."""
    return {
        name: measure.column for name, measure in measures.items() if measure.column is not None
    }


def _by_name(columns: Iterable[str]) -> dict[str, Column]:
    return {name: column_named(name) for name in columns}


def _aggregations(measures: Mapping[str, Measure], prepared: Prepared) -> list[Aggregation]:
    numbers = iter(range(len(prepared.values)))
    found = []
    for measure in measures.values():
        if measure.column is None:
            found.append(aggregation(measure.name))
            continue
        name = value_name(next(numbers))
        kind = prepared.values.field(name).type
        found.append(aggregation(measure.name, name, kind, **measure.options))
    return found


def _window_column(given: DataFrame) -> Column:
    bounds = [
        F.timestamp_micros(value_name(number)).alias(name)
        for number, name in enumerate(("start", "end"))
    ]
    metadata = given.schema[HIDDEN].metadata
    return F.struct(*bounds).alias(WINDOW, metadata=metadata)


def _key_columns(keys: Mapping[str, Column]) -> list[Column]:
    return [F.col(key_name(number)).alias(name) for number, name in enumerate(keys)]


def _results(measures: Mapping[str, Measure], first: int) -> list[Column]:
    return [F.col(value_name(first + number)).alias(name) for number, name in enumerate(measures)]
