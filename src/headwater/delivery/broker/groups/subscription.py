"""Which topics a consumer subscribes to.

This file alone decides how much of the consumers' own embedded format the broker reads: the list
of topics, which stands first in every version, and nothing behind it.
"""

import struct

from headwater.base.errors import MalformedMessageError

CONSUMER_PROTOCOL_TYPE = "consumer"
_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """Return the topics named in a consumer's metadata.

    Raises:
        MalformedMessageError: The bytes are something else.
    """
    try:
        version, count = _HEAD.unpack_from(metadata)
        # Each topic takes at least the two bytes of its length.
        if version < 0 or not 0 <= count <= len(metadata) // _LENGTH.size:
            raise MalformedMessageError(f"A subscription cannot list {count} topics.")
        position = _HEAD.size
        topics = set()
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            name = metadata[position : position + length]
            if length < 0 or len(name) < length:
                raise MalformedMessageError("A subscription ends inside a topic's name.")
            topics.add(name.decode())
            position += length
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"This is no consumer's subscription: {error}.") from error
    return frozenset(topics)
