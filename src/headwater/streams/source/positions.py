"""What there is to read, as the brokers say it.

This file alone decides which partitions the options choose and which offsets their words mean:
earliest, latest, a timestamp. It asks within the client's patience, also brokers that are away for
a while, and decides nothing about batches.

A broker that has just started may not know a topic that it has. So what a checkpoint has and the
answer has not is asked for again until the client's patience ends, once: it is believed to be gone
until it is seen again.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.spelling import suggestion
from headwater.base.uuids import uuid_to_text
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster, TopicInfo, is_retriable_or_broken
from headwater.streams.errors import DataLossError, OptionError, UnknownTopicError
from headwater.streams.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Bound,
    Kind,
    SourceOptions,
)
from headwater.streams.source.offsets import Offsets, Place
from headwater.streams.source.ranges import Available, Range, absent

Result = TypeVar("Result")
_NO_TOPIC_ID = bytes(16)
_LOG = logging.getLogger(__name__)


class Initial(NamedTuple):
    """Where a query begins."""

    positions: dict[Place, int]
    ids: Mapping[str, str]


class _IncompleteError(KafkaError):
    """What the brokers have named lacks partitions that they had before."""

    def __init__(self, available: Available, missing: set[Place]) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.available = available
        self.missing = missing


class Positions:
    """Asks the brokers about the partitions that the options choose."""

    def __init__(self, cluster: Cluster, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._gone: set[Place] = set()

    def available(self, expected: Offsets) -> Available:
        """Return what is there now; topics that do not exist are left out.

        Args:
            expected: What is asked for again if it seems not to be there.
        """
        try:
            return self._patiently(lambda: self._complete(expected))
        except _IncompleteError as error:
            self._gone.update(error.missing)
            return error.available

    def _complete(self, expected: Offsets) -> Available:
        available = self._available(self._topics())
        self._gone -= available.starts.keys()
        missing = set(absent(expected, available)) - self._gone
        if missing:
            raise _IncompleteError(available, missing)
        return available

    def initial(self) -> Initial:
        """Return where a query without a checkpoint begins.

        Raises:
            UnknownTopicError: A topic or partition that is named does not exist.
            OptionError: The offsets given are not those of the partitions chosen.
            DataLossError: An offset given has no record any more, or not yet.
        """
        return self._patiently(self._initial)

    def batch(self) -> list[Range]:
        """Return what a batch read covers, one range per partition; empty ones are left out.

        Raises:
            UnknownTopicError: As in `initial`.
            OptionError: As in `initial`.
            DataLossError: As in `initial`.
        """
        return self._patiently(self._batch)

    def _patiently(self, action: Callable[[], Result]) -> Result:
        return self._cluster.retrying(action, passes=is_retriable_or_broken)

    # --- which partitions -----------------------------------------------------------------------

    def _topics(self) -> dict[str, TopicInfo]:
        choice = self._options.choice
        if choice.pattern is not None:
            return {
                name: info
                for name, info in self._cluster.topics().items()
                if not info.is_hidden and choice.matches(name)
            }
        self._cluster.refresh(choice.names())
        known = [name for name in choice.names() if self._cluster.knows(name)]
        return {name: self._cluster.topic(name) for name in known}

    def _places(self, topics: Mapping[str, TopicInfo]) -> list[Place]:
        wanted = self._options.choice.partitions
        return [
            (name, each.number)
            for name, info in topics.items()
            for each in info.partitions
            if wanted is None or each.number in wanted[name]
        ]

    def _existing(self) -> dict[str, TopicInfo]:
        """Return the chosen topics, all of which must be there."""
        topics = self._topics()
        choice = self._options.choice
        for name in choice.names():
            if name not in topics:
                found = self._cluster.topics().values()
                others = [each.name for each in found if not each.is_hidden]
                raise UnknownTopicError(
                    f"topic {name!r} does not exist at {self._cluster.bootstrap}"
                    + suggestion(name, others),
                    hint=f"create it with: headwater topic create {name}",
                )
            count = len(topics[name].partitions)
            missing = [each for each in (choice.partitions or {}).get(name, ()) if each >= count]
            if missing:
                raise UnknownTopicError(
                    f"topic {name!r} has no partition {missing[0]}",
                    hint=f"it has {count}, from 0 on; see: headwater topic describe {name}",
                )
        return topics

    # --- which offsets --------------------------------------------------------------------------

    def _available(self, topics: Mapping[str, TopicInfo]) -> Available:
        places = self._places(topics)
        starts = self._offsets(places, admin.EARLIEST)
        ends = self._offsets(places, admin.LATEST, read_committed=self._options.read_committed)
        # Asked last, so that no record that may be read lies behind the log's end.
        log_ends = ends
        if self._options.read_committed:
            log_ends = self._offsets(places, admin.LATEST)
        return Available(_ids(topics), starts, ends, log_ends)

    def _offsets(
        self, places: Iterable[Place], timestamp: int, *, read_committed: bool = False
    ) -> dict[Place, int]:
        wanted = dict.fromkeys(places, timestamp)
        return admin.list_offsets(self._cluster, wanted, read_committed=read_committed)

    def _initial(self) -> Initial:
        topics = self._existing()
        available = self._available(topics)
        return Initial(self._starting(available), available.ids)

    def _batch(self) -> list[Range]:
        topics = self._existing()
        available = self._available(topics)
        starts, ends = self._starting(available), self._ending(available)
        ranges = []
        for (topic, number), start in sorted(starts.items()):
            end = ends[topic, number]
            if end < start and self._options.ending.kind is Kind.OFFSETS:
                raise OptionError(
                    f"endingOffsets: {topic}-{number} would end at {end} and begin at {start}",
                    hint="an end is the offset behind the last record",
                )
            if end > start:
                ranges.append(Range(topic, available.ids[topic], number, start, end))
        return ranges

    def _starting(self, available: Available) -> dict[Place, int]:
        bound = self._options.starting
        if bound.kind is Kind.EARLIEST:
            return dict(available.starts)
        if bound.kind is Kind.LATEST:
            return dict(available.ends)
        if bound.kind is Kind.OFFSETS:
            given = _each_of(bound, available, "startingOffsets")
            return {place: self._inside(place, given[place], available) for place in given}
        found = self._by_timestamp(bound, available, "startingOffsetsByTimestamp")
        if self._options.timestamp_strategy == "error":
            for place, (timestamp_ms, offset) in found.items():
                if offset is None:
                    raise DataLossError(
                        f"{place[0]}-{place[1]} has no record at or after {timestamp_ms}",
                        hint="begin there with what comes next: "
                        ".option('startingOffsetsByTimestampStrategy', 'latest')",
                    )
        ends = available.ends
        return {place: ends[place] if at is None else at for place, (_, at) in found.items()}

    def _ending(self, available: Available) -> dict[Place, int]:
        bound = self._options.ending
        if bound.kind is Kind.LATEST:
            return dict(available.ends)
        if bound.kind is Kind.OFFSETS:
            given = _each_of(bound, available, "endingOffsets")
            return {place: self._reached(place, given[place], available) for place in given}
        found = self._by_timestamp(bound, available, "endingOffsetsByTimestamp")
        ends = available.ends
        return {place: ends[place] if at is None else at for place, (_, at) in found.items()}

    def _by_timestamp(
        self, bound: Bound, available: Available, name: str
    ) -> dict[Place, tuple[int, int | None]]:
        """Return the timestamp asked for and the first offset that has it, if any has."""
        if bound.kind is Kind.TIMESTAMP:
            timestamps = dict.fromkeys(available.ends, bound.timestamp_ms)
        else:
            timestamps = _each_of(bound, available, name)
        committed = self._options.read_committed
        found = admin.list_offsets(self._cluster, timestamps, read_committed=committed)
        # The client answers with the end where no record is young enough.
        ends = self._offsets(found, admin.LATEST, read_committed=committed)
        return {
            place: (timestamps[place], offset if offset < ends[place] else None)
            for place, offset in found.items()
        }

    def _inside(self, place: Place, offset: int, available: Available) -> int:
        """Return the offset that a start given by the user means."""
        first, last = available.starts[place], available.log_ends[place]
        if offset == EARLIEST_OFFSET:
            return first
        if offset == LATEST_OFFSET:
            return available.ends[place]
        if first <= offset <= last:
            return offset
        self._lost(
            f"startingOffsets: {place[0]}-{place[1]} has records {first} to {last - 1}, not "
            f"{offset}"
        )
        return min(max(offset, first), last)

    def _reached(self, place: Place, offset: int, available: Available) -> int:
        """Return the offset that an end given by the user means."""
        end = available.ends[place]
        if offset in {LATEST_OFFSET, end}:
            return end
        if offset < end:
            return offset
        self._lost(f"endingOffsets: {place[0]}-{place[1]} ends at {end}, before {offset}")
        return end

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                what, hint="to read what there is: .option('failOnDataLoss', 'false')"
            )
        _LOG.warning("%s; reading what there is", what)


def _ids(topics: Mapping[str, TopicInfo]) -> dict[str, str]:
    """Return the ids in text; brokers before 2.8 have none."""
    return {
        name: "" if info.topic_id in {b"", _NO_TOPIC_ID} else uuid_to_text(info.topic_id)
        for name, info in topics.items()
    }


def _each_of(bound: Bound, available: Available, name: str) -> dict[Place, int]:
    """Return the number given for each partition that is chosen; there must be one for each."""
    given = {
        (topic, number): value
        for topic, numbers in bound.by_partition.items()
        for number, value in numbers.items()
    }
    for what, places in (
        ("has nothing for", available.starts.keys() - given.keys()),
        ("has something for", given.keys() - available.starts.keys()),
    ):
        if places:
            topic, number = min(places)
            raise OptionError(
                f"{name} {what} {topic}-{number}, which is "
                + ("read" if what == "has nothing for" else "not read"),
                hint="give every partition that is read: -2 stands for earliest, -1 for latest"
                if "ByTimestamp" not in name
                else "give every partition that is read, and no other",
            )
    return given
