"""Addresses in the text of settings.

This file alone decides how a listener, and a bound for single addresses, are written.
"""

import ipaddress

from headwater.base.errors import ErrorCode, HeadwaterError, KafkaError


def split_address(text: str) -> tuple[str, int]:
    """Split ``HOST:PORT``, with or without Kafka's ``PLAINTEXT://`` before it.

    Raises:
        HeadwaterError: The text is no address, or names a protocol we do not speak.
    """
    protocol, separator, rest = text.rpartition("://")
    if separator and protocol.upper() != "PLAINTEXT":
        raise HeadwaterError(
            f"cannot listen with {protocol}: only PLAINTEXT exists", hint="use HOST:PORT"
        )
    host, colon, port = rest.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise HeadwaterError(
            f"{text!r} is no address", hint="write HOST:PORT, for example 127.0.0.1:9092"
        )
    return host, int(port)


def split_overrides(text: str) -> dict[str, int]:
    """Split ``ADDRESS:COUNT,...`` of ``max.connections.per.ip.overrides``.

    Raises:
        KafkaError: INVALID_CONFIG: an entry is no address with a number.
    """
    overrides = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        address, _, count = entry.rpartition(":")
        try:
            key = str(ipaddress.ip_address(address.removeprefix("[").removesuffix("]")))
            overrides[key] = int(count)
        except ValueError:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"max.connections.per.ip.overrides: {entry!r} is no ADDRESS:COUNT",
            ) from None
    return overrides
