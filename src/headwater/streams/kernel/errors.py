"""What can go wrong between keys, state and operators, by name.

This file alone decides which errors the kernel raises beyond those of the source and the sink.
"""

from headwater.base.errors import HeadwaterError


class KeyTypeError(HeadwaterError):
    """A column of a type whose values cannot be told equal by their bytes."""


class KeysTooLargeError(HeadwaterError):
    """The keys of one batch have more bytes than an Arrow column can hold."""


class StateDamagedError(HeadwaterError):
    """State that is not what was written, or that another version has written."""


class ValueTypeError(HeadwaterError):
    """A column of a type that state cannot be kept of."""


class StateMismatchError(HeadwaterError):
    """The state in a checkpoint is that of another operator."""


class StateStoreError(HeadwaterError):
    """A session whose state store cannot hold the state of our operators."""


class RowOriginError(HeadwaterError):
    """Rows of which it is not known any more where they come from."""


class BucketCountError(HeadwaterError):
    """A number of buckets that state cannot be cut into."""


class RetractionError(HeadwaterError):
    """A row is taken back where only plain streams are understood, or one that is not there."""


class OwnOperatorError(HeadwaterError):
    """An operator of one's own that does not keep to what was asked of it."""


def check_version(found: object, known: int) -> None:
    """Refuse state whose form is that of another version.

    Args:
        found: The version that is written in the state.
        known: The one that this program writes and reads.

    Raises:
        StateDamagedError: They differ.
    """
    if found == known:
        return
    which = "another"
    if isinstance(found, int):
        which = "a newer" if found > known else "an older"
    raise StateDamagedError(
        f"state of version {found!r} cannot be read, only {known}",
        hint=f"{which} Headwater has written it: go on with that one, or begin anew without the "
        "state, with a new checkpointLocation",
    )


def retracted(who: str, hint: str = "") -> RetractionError:
    """Return the error for rows that are taken back where none can be.

    Args:
        who: Who cannot take them back, as people call it.
        hint: What to do, if not the same as everywhere.
    """
    return RetractionError(
        f"{who} is given rows that are taken back, and cannot take anything back",
        hint=hint
        or "let what stands before it give final rows: a window with late=hf.drop() or "
        "late=hf.divert(topic); hf.aggregate, hf.top and hf.join_tables take changes",
    )
