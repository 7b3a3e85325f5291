"""The records that go through every client, and how two of them are compared.

This file alone decides which contents are worth sending: what is null, empty, large, not text, or
the same as its neighbour.
"""

import base64
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

# A round number that still fits into the largest batch of a topic (1,048,588 bytes).
LARGE_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Record:
    """A record as its producer meant it."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0
    partition: int = 0

    def packed(self) -> dict[str, Any]:
        """Give the form in which programs take it."""
        return {
            "partition": self.partition,
            "timestamp": self.timestamp_ms,
            "key": _packed(self.key),
            "value": _packed(self.value),
            "headers": [[name, _packed(value)] for name, value in self.headers],
        }

    @classmethod
    def unpacked(cls, fields: Mapping[str, Any]) -> Self:
        """Read what a program has read."""
        return cls(
            _unpacked(fields["key"]),
            _unpacked(fields["value"]),
            tuple((name, _unpacked(value)) for name, value in fields["headers"]),
            fields["timestamp"],
            fields["partition"],
        )


def _packed(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _unpacked(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def an_hour_ago_ms() -> int:
    """Give a time that is neither in the future nor past any retention."""
    return int((time.time() - 3_600) * 1_000)


def plain(count: int, *, partitions: int = 1, base_ms: int | None = None) -> list[Record]:
    """Make records that differ, compress well and go round the partitions."""
    first_ms = an_hour_ago_ms() if base_ms is None else base_ms
    return [
        Record(
            key=f"key-{number}".encode(),
            value=f"value {number} ".encode() * 20,
            timestamp_ms=first_ms + number * 1_000,
            partition=number % partitions,
        )
        for number in range(count)
    ]


def peculiar() -> list[Record]:
    """Make one record of every kind that clients have been known to get wrong."""
    contents = [
        Record(b"key", b"value"),
        Record(None, b"no key"),
        Record(b"no value", None),
        Record(None, None),
        Record(b"", b"empty key"),
        Record(b"empty value", b""),
        Record("ключ 🔑".encode(), "Größe 川 \N{SNOWMAN}".encode()),
        Record(bytes(range(256)), bytes(reversed(range(256)))),
        Record(b"large", _incompressible(LARGE_BYTES)),
        Record(b"same", b"same"),
        Record(b"same", b"same"),
        Record(
            b"headers",
            b"value",
            (("plain", b"1"), ("empty", b""), ("ünï", bytes(range(256))), ("none", None)),
        ),
        Record(b"headers", b"twice", (("same", b"1"), ("same", b"2"), ("other", b"3"))),
        Record(b"headers", None, (("tombstone", b"with a header"),)),
    ]
    # Neither ascending nor all different: the log must keep what the producer said.
    base_ms = an_hour_ago_ms()
    return [
        replace(record, timestamp_ms=base_ms + (index * 7) % 10)
        for index, record in enumerate(contents)
    ]


def _incompressible(count: int) -> bytes:
    # A linear congruence is as good as noise to every codec, and the same on every run.
    numbers, state = bytearray(), 1
    while len(numbers) < count:
        state = (state * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % 2**64
        numbers += state.to_bytes(8, "big")[:5]
    return bytes(numbers[:count])


def by_partition(records: Iterable[Record]) -> dict[int, list[Record]]:
    """Sort records into partitions, keeping the order within each."""
    sorted_out: defaultdict[int, list[Record]] = defaultdict(list)
    for record in records:
        sorted_out[record.partition].append(record)
    return dict(sorted_out)
