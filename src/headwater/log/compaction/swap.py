"""New segments in place of old ones, whenever the power goes.

This file alone decides in which order names change, so that a start finds the old segments or the
new one, never some of each:

    0  the directory is synced, so that every .cleaned name is there until it is changed
    1  .cleaned -> .swap, the directory is synced: from here on the new one counts. As long as one
       name still says .cleaned, a start removes them all, and those of the segments behind it, so
       segments are put in place in their order, and what is not wanted goes first
    2  the old segments -> .deleted, the directory is synced: a start would do the same, because it
       finds the .swap
    3  .swap -> the final name, the directory is synced

Between 2 and 3 the sync matters: with the new segment under its final name nothing would tell a
start that the old ones beside it are to go. The last batch of the new segment tells how far it
reaches, which is why it is never dropped.

Readers who hold a file keep it. Between two steps nobody is let in, so nobody opens a name that has
just changed.
"""

from collections.abc import Sequence

from headwater.base.disk import Disk, Names, may_pass, sync_names
from headwater.base.errors import StorageError
from headwater.log.compaction.job import NewSegment
from headwater.log.names import CLEANED, SWAP, offset_name
from headwater.log.partition import PartitionLog
from headwater.log.segment import Segment


def swap_in(disk: Disk, log: PartitionLog, new: NewSegment, *, due_ms: int) -> bool:
    """Let a new segment take the place of those it was made from.

    Args:
        disk: Where the files are.
        log: Whose they are.
        new: What a pass has made.
        due_ms: When the files of the old ones may go.

    Returns:
        False where retention has taken one of the old ones meanwhile; then the old ones hold, and
        the new one is gone.

    Raises:
        StorageError: The disk failed, and the log has failed with it; or the disk is full or what
            was made is gone, and the old segments hold.
    """
    place = log.segments.find(new.replaces)
    paths = [f"{log.directory}/{offset_name(new.base_offset, suffix)}" for suffix in new.suffixes]
    try:
        if place is None:
            for path in paths:
                disk.remove(path + CLEANED)
            return False
        # Opened once for all steps: none of them may fail for want of a descriptor.
        names = Names(disk, log.directory)
    except OSError as error:
        raise _failed(log, error) from error
    with names:
        try:
            names.sync()
            for path in paths:
                disk.rename(path + CLEANED, path + SWAP)
        except OSError as error:
            raise _failed(log, error) from error
        try:
            _replace(disk, log, new, names, place=place, paths=paths, due_ms=due_ms)
        except OSError as error:
            log.fail(f"a cleaned segment cannot be put in place: {error}")
            raise StorageError(log.failure) from error
    return True


def _replace(
    disk: Disk,
    log: PartitionLog,
    new: NewSegment,
    names: Names,
    *,
    place: int,
    paths: Sequence[str],
    due_ms: int,
) -> None:
    """Do what follows once the new segment counts; there is no way back from here."""
    names.sync()
    old = [log.segments[place + number] for number in range(len(new.replaces))]
    segment = Segment(
        disk,
        log.directory,
        new.base_offset,
        size=new.size,
        created_ms=max(segment.created_ms for segment in old),
    )
    for replaced in old:
        replaced.mark_deleted()
    names.sync()
    for path in paths:
        disk.rename(path + SWAP, path)
    log.segments.replace(place, len(old), segment, due_ms=due_ms)
    names.sync()


def _failed(log: PartitionLog, error: OSError) -> StorageError:
    """Say that the old segments hold; the log fails unless it was a lack that may pass."""
    if may_pass(error) or isinstance(error, FileNotFoundError):
        return StorageError(f"{log.directory} cannot be compacted: {error}")
    log.fail(f"a cleaned segment cannot be put in place: {error}")
    return StorageError(log.failure)


def remove_cleaned(disk: Disk, directory: str) -> None:
    """Remove what passes have written that will not be put in place.

    Raises:
        OSError: Something could not be removed; the next start does it.
    """
    if not disk.is_directory(directory):
        return
    names = disk.list_directory(directory)
    swaps = [name for name in names if name.endswith(SWAP)]
    for name in swaps:
        disk.remove(f"{directory}/{name}")
    if swaps:
        # A .swap that outlives the .cleaned beside it would count as complete.
        sync_names(disk, directory)
    for name in names:
        if name.endswith(CLEANED):
            disk.remove(f"{directory}/{name}")
