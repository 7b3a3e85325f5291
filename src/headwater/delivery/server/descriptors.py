"""How the descriptors of the process are shared out.

This file alone decides how many files the log may have open and how many clients may be connected,
so that neither takes what the other was promised. Of the limit (RLIMIT_NOFILE, which `headwater up`
raises as far as it may) go

    a third                     to the files of the log, or what `headwater.max.open.files` says
    an eighth, at most 64       to nobody: directories while they are synced, the port, the event
                                loop, the lock, the pipes of compaction; a broker has about 20
    the rest                    to clients

A third, because the log can do with fewer than it would like, a client cannot: closing an idle file
and opening it again costs some 20 microseconds, a refused connection costs its client everything.
"""

import logging
import resource
import sys
from typing import Final, NamedTuple

_SPARE_MAX: Final = 64

_log = logging.getLogger(__name__)


class Shares(NamedTuple):
    """How many descriptors each may take."""

    log: int
    clients: int


def share_descriptors(wanted: int | None) -> Shares:
    """Share out what the process may open.

    Args:
        wanted: How many files the log should have, if somebody has said so.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return Shares(wanted or sys.maxsize, sys.maxsize)
    spare = min(_SPARE_MAX, limit // 8)
    # However much the log wants, clients keep at least `spare`, too.
    most = max(limit - 2 * spare, 1)
    if wanted is not None and wanted > most:
        _log.warning(
            "headwater.max.open.files is %d, but this process may open %d files in all: "
            "the log gets %d; raise the limit: ulimit -Hn",
            wanted,
            limit,
            most,
        )
    log = min(wanted or limit // 3, most)
    return Shares(log, limit - log - spare)
