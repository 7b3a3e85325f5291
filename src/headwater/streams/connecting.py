"""How options become a client of the brokers.

This file alone decides how the source and the sink connect; what the options mean stands in
`options` and `client_options`.
"""

from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.security import security_from
from headwater.streams.client_options import ClientOptions


def connect(bootstrap: str, client: ClientOptions, *, timeout_s: float | None = None) -> Cluster:
    """Return a client; it connects when it is first used.

    Args:
        bootstrap: HOST:PORT of one or more brokers.
        client: What the `kafka.*` options say.
        timeout_s: Another patience than theirs.

    Raises:
        HeadwaterError: The address or what is said of security cannot be used.
    """
    return Cluster(
        bootstrap,
        client_id=client.client_id,
        timeout_s=client.timeout_s if timeout_s is None else timeout_s,
        security=security_from(client.security),
    )
