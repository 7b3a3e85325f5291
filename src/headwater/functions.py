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
    from headwater.streams.time.true_time import true_time

__all__ = [
    "avro",
    "json",
    "protobuf",
    "to_avro",
    "to_json",
    "to_protobuf",
    "true_time",
    "with_dead_letters",
]

_FORMATS = "headwater.streams.formats"
_HOMES = {
    "avro": f"{_FORMATS}.avro",
    "json": f"{_FORMATS}.json",
    "protobuf": f"{_FORMATS}.protobuf",
    "to_avro": f"{_FORMATS}.avro",
    "to_json": f"{_FORMATS}.json",
    "to_protobuf": f"{_FORMATS}.protobuf",
    "true_time": "headwater.streams.time.true_time",
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
