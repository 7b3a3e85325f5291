"""Making durable what a log has left to the page cache.

This file alone decides what is synced before a topic's config says that its records are durable.
After a crash the config tells whether acknowledged records may be lost, so that it must never be
ahead of them. A commit must not be under way meanwhile: if it fails, it is told alone, and a sync
beside it reports a success that is none.
"""

from headwater.base.disk import Disk, may_pass, parent_directory, remedy, sync_names
from headwater.base.errors import StorageError
from headwater.base.settings import TopicConfig
from headwater.log.names import LOG
from headwater.log.partition import PartitionLog
from headwater.log.unsynced import sync_now


def settle(disk: Disk, log: PartitionLog, config: TopicConfig) -> None:
    """Sync what the log has written, if this config is the one that makes its records durable.

    Raises:
        StorageError: That was not possible, perhaps because a commit is under way; after a failed
            sync the log takes no more records.
    """
    if log.is_durable or not config.is_durable or log.synced_offset >= log.log_end_offset:
        return
    if log.failed:
        raise StorageError(log.failure)
    if log.committing:
        message = f"{log.directory}: its records are being synced"
        raise StorageError(message, hint="try again", passes=True)
    try:
        for segment in _with_tail(log):
            file = disk.open(segment)
            try:
                sync_now(file)
            finally:
                file.close()
        for directory in (log.directory, parent_directory(log.directory)):
            sync_names(disk, directory)
    except OSError as error:
        if may_pass(error):
            message = f"{log.directory}: {error}"
            raise StorageError(message, hint=remedy(error), passes=True) from error
        log.fail(str(error))
        raise StorageError(log.failure) from error


def _with_tail(log: PartitionLog) -> list[str]:
    """Return the files that hold records which are not known to be durable."""
    bases = [segment.base_offset for segment in log.segments]
    ends = [*bases[1:], log.log_end_offset]
    return [
        segment.path(LOG)
        for segment, end in zip(log.segments, ends, strict=True)
        if end > log.synced_offset
    ]
