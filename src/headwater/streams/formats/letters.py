"""What a dead letter carries besides the record itself.

This file alone decides the headers of a dead letter, the form of its reason, and the names under
which letters are counted. It knows neither Spark nor a broker: pipelines write these headers,
`headwater dlq` reads them.

A reason is `KIND: detail`. The kind is one of a few words, so that letters can be counted by it;
the detail is for people.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

Header = tuple[str, bytes | None]

TOPIC: Final = "x-original-topic"
PARTITION: Final = "x-original-partition"
OFFSET: Final = "x-original-offset"
TIMESTAMP: Final = "x-original-timestamp"
ERROR: Final = "x-error"
PIPELINE: Final = "x-pipeline"
REDRIVEN: Final = "x-redriven"
"""How often a record has been sent back to its topic; it stays with the record there."""

_OWN: Final = frozenset({TOPIC, PARTITION, OFFSET, TIMESTAMP, ERROR, PIPELINE, REDRIVEN})

NOT_UTF8: Final = "NOT_UTF8"
NOT_JSON: Final = "NOT_JSON"
NOT_AVRO: Final = "NOT_AVRO"
NOT_PROTOBUF: Final = "NOT_PROTOBUF"
NOT_FRAMED: Final = "NOT_FRAMED"
UNKNOWN_SCHEMA: Final = "UNKNOWN_SCHEMA"
WRONG_TYPE: Final = "WRONG_TYPE"
MISSING_FIELD: Final = "MISSING_FIELD"

LATE: Final = "LATE"
NO_TIME: Final = "NO_TIME"

COUNTS: Final = "headwater.decode."
LATE_COUNTS: Final = "headwater.late."
"""How the names begin under which Spark reports counts: of decoders, and of operators with time."""
LATE_EVENTS: Final = "late"
RECORDS: Final = "records"
DEAD: Final = "undecodable"
"""The two counts: all records that were to be decoded, and those that could not be."""

# A header is read by people, in one line.
_DETAIL_CHARACTERS_MAX: Final = 500


class Undecodable(ValueError):  # noqa: N818 - a verdict about a record, not a failure
    """A record that is not what it should be.

    Attributes:
        reason: `KIND: detail`.
    """

    def __init__(self, kind: str, detail: str) -> None:
        """Take the kind, by which letters are counted, and the detail."""
        self.reason = reason(kind, detail)
        super().__init__(self.reason)


class Origin(NamedTuple):
    """Where a dead letter comes from, and why it is one."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    error: str
    pipeline: str
    redriven: int


def reason(kind: str, detail: str) -> str:
    """Write a reason in one line."""
    line = " ".join(detail.split())
    if len(line) > _DETAIL_CHARACTERS_MAX:
        line = f"{line[: _DETAIL_CHARACTERS_MAX - 3]}..."
    return f"{kind}: {line}" if line else kind


def kind_of(error: str) -> str:
    """Return the word by which a reason is counted; the whole of one that is not in our form."""
    kind, _, _ = error.partition(":")
    return kind if kind.isupper() and " " not in kind else error


def headers_of(
    place: tuple[str, int, int], timestamp_ms: int | None, error: str, pipeline: str
) -> list[Header]:
    """Make the headers that a record gets on its way to a dead-letter topic.

    Args:
        place: Topic, partition and offset of the record.
        timestamp_ms: Its timestamp, if it has one.
        error: Why it could not be used.
        pipeline: Whose reason that was; may be empty.
    """
    topic, partition, offset = place
    found: list[Header] = [
        (TOPIC, topic.encode()),
        (PARTITION, str(partition).encode()),
        (OFFSET, str(offset).encode()),
    ]
    if timestamp_ms is not None:
        found.append((TIMESTAMP, str(timestamp_ms).encode()))
    found.append((ERROR, error.encode()))
    if pipeline:
        found.append((PIPELINE, pipeline.encode()))
    return found


def maybe_origin(headers: Iterable[Header]) -> Origin | None:
    """Read where a record comes from, or None where it is no dead letter.

    Of several headers with the same name the last counts: it is of the last death.
    """
    found = {name: value for name, value in headers if name in _OWN and value is not None}
    try:
        timestamp = found.get(TIMESTAMP)
        return Origin(
            found[TOPIC].decode(),
            int(found[PARTITION]),
            int(found[OFFSET]),
            None if timestamp is None else int(timestamp),
            found[ERROR].decode("utf-8", "replace"),
            found.get(PIPELINE, b"").decode("utf-8", "replace"),
            int(found.get(REDRIVEN, b"0")),
        )
    except (KeyError, ValueError):
        return None


def redriven_headers(headers: Sequence[Header], times: int) -> list[Header]:
    """Return what a record had before it died, and how often it has been sent back."""
    kept = [(name, value) for name, value in headers if name not in _OWN]
    return [*kept, (REDRIVEN, str(times).encode())]
