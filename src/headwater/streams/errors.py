"""What can go wrong between Spark and the log, by name, and how Spark shows it.

This file alone decides which errors the source and the sink raise beyond those of the client, and
that their hints reach whoever reads Spark's exception: Spark keeps the traceback of a Python
process and nothing else.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from headwater.base.errors import HeadwaterError


class OptionError(HeadwaterError):
    """An option of `format("headwater")` that is unknown, forbidden or wrong."""


class CheckpointError(HeadwaterError):
    """The offsets in Spark's checkpoint are not ours, or are of a newer version."""


class SourcesChangedError(CheckpointError):
    """A source finds the offsets of topics that it does not read: those of another source."""


class UnknownTopicError(HeadwaterError):
    """A topic or a partition that the query names does not exist."""


class DataLossError(HeadwaterError):
    """Records that the query was to read are not there any more."""


class TopicRecreatedError(DataLossError):
    """The topic has another id than in the checkpoint: it is not the same log."""


@contextmanager
def hints_shown() -> Iterator[None]:
    """Add the hint of an error to what a traceback shows of it."""
    try:
        yield
    except HeadwaterError as error:
        note = f"hint: {error.hint}"
        if error.hint and note not in getattr(error, "__notes__", []):
            error.add_note(note)
        raise
