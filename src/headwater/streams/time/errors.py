"""What can go wrong with time, by name.

This file alone decides which errors watermarks raise beyond those of the client and the options.
"""

from headwater.base.errors import HeadwaterError


class DurationError(HeadwaterError):
    """A text, or a value, that is no length of time."""


class WatermarkError(HeadwaterError):
    """A watermark was asked for where there can be none."""


class WatermarkMissingError(WatermarkError):
    """An operator that needs a watermark was given rows that have none."""


class ReportError(HeadwaterError):
    """A task could not say how far it has come."""


class TimeLogError(HeadwaterError):
    """What lies in the topic of reports is not what was written."""


class QueryUnknownError(HeadwaterError):
    """A time reader could not learn how far its query has read."""
