"""Ids in Kafka's text form.

This file alone decides how the 16 bytes of an id are written for people and files: base64 with the
url-safe alphabet, without padding, 22 characters.
"""

import base64


def uuid_to_text(uuid: bytes) -> str:
    """Return the 22 characters that stand for 16 bytes."""
    assert len(uuid) == 16
    return base64.urlsafe_b64encode(uuid)[:22].decode()


def uuid_from_text(text: str) -> bytes:
    """Return the 16 bytes behind Kafka's text form.

    Raises:
        ValueError: The text is no id.
    """
    if len(text) != 22:
        raise ValueError(f"{text!r} is no id of 22 characters")
    # Python skips letters that are not of the alphabet; an id with such a letter would come short.
    uuid = base64.urlsafe_b64decode(f"{text}==")
    if uuid_to_text(uuid.ljust(16, b"\0")[:16]) != text:
        raise ValueError(f"{text!r} is no id")
    return uuid
