"""What clients of transactions did and saw, as a list of events.

This file alone decides what a history is made of and how it is written down. The order of events
is time: one that stands before another's request had ended before the other began. Nothing here
judges.

A producer is one that got its id: whoever asks for an id again is another producer of the same
transactional id. Every value is sent once in a history (a client that repeats a request notes it
once), and every transaction, producer and reader has a name of its own.

    Init, Initialized               a producer asks for its id, and has it
    Begin                           a transaction, or a row of records outside of any
    Send, Sent                      a record is sent, and acknowledged
    Consume                         records were processed; their offsets belong to the transaction
    End, Ended, Failed              commit or abort is asked for; done; refused, so it is no commit
    Ask, Read, OffsetRead           somebody asks, and is shown records or a group's offset
    Final, FinalOffset              what is there when all is quiet, whichever way it is asked for

Without Ended or Failed the outcome of a transaction is not known to its client.
"""

import dataclasses
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Place = tuple[str, int]
Entry = tuple[int, str]
"""Offset and value of a record."""

UNSTABLE = -2
"""In place of a group's offset."""


@dataclass(frozen=True, slots=True)
class Init:
    """A producer asks for its id."""

    producer: str
    transactional_id: str


@dataclass(frozen=True, slots=True)
class Initialized:
    """It has it; id and epoch are -1 where the client does not tell."""

    producer: str
    transactional_id: str
    producer_id: int = -1
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins; ``plain``: records that belong to none, each on its own."""

    transaction: str
    producer: str
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    """A record is about to be sent."""

    transaction: str
    place: Place
    value: str


@dataclass(frozen=True, slots=True)
class Sent:
    """It is acknowledged; the offset is -1 where the broker only says that it has it."""

    transaction: str
    place: Place
    value: str
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Consume:
    """Records at these offsets were processed in the transaction; the group goes on at ``next``."""

    transaction: str
    group: str
    place: Place
    offsets: tuple[int, ...]
    next: int


@dataclass(frozen=True, slots=True)
class End:
    """Commit or abort is asked for."""

    transaction: str
    commit: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """It is done."""

    transaction: str
    commit: bool


@dataclass(frozen=True, slots=True)
class Failed:
    """The broker refused, and no earlier request can have committed it: it is aborted."""

    transaction: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A reader sends a request; its next event is the answer."""

    reader: str


@dataclass(frozen=True, slots=True)
class Read:
    """Records from ``start`` to right before ``next``.

    Attributes:
        committed: Whether it was read with isolation level read_committed.
        last_stable_offset: As told in the answer; -1 where the client does not tell.
        high_watermark: The same.
    """

    reader: str
    place: Place
    start: int
    next: int
    records: tuple[Entry, ...]
    committed: bool = True
    last_stable_offset: int = -1
    high_watermark: int = -1


@dataclass(frozen=True, slots=True)
class OffsetRead:
    """A group's offset, asked for as a stable one; -1: none."""

    reader: str
    group: str
    place: Place
    offset: int


@dataclass(frozen=True, slots=True)
class Final:
    """A whole partition when nobody writes any more and nothing is open.

    Attributes:
        compacted: Whether records that nobody needs, such as aborted ones, may be gone.
    """

    place: Place
    committed: tuple[Entry, ...]
    uncommitted: tuple[Entry, ...]
    last_stable_offset: int
    high_watermark: int
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class FinalOffset:
    """A group's offset at the same moment; -1: none; UNSTABLE: a transaction holds it."""

    group: str
    place: Place
    offset: int


Event: TypeAlias = (
    Init
    | Initialized
    | Begin
    | Send
    | Sent
    | Consume
    | End
    | Ended
    | Failed
    | Ask
    | Read
    | OffsetRead
    | Final
    | FinalOffset
)


class Notes(Protocol):
    """Where events are written down, in the order in which they come."""

    def append(self, event: Event, /) -> None:
        """Note one."""
        ...

    def extend(self, events: Iterable[Event], /) -> None:
        """Note some."""
        ...


_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        Init,
        Initialized,
        Begin,
        Send,
        Sent,
        Consume,
        End,
        Ended,
        Failed,
        Ask,
        Read,
        OffsetRead,
        Final,
        FinalOffset,
    )
}


def write_line(at_ns: int, event: Event) -> bytes:
    """Return one line of a journal: when, what, and its fields in order."""
    fields = [getattr(event, field.name) for field in dataclasses.fields(event)]
    return json.dumps([at_ns, type(event).__name__, *fields]).encode() + b"\n"


class Journal:
    """Notes in a file; what was noted outlives a SIGKILL."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def append(self, event: Event, /) -> None:
        """Note one event of this moment."""
        os.write(self._descriptor, write_line(time.monotonic_ns(), event))

    def extend(self, events: Iterable[Event], /) -> None:
        """Note some."""
        for event in events:
            self.append(event)

    def close(self) -> None:
        """Give the file back; harmless when that was done before."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_journals(journals: Iterable[bytes]) -> list[Event]:
    """Put the journals of several processes of one machine into one order.

    A process that was killed may have left half a line, its last.
    """
    lines = [line for journal in journals for line in _whole_lines(journal)]
    lines.sort(key=lambda line: line[0])
    return [event for _, event in lines]


def _whole_lines(journal: bytes) -> Iterator[tuple[int, Event]]:
    for line in journal.split(b"\n")[:-1]:
        at_ns, kind, *fields = json.loads(line)
        yield at_ns, _KINDS[kind](*(_as_tuple(field) for field in fields))


def _as_tuple(field: object) -> Any:  # noqa: ANN401 - JSON knows no tuples, events know no lists
    if isinstance(field, list):
        return tuple(_as_tuple(each) for each in field)
    return field
