"""Functions for DataFrames: `from headwater import functions as hf`.

This file alone decides which of them the public finds, and under which names. What they do stands
in `headwater.streams`; nothing of it, and no Spark, is loaded before one of them is asked for.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.streams.formats.avro import avro, to_avro
    from headwater.streams.formats.dead_letters import with_dead_letters
    from headwater.streams.formats.json import json, to_json
    from headwater.streams.formats.protobuf import protobuf, to_protobuf
    from headwater.streams.joins.plan import join_asof, join_interval, join_latest, join_tables
    from headwater.streams.kernel.stateful import stateful
    from headwater.streams.time.true_time import true_time
    from headwater.streams.time.watermark import clamp, watermark
    from headwater.streams.windows.late import Late, correct, divert, drop
    from headwater.streams.windows.measures import (
        approx_distinct,
        avg,
        collect,
        count,
        distinct,
        first,
        heavy_hitters,
        last,
        max,  # noqa: A004 - as in SQL
        min,  # noqa: A004 - as in SQL
        percentile,
        stddev,
        sum,  # noqa: A004 - as in SQL
        variance,
    )
    from headwater.streams.windows.plan import aggregate, top, window

__all__ = [
    "Late",
    "aggregate",
    "approx_distinct",
    "avg",
    "avro",
    "clamp",
    "collect",
    "correct",
    "count",
    "distinct",
    "divert",
    "drop",
    "first",
    "heavy_hitters",
    "join_asof",
    "join_interval",
    "join_latest",
    "join_tables",
    "json",
    "last",
    "max",
    "min",
    "percentile",
    "protobuf",
    "stateful",
    "stddev",
    "sum",
    "to_avro",
    "to_json",
    "to_protobuf",
    "top",
    "true_time",
    "variance",
    "watermark",
    "window",
    "with_dead_letters",
]

_FORMATS = "headwater.streams.formats"
_JOINS = "headwater.streams.joins"
_TIME = "headwater.streams.time"
_WINDOWS = "headwater.streams.windows"
_HOMES = {
    "Late": f"{_WINDOWS}.late",
    "aggregate": f"{_WINDOWS}.plan",
    "approx_distinct": f"{_WINDOWS}.measures",
    "avg": f"{_WINDOWS}.measures",
    "avro": f"{_FORMATS}.avro",
    "clamp": f"{_TIME}.watermark",
    "collect": f"{_WINDOWS}.measures",
    "correct": f"{_WINDOWS}.late",
    "count": f"{_WINDOWS}.measures",
    "distinct": f"{_WINDOWS}.measures",
    "divert": f"{_WINDOWS}.late",
    "drop": f"{_WINDOWS}.late",
    "first": f"{_WINDOWS}.measures",
    "heavy_hitters": f"{_WINDOWS}.measures",
    "join_asof": f"{_JOINS}.plan",
    "join_interval": f"{_JOINS}.plan",
    "join_latest": f"{_JOINS}.plan",
    "join_tables": f"{_JOINS}.plan",
    "json": f"{_FORMATS}.json",
    "last": f"{_WINDOWS}.measures",
    "max": f"{_WINDOWS}.measures",
    "min": f"{_WINDOWS}.measures",
    "percentile": f"{_WINDOWS}.measures",
    "protobuf": f"{_FORMATS}.protobuf",
    "stateful": "headwater.streams.kernel.stateful",
    "stddev": f"{_WINDOWS}.measures",
    "sum": f"{_WINDOWS}.measures",
    "to_avro": f"{_FORMATS}.avro",
    "to_json": f"{_FORMATS}.json",
    "to_protobuf": f"{_FORMATS}.protobuf",
    "top": f"{_WINDOWS}.plan",
    "true_time": f"{_TIME}.true_time",
    "variance": f"{_WINDOWS}.measures",
    "watermark": f"{_TIME}.watermark",
    "window": f"{_WINDOWS}.plan",
    "with_dead_letters": f"{_FORMATS}.dead_letters",
}


if not TYPE_CHECKING:  # a type checker must go on seeing names that do not exist

    def __getattr__(name: str) -> object:
        """Fetch a function from its home, once."""
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib.util  # noqa: PLC0415 - not needed before something is asked for

        if importlib.util.find_spec("pyspark") is None:
            from headwater.base.errors import HeadwaterError  # noqa: PLC0415 - as above

            raise HeadwaterError(
                f"{name} works on DataFrames of PySpark, which is not installed",
                hint="pip install 'headwater[spark]'",
            )
        found: object = getattr(importlib.import_module(home), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    """List the functions, fetched or not."""
    return sorted({*globals(), *_HOMES})
