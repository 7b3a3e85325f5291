"""Dropping the oldest records above a bound, and finding the log starts again after a crash.

This file alone decides what `headwater.overflow=drop` leaves, and how log starts are found again.
They are not written down at each drop: they follow from what is durable and from the bound, as long
as the log only grows. Before compaction makes it smaller they are written down (`compaction`). A
bound of the topic's own is in the journal. One that is a default of the broker is noted there, too
(`noted`), before anything is dropped by it, and after a crash the noted one is applied once more.
"""

import logging
from collections.abc import Iterable, Mapping

from headwater.base.errors import KafkaError
from headwater.base.settings import TopicConfig
from headwater.log.partition import PartitionLog
from headwater.log.topic import Topic

logger = logging.getLogger(__name__)


def drop_again(noted: Mapping[str, str], topics: Iterable[Topic], defaults: TopicConfig) -> None:
    """Raise log starts to where the last run had them, whatever the defaults are now."""
    try:
        before = TopicConfig.parse(noted, defaults)
        configs = [(topic, TopicConfig.parse(topic.configs, before)) for topic in topics]
    except KafkaError as error:
        logger.warning("ignoring the defaults of the last run, %s: %s", noted, error.message)
        return
    for topic, config in configs:
        if config.headwater_overflow == "drop" and not topic.internal:
            for log in topic.partitions:
                drop_above(log, config.headwater_overflow_bytes)


def drop_above(log: PartitionLog, bound: int) -> None:
    """Drop the oldest records of a log above a bound in bytes; -1 is no bound.

    The newest batch stays, whatever its size: nobody could ever read it otherwise.
    """
    if bound >= 0:
        log.drop_oldest(max(bound, log.newest_batch_bytes()))
