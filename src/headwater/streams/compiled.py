"""Functions that numba turns into machine code, and where that code is kept.

This file alone decides how they are compiled: on first use, without Python objects inside, kept on
disk for the next process where a place can be written. It knows nothing of what they compute.

A loop over records costs microseconds a record in Python and nanoseconds compiled. Compiling takes
seconds, loading what another process compiled takes milliseconds: numba looks for a folder that can
be written in `NUMBA_CACHE_DIR`, then beside the module, then in the user's cache folder. Where
none can be (a read-only image without a home), each process compiles for itself, and whoever runs
it sets `NUMBA_CACHE_DIR`.

numba notices a change in the file of a function, but not in the files of those that it calls: what
calls each other stands in one file. It checks no index, so that each of them proves its own.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from headwater.base.errors import HeadwaterError

try:
    import numba
except ImportError as error:
    raise HeadwaterError(
        "Spark's rows are read and written with numba, which is not installed here",
        hint="pip install 'headwater[spark]'",
    ) from error

Compiled = TypeVar("Compiled", bound=Callable[..., Any])


def compiled(function: Compiled) -> Compiled:
    """Have the function compiled when it is first called, or load what was compiled before."""
    try:
        return cast("Compiled", numba.njit(cache=True)(function))
    except RuntimeError:
        # No folder for the cache can be written.
        return cast("Compiled", numba.njit(function))
