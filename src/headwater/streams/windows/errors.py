"""What can go wrong with windows and aggregates, by name.

This file alone decides which errors windows raise beyond those of the kernel.
"""

from headwater.base.errors import HeadwaterError


class AggregateTypeError(HeadwaterError):
    """An aggregate of a column whose type it cannot take, or with settings that make no sense."""


class SumOverflowError(HeadwaterError):
    """A sum that its type cannot hold.

    Attributes:
        group: Which of the groups that were summed it is.
    """

    def __init__(self, message: str, group: int, *, hint: str = "") -> None:
        """Take the group too, so that whoever knows its key and its window can name them."""
        super().__init__(message, hint=hint)
        self.group = group


class WindowSettingError(HeadwaterError):
    """A window whose length, slide, gap or patience makes no sense."""
