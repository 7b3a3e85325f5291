"""Windows by Spark's own operators: `hf.window(..., engine="spark")`.

This file alone decides what of `hf.window` Spark can do itself, and how it is asked. The rule of
time is then Spark's: the watermark follows the partition that is ahead, a row whose window has
closed by it is gone, and what is counted as late are partial results, not events.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater.streams.time.clocks import HIDDEN, clock_of, delays_us_of
from headwater.streams.windows.asked import Asked, Session, Sliding
from headwater.streams.windows.errors import WindowSettingError
from headwater.streams.windows.late import Late
from headwater.streams.windows.measures import Measure

_MEASURES = {
    "count": F.count,
    "sum": F.sum,
    "avg": F.avg,
    "variance": F.variance,
    "stddev": F.stddev,
    "min": F.min,
    "max": F.max,
    "approx_distinct": F.approx_count_distinct,
    "collect": F.collect_list,
}


def native_window(
    rows: DataFrame,
    time: str,
    asked: Asked,
    keys: Mapping[str, Column],
    late: Late,
    measures: Mapping[str, Measure],
) -> DataFrame:
    """Return the windows that Spark makes of rows.

    Raises:
        WindowSettingError: Spark has none like this.
    """
    if isinstance(asked, Sliding):
        raise WindowSettingError(
            "Spark has no sliding windows of its own", hint='leave engine="spark" out'
        )
    if late != Late():
        raise WindowSettingError(
            "Spark drops what it calls late, and can do nothing else with it",
            hint='leave late=... or engine="spark" out',
        )
    delay = f"{max(delays_us_of(clock_of(rows)))} microseconds"
    timed = rows.withWatermark(time, delay).drop(HIDDEN)
    results = [_result(measure).alias(name) for name, measure in measures.items()]
    named = [column.alias(name) for name, column in keys.items()]
    return timed.groupBy(_window(time, asked).alias("window"), *named).agg(*results)


def _window(time: str, asked: Asked) -> Column:
    if isinstance(asked, Session):
        return F.session_window(time, f"{asked.gap_us} microseconds")
    assert not isinstance(asked, Sliding)
    length, every, start = (
        f"{each} microseconds" for each in (asked.length_us, asked.slide_us, asked.offset_us)
    )
    return F.window(time, length, every, start)


def _result(measure: Measure) -> Column:
    made = _MEASURES.get(measure.name)
    if made is None or measure.options:
        raise WindowSettingError(
            f"{measure.name} is not among what Spark's own windows can compute here",
            hint=f'use one of {", ".join(_MEASURES)}, or leave engine="spark" out',
        )
    return made(F.lit(1) if measure.column is None else measure.column)
