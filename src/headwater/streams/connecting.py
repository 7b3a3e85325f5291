"""How options become a client of the brokers.

This file alone decides how the source and the sink connect; what the options mean stands in
`options` and `client_options`.
"""

from headwater.delivery.client.cluster import Cluster
from headwater.streams.client_options import ClientOptions
from headwater.streams.errors import OptionError


def connect(bootstrap: str, client: ClientOptions, *, timeout_s: float | None = None) -> Cluster:
    """Return a client; it connects when it is first used.

    Args:
        bootstrap: HOST:PORT of one or more brokers.
        client: What the `kafka.*` options say.
        timeout_s: Another patience than theirs.

    Raises:
        HeadwaterError: The address or what is said of security cannot be used.
    """
    protocol = client.security.get("security.protocol", "PLAINTEXT")
    if protocol.upper() != "PLAINTEXT":
        raise OptionError(
            f"kafka.security.protocol = {protocol} is not spoken", hint="connect in plain text"
        )
    return Cluster(
        bootstrap,
        client_id=client.client_id,
        timeout_s=client.timeout_s if timeout_s is None else timeout_s,
    )
