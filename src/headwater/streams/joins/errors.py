"""What can go wrong in a join, by name.

This file alone decides which errors joins raise beyond those of the kernel.
"""

from headwater.base.errors import HeadwaterError


class JoinTooLargeError(HeadwaterError):
    """One step would give more pairs than a process can hold.

    Attributes:
        key: The bytes of the key with the most pairs; whoever knows the types of the key columns
            can decode them.
        pairs: How many pairs the whole step would give.
    """

    def __init__(self, key: bytes, *, key_pairs: int, pairs: int, pairs_max: int) -> None:
        super().__init__(
            f"a join would give {pairs} rows in one step of one bucket, and {pairs_max} are "
            f"allowed; {key_pairs} of them are of the key {key.hex()} (its bytes in hex)",
            hint="join on more columns, shorten the interval, leave the key out of one side, or "
            "read fewer rows a batch (maxOffsetsPerTrigger)",
        )
        self.key = key
        self.pairs = pairs


class JoinOptionError(HeadwaterError):
    """A kind, an interval or a bound that a join cannot have."""


class ChangelogError(HeadwaterError):
    """Changes that cannot have happened: a row that appears while it is there already."""


class JoinColumnError(HeadwaterError):
    """Columns by which a join cannot work: missing, of two types, or of one name on both sides."""


class TableError(HeadwaterError):
    """A topic that cannot be read as a table in the way that was asked for."""
