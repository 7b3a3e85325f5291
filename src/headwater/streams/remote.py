"""Sessions that are elsewhere: Spark Connect.

This file alone decides how a person is told that `hw.session` starts Spark in this process, and
what to do where Spark is a server's. Sources, sinks, formats and pipelines work on both.
"""

import os

from headwater.base.errors import HeadwaterError


class RemoteSessionError(HeadwaterError):
    """A session in this process was asked for where Spark runs in a server."""


def refuse_remote(master: str | None) -> None:
    """Refuse what would start a second Spark beside that of a Connect server.

    Raises:
        RemoteSessionError: The master is a Connect server, or this process uses one.
    """
    server = master if master is not None and master.startswith("sc://") else None
    server = server or os.environ.get("SPARK_REMOTE")
    if server is None and "SPARK_CONNECT_MODE_ENABLED" not in os.environ:
        return
    made = (
        f'SparkSession.builder.remote("{server}").getOrCreate()'
        if server
        else "SparkSession.active()"
    )
    raise RemoteSessionError(
        "hw.session() starts Spark in this process, and this one uses Spark Connect",
        hint=f'use {made}: format("headwater"), hf.json and hw.pipeline work with it',
    )
