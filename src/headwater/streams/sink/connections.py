"""The client that a process of Spark's keeps from one task or commit to the next.

This file alone decides how long it is kept: until something goes wrong, or another broker is
wanted. Spark uses its Python processes again, and a batch of a few rows is over sooner than
connections are made, the more so with TLS and passwords.

What has changed in between, such as a connection that the broker has closed, is found by whoever
uses the client, and asked again: see `Cluster.retrying`.
"""

import atexit
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.delivery.client.cluster import Cluster
from headwater.streams.client_options import ClientOptions
from headwater.streams.connecting import connect
from headwater.streams.sink.options import SinkOptions

_kept: list[tuple[tuple[str, ClientOptions], Cluster]] = []


@contextmanager
def lent_cluster(options: SinkOptions) -> Iterator[Cluster]:
    """Lend the client that these options ask for."""
    wanted = (options.bootstrap, options.client)
    try:
        # Never asked for first: a driver that writes several queries itself does so in threads.
        known, cluster = _kept.pop()
    except IndexError:
        cluster = connect(*wanted)
    else:
        if known != wanted:
            cluster.close()
            cluster = connect(*wanted)
    try:
        yield cluster
    except BaseException:
        cluster.close()
        raise
    if _kept:
        cluster.close()  # somebody else's was lent in between
    else:
        _kept.append((wanted, cluster))


@atexit.register
def _close() -> None:
    while _kept:
        _kept.pop()[1].close()
