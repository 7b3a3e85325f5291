"""The transaction in which a batch is sent.

This file alone decides how long a broker is asked to wait for its end. Where nobody has said, it
depends on what is to be sent. A driver that has vanished for good holds up readers of committed
records that long, so a small batch asks for little: one that comes back ends the transaction itself
at its first commit, however long it was to last. A large batch must be able to arrive.
"""

from typing import Final

from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.transactor import Transactor
from headwater.streams.sink.options import SinkOptions

# As in Java's producers; what a broker that allows less than we ask for is asked for then.
_LEAST_MS: Final = 60_000
# What brokers allow by default, as transaction.max.timeout.ms.
_MOST_MS: Final = 900_000
# 4 MiB in a second: a tenth of what a single slow disk or a busy network takes.
_BYTES_PER_MS: Final = 4 * (1 << 20) // 1000


def timeout_ms(size_bytes: int) -> int:
    """Return how long the transaction of a batch may be open."""
    return min(_MOST_MS, _LEAST_MS + size_bytes // _BYTES_PER_MS)


def transactor_for(
    cluster: Cluster, transactional_id: str, options: SinkOptions, size_bytes: int
) -> Transactor:
    """Return who writes a batch of so many bytes."""
    given_ms = options.transaction_timeout_ms
    if given_ms is not None:
        return Transactor(cluster, transactional_id, timeout_ms=given_ms)
    return Transactor(
        cluster,
        transactional_id,
        timeout_ms=timeout_ms(size_bytes),
        timeout_ms_least=_LEAST_MS,
    )
