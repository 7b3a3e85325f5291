"""What a topic may be called.

This file alone decides that, for the broker and for whoever names a topic before there is a broker
to ask. The sentences are Kafka's, so that a user finds them by searching.
"""

import re
from typing import Final

NAME_LENGTH_MAX: Final = 249
"""As in Kafka: it leaves room for ``-<partition>`` and the suffix of a deleted directory."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def maybe_name_problem(name: str) -> str | None:
    """Return what is wrong with the name of a topic, or None where nothing is."""
    if not name:
        return "the empty string is not allowed"
    if name in {".", ".."}:
        return f"'{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if not _LEGAL.fullmatch(name):
        return (
            f"'{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None
