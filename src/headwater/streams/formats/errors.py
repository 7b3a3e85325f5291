"""What can be wrong with a format itself, by name.

This file alone decides it. A record that cannot be decoded is no such error: see `letters`.
"""

from headwater.base.errors import HeadwaterError


class FormatError(HeadwaterError):
    """A schema that cannot be used, a column that is not there, a row that cannot be written."""
