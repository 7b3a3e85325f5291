"""Whether a data directory still has what it had.

This file alone decides when the absence of the journal is a loss. VERSION is written when the
journal is durable, and partitions are made later still. Where one of them is there without the
journal, something was taken away, usually because a volume is not mounted: nothing may be begun
anew in its place.
"""

from typing import Final

from headwater.base.disk import Disk, parent_directory
from headwater.log.directories import parse_partition_directory
from headwater.log.manifest import ManifestDamagedError

JOURNAL: Final = "headwater.journal"


def check_journal(disk: Disk, directory: str) -> None:
    """Refuse a log directory that must have a journal and has none.

    Raises:
        ManifestDamagedError: It has none.
    """
    if disk.exists(f"{directory}/{JOURNAL}"):
        return
    names = disk.list_directory(directory) if disk.exists(directory) else []
    if any(map(parse_partition_directory, names)):
        message = f"{directory} holds partitions but no {JOURNAL}, which says what they are"
        hint = "restore that file from a backup, or start with another --data directory"
    else:
        data_directory = parent_directory(directory)
        message = f"{data_directory} was in use, but {directory}/{JOURNAL} is not there"
        hint = "mount the volume that holds it, or restore it from a backup; where nothing of it is"
        hint += f" wanted any more, remove {data_directory}/VERSION to begin anew"
    raise ManifestDamagedError(message, hint=hint)
