"""What is asked of a pass over one log, and what comes back.

This file alone decides what crosses the border between whoever plans a pass and whoever runs it,
which may be another process: plain values, as one line of JSON each way.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from headwater.log.txn_index import TxnIndexEntry


class SegmentFacts(NamedTuple):
    """A closed segment: the offset it starts at, and its bytes of batches and of both indexes."""

    base_offset: int
    size: int
    offset_index_bytes: int
    time_index_bytes: int


class LastOfProducer(NamedTuple):
    """Where the sequence numbers of an active producer stand.

    Attributes:
        producer_id: Which producer.
        producer_epoch: Its epoch.
        last_offset: The end of its last batch of data in this epoch, -1 where it has none.
    """

    producer_id: int
    producer_epoch: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One pass over one log.

    Attributes:
        topic: Whose log it is.
        partition: Which one.
        directory: Where its files are.
        segments: All that may be rewritten, oldest first.
        end_offset: Where the first segment begins that may not be.
        first_dirty_offset: Up to here an earlier pass has been.
        now_ms: The calendar's time, against which delete horizons are held.
        delete_retention_ms: How long tombstones and markers stay from now on.
        segment_bytes: How large a segment may become by merging.
        segment_index_bytes: How large its indexes may.
        index_interval_bytes: The distance of index entries.
        dedupe_buffer_bytes: How much memory the keys may take.
        producers: Those whose sequence numbers must survive.
        aborted: The aborted transactions that reach into the segments.
    """

    topic: str
    partition: int
    directory: str
    segments: Sequence[SegmentFacts]
    end_offset: int
    first_dirty_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    dedupe_buffer_bytes: int
    producers: Sequence[LastOfProducer] = ()
    aborted: Sequence[TxnIndexEntry] = ()

    def encode(self) -> bytes:
        """Write it as one line."""
        return _encode(self)

    @classmethod
    def decode(cls, line: bytes) -> "Job":
        """Read what `encode` wrote."""
        values = json.loads(line)
        values["segments"] = [SegmentFacts(*each) for each in values["segments"]]
        values["producers"] = [LastOfProducer(*each) for each in values["producers"]]
        values["aborted"] = [TxnIndexEntry(*each) for each in values["aborted"]]
        return cls(**values)


class NewSegment(NamedTuple):
    """A segment under the name of one that is being written, complete and synced.

    Attributes:
        base_offset: Where it starts, which is where the first of those it replaces does.
        size: Its bytes of batches.
        replaces: The base offsets of the segments that it was made from.
        suffixes: Which files it has.
    """

    base_offset: int
    size: int
    replaces: Sequence[int]
    suffixes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What a pass has made.

    Attributes:
        clean_offset: Below this, no key occurs twice any more once the segments are in place.
        segments: What takes the place of what; segments without a change are not named.
        read_bytes: What was looked at.
        written_bytes: What was written.
        dropped_records: What is gone.
        keyless_records: What of it is gone because it had no key.
        complaints: Batches and segments that could not be read and were left alone.
    """

    clean_offset: int
    segments: Sequence[NewSegment]
    read_bytes: int = 0
    written_bytes: int = 0
    dropped_records: int = 0
    keyless_records: int = 0
    complaints: Sequence[str] = ()

    def encode(self) -> bytes:
        """Write it as one line."""
        return _encode(self)

    @classmethod
    def decode(cls, line: bytes) -> "Cleaned":
        """Read what `encode` wrote."""
        values = json.loads(line)
        values["segments"] = [NewSegment(*each) for each in values["segments"]]
        return cls(**values)


def _encode(value: Job | Cleaned) -> bytes:
    # Not `asdict`, which copies every entry: a partition may have a hundred thousand producers.
    return json.dumps({each.name: getattr(value, each.name) for each in fields(value)}).encode() + (
        b"\n"
    )
