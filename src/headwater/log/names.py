"""The names and small text files of a partition's directory.

This file alone decides what the files of a partition are called and what `partition.metadata`
says; both are Apache Kafka's. It opens nothing.

    00000000000000000000.log        batches; the number is the offset of the first one
    00000000000000000000.index      offset -> position
    00000000000000000000.timeindex  timestamp -> offset
    00000000000000000000.txnindex   aborted transactions; only where there are any
    00000000000000000042.snapshot   producers as they were before offset 42
    leader-epoch-checkpoint         leader epoch -> first offset written in it
    partition.metadata              which topic this is, by id

A name may carry one more suffix while it is on its way in or out: `.deleted` waits to be removed,
`.cleaned` is being written by compaction, `.swap` is complete and about to replace what it was
made from, `.tmp` is about to be renamed.
"""

import base64
import re
from typing import Final

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX)

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
TEMPORARY: Final = ".tmp"

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

_OFFSET_NAME = re.compile(r"(\d{20})(\.(?:log|index|timeindex|txnindex|snapshot))(\.\w+)?")
_METADATA = re.compile(r"version: 0\ntopic_id: ([A-Za-z0-9_-]{22})\s*")


def offset_name(offset: int, suffix: str) -> str:
    """Build a file name from an offset."""
    return f"{offset:020d}{suffix}"


def parse_offset_name(name: str) -> tuple[int, str, str] | None:
    """Take a file name apart: offset, kind, and the further suffix or nothing."""
    match = _OFFSET_NAME.fullmatch(name)
    if match is None:
        return None
    return int(match[1]), match[2], match[3] or ""


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """Write the content of `partition.metadata`."""
    text = base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()
    return f"version: 0\ntopic_id: {text}".encode()


def decode_partition_metadata(content: bytes) -> bytes | None:
    """Read the topic id; None where the content is torn or of another version."""
    match = _METADATA.fullmatch(content.decode("ascii", errors="replace"))
    return base64.urlsafe_b64decode(match[1] + "==") if match is not None else None
