"""Which dead letters have been sent back already.

This file alone decides how that is remembered: in the topic `__hw_redrive`, whose records are sent
in the same transaction as the letters that they speak of. So a letter is remembered if and only if
it was sent back, whatever is killed in between.

    key      name of the dead-letter topic, its id, partition, number of a stretch of offsets
    value    JSON: version 1, ranges (first and last offset of each, in order)

A stretch is ten thousand offsets, so that no record grows without bounds. The topic's id is in the
key because offsets begin again when a topic is deleted and created again. A field may be added
without a new version; readers skip what they do not know.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from headwater.base.errors import HeadwaterError
from headwater.base.record.records import Record, build_batch
from headwater.cli import positions
from headwater.cli.positions import Kind, Position
from headwater.cli.ranges import RangeReader
from headwater.delivery.client.cluster import Cluster, Place, TopicInfo
from headwater.delivery.client.compacted_topic import CompactedTopic

TOPIC: Final = "__hw_redrive"
_PLACE: Final = (TOPIC, 0)
_VERSION: Final = 1
# Half of them one by one, at most twelve bytes each in JSON, are 60 kB.
_STRETCH: Final = 10_000
_PAUSE_S: Final = 0.01


class Redriven:
    """The letters of one topic that have been sent back."""

    def __init__(self, topic: TopicInfo) -> None:
        """Nothing yet; `read` finds out what."""
        self._prefix = f"{topic.name}/{topic.topic_id.hex()}/"
        self._offsets: defaultdict[tuple[int, int], set[int]] = defaultdict(set)

    def __contains__(self, place: tuple[int, int]) -> bool:
        """Tell whether the letter of a partition and an offset is among them."""
        partition, offset = place
        return offset in self._offsets.get((partition, offset // _STRETCH), ())

    def read(self, cluster: Cluster, *, settled: bool) -> None:
        """Read what is remembered.

        Args:
            cluster: Where.
            settled: Whether all that was written before must be known, even if that means to wait
                for a transaction of somebody else; the topic is made if it is not there. Otherwise
                what is committed is enough.

        Raises:
            HeadwaterError: A transaction stayed open, or a record is of another version.
        """
        topic = CompactedTopic(cluster, TOPIC)
        if settled:
            # From here on it is known to be there, whatever a broker that has just started says.
            topic.prepare()
        if not topic.exists():
            return
        places, latest = [_PLACE], Position(Kind.LATEST)
        end = positions.resolve_end(cluster, places, latest, read_committed=not settled)
        start = positions.resolve(cluster, places, Position(Kind.EARLIEST))
        reader = RangeReader(cluster, start.offsets, end.offsets, on_loss=lambda _: None)
        left, deadline_s = reader.offsets_left, time.monotonic() + cluster.timeout_s
        while not reader.done:
            for message in reader.read():
                self._take(message.key or b"", message.value)
            if reader.offsets_left < left:
                left, deadline_s = reader.offsets_left, time.monotonic() + cluster.timeout_s
            elif time.monotonic() > deadline_s:
                raise HeadwaterError(
                    f"a transaction in {TOPIC} has been open for {cluster.timeout_s:g} s",
                    hint="try again: the broker ends it by itself; who it is: headwater doctor",
                )

    def add(self, letters: Iterable[tuple[int, int]], *, now_ms: int) -> bytes:
        """Remember letters, by partition and offset; return the batch that has to be sent."""
        touched = set()
        for partition, offset in letters:
            stretch = (partition, offset // _STRETCH)
            self._offsets[stretch].add(offset)
            touched.add(stretch)
        records = [
            Record(0, now_ms, self._key(stretch), _value(self._offsets[stretch]))
            for stretch in sorted(touched)
        ]
        return bytes(build_batch(records))

    def _key(self, stretch: tuple[int, int]) -> bytes:
        return f"{self._prefix}{stretch[0]}/{stretch[1]}".encode()

    def _take(self, key: bytes, value: bytes | None) -> None:
        name = key.decode("utf-8", "replace")
        if not name.startswith(self._prefix):
            return
        partition, number = map(int, name.removeprefix(self._prefix).split("/"))
        self._offsets[partition, number] = set(() if value is None else _parsed(value))


def place() -> Place:
    """Return the partition in which it is remembered."""
    return _PLACE


def await_readable(cluster: Cluster, end: int) -> None:
    """Wait until readers see what was committed before an offset: brokers answer before that.

    Somebody else's transaction may hold it back; then it is not waited for any longer than for an
    answer.
    """
    deadline_s = time.monotonic() + cluster.timeout_s
    latest = Position(Kind.LATEST)
    while time.monotonic() < deadline_s:
        stable = positions.resolve(cluster, [_PLACE], latest, read_committed=True)
        if stable.offsets[_PLACE] >= end:
            return
        time.sleep(_PAUSE_S)


def _value(offsets: set[int]) -> bytes:
    ranges: list[list[int]] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][1] == offset - 1:
            ranges[-1][1] = offset
        else:
            ranges.append([offset, offset])
    return json.dumps({"version": _VERSION, "ranges": ranges}, separators=(",", ":")).encode()


def _parsed(value: bytes) -> Iterator[int]:
    try:
        document = json.loads(value)
        version, ranges = document["version"], document["ranges"]
    except (ValueError, KeyError, TypeError) as error:
        raise HeadwaterError(
            f"a record of {TOPIC} cannot be read: {value[:80]!r}",
            hint=f"nobody but headwater dlq may write to {TOPIC}",
        ) from error
    if version != _VERSION:
        raise HeadwaterError(
            f"a record of {TOPIC} has version {version}",
            hint="a newer Headwater has written it: use that one",
        )
    for first, last in ranges:
        yield from range(first, last + 1)
