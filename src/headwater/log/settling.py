"""Making durable what a log has left to the page cache.

This file alone decides what is synced before a topic's config says that its records are durable.
After a crash the config tells whether acknowledged records may be lost, so that it must never be
ahead of them. All that a commit would sync is: a partition whose names are lost is lost as a whole.

No other commit may be under way: the kernel may report a failed write to that one only, and the
sync here would succeed falsely.
"""

import errno
import os

from headwater.base.disk import may_pass, remedy
from headwater.base.errors import StorageError
from headwater.base.settings import TopicConfig
from headwater.log.partition import PartitionLog
from headwater.log.unsynced import sync_now


def settle(log: PartitionLog, config: TopicConfig) -> None:
    """Sync what the log has written, if this config is the one that makes its records durable.

    Raises:
        StorageError: That was not possible; after a failed sync the log takes no more records.
    """
    if log.is_durable or not config.is_durable or log.synced_offset >= log.log_end_offset:
        return
    if log.failed:
        raise StorageError(log.failure)
    assert not log.committing, "configs change between two rounds of syncs"
    try:
        for item in log.begin_commit():
            sync_now(item)
        log.end_commit()
        if log.synced_offset < log.log_end_offset:
            # Its names wait for a descriptor.
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))  # noqa: TRY301 - as of any other
    except OSError as error:
        if may_pass(error):
            message = f"{log.directory}: {error}"
            raise StorageError(message, hint=remedy(error), passes=True) from error
        log.fail(str(error))
        raise StorageError(log.failure) from error
