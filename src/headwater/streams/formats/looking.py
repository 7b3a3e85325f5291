"""Where columns may be looked at.

This file alone decides what is said where they may not: a query function of `pyspark.pipelines`
describes a DataFrame and must not ask Spark for its columns, which every format does.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from headwater.streams.errors import hints_shown
from headwater.streams.formats.errors import FormatError

_REFUSED = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"

_P = ParamSpec("_P")
_R = TypeVar("_R")


def looking(work: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return the same work, that says what to do where Spark lets nobody look."""

    @wraps(work)
    def look(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return work(*args, **kwargs)
        except Exception as error:
            if _REFUSED not in f"{error} {error.__cause__}":
                raise
            with hints_shown():
                raise FormatError(
                    "formats look at columns, which a query function of a pipeline must not",
                    hint="decode outside of the function, rows = source.transform(hf.json(...)), "
                    "and return rows in it",
                ) from error

    return look
