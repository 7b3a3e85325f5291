"""Names that were misspelt, and what was meant.

This file alone decides which name is close enough to another to be suggested.
"""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like a misspelt one, if any is close."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return found[0] if found else None


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean X?" for a misspelt name, or nothing."""
    close = nearest(name, known)
    return f"; did you mean {close}?" if close else ""
