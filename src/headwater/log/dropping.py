"""Dropping the oldest records above a bound, and finding the log starts again after a crash.

This file alone decides what `headwater.overflow=drop` leaves, and how log starts are found again.
They are not written down at each drop: they follow from what is durable and from the bound. A
bound of the topic's own is in the journal. One that is a default of the broker comes from its
settings, which may have changed when it starts again, and a log start that readers were told must
not go back. So the default in force is noted before anything is dropped by it, and after a crash
the noted one is applied once more. Where nothing is dropped by default, there is no note.

    version=0
    headwater.overflow=drop
    headwater.overflow.bytes=67108864
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from headwater.base.disk import Disk, replace_file
from headwater.base.errors import KafkaError
from headwater.base.settings import TopicConfig
from headwater.log.checkpoints import read_properties
from headwater.log.partition import PartitionLog
from headwater.log.topic import Topic

OVERFLOW_DEFAULTS: Final = "overflow.properties"

_KEYS: Final = ("headwater.overflow", "headwater.overflow.bytes")
_VERSION: Final = "0"

logger = logging.getLogger(__name__)


def note_defaults(disk: Disk, path: str, defaults: TopicConfig, before: Callable[[], None]) -> None:
    """Note what is dropped by default from now on, unless that is noted already.

    Args:
        disk: Where the note is.
        path: Its name.
        defaults: What holds for topics that do not say otherwise.
        before: Writes the log starts down that follow from the note so far.

    Raises:
        OSError: As `replace_file`.
    """
    if defaults.headwater_overflow != "drop" and not disk.exists(path):
        return
    wanted = {"version": _VERSION, **{key: defaults.render(key) for key in _KEYS}}
    if read_properties(disk, path) != wanted:
        before()
        replace_file(disk, path, "".join(f"{k}={v}\n" for k, v in wanted.items()).encode())


def drop_again(disk: Disk, path: str, topics: Iterable[Topic], defaults: TopicConfig) -> None:
    """Raise log starts to where the last run had them, whatever the defaults are now."""
    noted = read_properties(disk, path)
    if noted.pop("version", None) != _VERSION:
        return
    try:
        before = TopicConfig.parse(noted, defaults)
        configs = [(topic, TopicConfig.parse(topic.configs, before)) for topic in topics]
    except KafkaError as error:
        logger.warning("ignoring the damaged file %s: %s", path, error.message)
        return
    for topic, config in configs:
        if config.headwater_overflow == "drop" and not topic.internal:
            for log in topic.partitions:
                drop_above(log, config.headwater_overflow_bytes)


def drop_above(log: PartitionLog, bound: int) -> None:
    """Drop the oldest records of a log above a bound in bytes.

    The newest batch stays, whatever its size: nobody could ever read it otherwise.
    """
    log.drop_oldest(max(bound, log.newest_batch_bytes()))
