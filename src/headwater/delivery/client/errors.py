"""What can go wrong between us and a broker that is not ours to mend.

This file alone decides how a broken or silent broker is reported; error codes that a broker sends
stay `KafkaError`, of which some have a class of their own because callers act on them.
"""

from headwater.base.errors import HeadwaterError, KafkaError


class BrokerUnreachableError(HeadwaterError):
    """Nobody answers at the address, or the connection broke."""


class BrokerTimeoutError(BrokerUnreachableError):
    """The broker is there but did not answer in time."""


class UnsupportedByBrokerError(HeadwaterError):
    """The broker does not offer what was asked for, in no version that we speak."""


class ProducerFencedError(KafkaError):
    """Somebody else has begun to write under our transactional id, or our time is over."""


class TransactionTimedOutError(ProducerFencedError):
    """Our transaction was open for longer than agreed, and the broker has given it up."""


class TopicReplacedError(KafkaError):
    """The topic of that id is gone, whether or not another has its name."""


class AuthenticationError(HeadwaterError):
    """One side could not prove who it is; to try again would change nothing."""


class SecurityOptionError(HeadwaterError):
    """An option about TLS or SASL that contradicts another, or that is not understood."""
