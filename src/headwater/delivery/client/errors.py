"""What can go wrong between us and a broker that is not ours to mend.

This file alone decides how a broken or silent broker is reported; error codes that a broker sends
stay `KafkaError`.
"""

from headwater.base.errors import HeadwaterError


class BrokerUnreachableError(HeadwaterError):
    """Nobody answers at the address, or the connection broke."""


class BrokerTimeoutError(BrokerUnreachableError):
    """The broker is there but did not answer in time."""


class UnsupportedByBrokerError(HeadwaterError):
    """The broker does not offer what was asked for, in no version that we speak."""
