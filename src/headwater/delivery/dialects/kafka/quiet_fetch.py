"""A fetch that finds nothing new: its answer is put together from pieces that exist already.

This file alone decides which fetches are so, and what of their answers is kept: per partition the
bytes that were told last, with the state that they tell of. A client without sessions names a
thousand partitions twice a second even when nothing happens.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from headwater.base.errors import ErrorCode
from headwater.base.schema import codec
from headwater.delivery.broker.fetch import Limits
from headwater.delivery.broker.fetch_sessions import NO_SESSION
from headwater.delivery.broker.partition import Partition
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.dialects.kafka.fetching import (
    FIRST_WITH_TOPIC_IDS,
    PARTITION_BYTES,
    Fetch,
    has_to_wait,
    wanted_by,
)
from headwater.delivery.wire.kafka import messages

_Topic = messages.FetchResponse.FetchableTopicResponse
_Partition = messages.FetchResponse.PartitionData


class QuietFetch:
    """A fetch that found every partition at its end; its answer is ready from the beginning."""

    __slots__ = ("_awake", "_call", "_limits", "_request", "partitions", "response")

    def __init__(self, call: Call, request: messages.FetchRequest, limits: Limits) -> None:
        self._call = call
        self._request = request
        self._limits = limits
        self._awake: Fetch | None = None
        self.response = messages.FetchResponse()
        self.partitions: list[Partition] = []

    def look(self) -> bool:
        """Something happened: from now on it is a fetch like any other."""
        if self._awake is None:
            wanted = list(wanted_by(self._call, self._request))
            # A topic that was deleted meanwhile is one that ended, not one that never was.
            for each, partition in zip(wanted, self.partitions, strict=True):
                each.partition = partition
            self._awake = Fetch(self._call, self._limits, wanted)
        return self._awake.look()

    def answer(self) -> None:
        """Answer with what was ready, unless something has happened."""
        if self._awake is not None:
            self._awake.answer()
        elif not (
            self._call.broker.quotas.watching
            and has_to_wait(self._call, PARTITION_BYTES * len(self.partitions), NO_SESSION)
        ):
            self._call.reply(self.response)


def maybe_quiet_fetch(
    call: Call, request: messages.FetchRequest, limits: Limits
) -> QuietFetch | None:
    """Return the fetch if it has to wait, and for nothing but records; else None.

    One pass over the partitions, because there may be a thousand of them, twice a second.
    """
    if limits.min_bytes <= 0 or limits.max_wait_ms <= 0:
        return None
    topics = call.broker.topics
    by_id = call.version >= FIRST_WITH_TOPIC_IDS
    read_committed = limits.read_committed
    leader_epoch = call.broker.leader_epoch
    kind = (call.version, read_committed)
    fetch = QuietFetch(call, request, limits)
    for asked_topic in request.topics:
        topic = topics.by_id(asked_topic.topic_id) if by_id else topics.get(asked_topic.topic)
        if topic is None:
            return None
        partitions = topic.partitions
        count = len(partitions)
        pieces: list[Any] = []
        for asked in asked_topic.partitions:
            if not 0 <= asked.partition < count:
                return None
            partition = partitions[asked.partition]
            log = partition.log
            high_watermark = log.high_watermark
            last_stable_offset = log.last_stable_offset
            end = last_stable_offset if read_committed else high_watermark
            if asked.fetch_offset != end or 0 <= asked.current_leader_epoch != leader_epoch:
                return None
            state = (kind, high_watermark, last_stable_offset, log.log_start_offset)
            told = partition.quiet_answer
            if told is None or told[0] != state:
                told = partition.quiet_answer = (state, _encode_quiet(asked.partition, *state))
            pieces.append(told[1])
            fetch.partitions.append(partition)
        fetch.response.responses.append(_Topic(asked_topic.topic, asked_topic.topic_id, pieces))
    return fetch if fetch.partitions else None


def _encode_quiet(
    index: int,
    kind: tuple[int, bool],
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
) -> bytes:
    version, read_committed = kind
    told = _Partition(
        index, ErrorCode.NONE, high_watermark, last_stable_offset, log_start_offset, records=b""
    )
    told.aborted_transactions = [] if read_committed else None
    return _element_encoder(version)(told)


@cache
def _element_encoder(version: int) -> Callable[[_Partition], bytes]:
    return codec(messages.FetchResponse, version).element_encoder(_Partition)
