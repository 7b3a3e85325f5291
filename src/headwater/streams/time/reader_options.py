"""What the time reader is told, and how it travels through Spark as options.

This file alone decides their names. They are made by `hf.watermark` from the options of the sources
below it, and by nobody else. What the client needs to connect keeps its own names, so that Spark
hides passwords in what it prints of a plan.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from headwater.streams.client_options import ClientOptions, client_options
from headwater.streams.errors import OptionError
from headwater.streams.options import (
    Choice,
    bootstrap_of,
    choice_as_json,
    choice_of,
    is_time_role,
)

TIME_SCHEMA: Final = "clock string, watermark bigint, idle boolean"

_NAME: Final = "clockName"
_DELAY: Final = "clockDelayUs"
_IDLE: Final = "clockIdleMs"
_READS: Final = "clockReads"
_CLOSES: Final = "clockCloses"
_DRIVER: Final = "clockDriver"
_BOOTSTRAP: Final = "kafka.bootstrap.servers"
_ISOLATION: Final = ("isolation", "kafka.isolation.level")
# Of all that a source may be told, what says how to reach the brokers. Spark's own source has
# options beside these that mean nothing here.
_CLIENT: Final = (
    "kafka.security.",
    "kafka.sasl.",
    "kafka.ssl.",
    "kafka.enable.ssl.",
    "kafka.request.timeout.ms",
    "kafka.default.api.timeout.ms",
    "kafka.client.id",
)


class Read(NamedTuple):
    """What one source reads.

    Attributes:
        choice: Which partitions.
        read_committed: Whether it waits for transactions.
        bounded: Whether a batch may leave something unread.
        held: Whether there may be no batch although there is something to read.
    """

    choice: Choice
    read_committed: bool
    bounded: bool
    held: bool

    def is_paced_as(self, other: "Read") -> bool:
        """Tell whether the other may be the same source, by what it reads in which parts."""
        return self._replace(read_committed=other.read_committed) == other


@dataclass(frozen=True)
class TimeOptions:
    """All that a time reader has to be told.

    Attributes:
        bootstrap: The brokers.
        client: How to connect to them.
        name: Under which name tasks report.
        delay_us: By how much events may come out of order.
        idle_ms: For how long a partition is waited for; None: for ever.
        reads: What the sources read.
        driver: Where the process that runs the query answers: see `query_positions`.
        closes: Whether a query that ends by itself ends the stream.
    """

    bootstrap: str
    client: ClientOptions
    name: str
    delay_us: int
    idle_ms: int | None
    reads: tuple[Read, ...]
    driver: str
    closes: bool = False


def read_of(given: Mapping[str, str], *, read_committed: bool) -> Read:
    """Return what a source reads, by its options.

    Args:
        given: The options.
        read_committed: Whether it waits for transactions where no option says so.

    Raises:
        OptionError: They do not say which partitions, or not in a way that can be read.
    """
    texts = {name.lower(): text for name, text in given.items()}
    isolation = next((texts[name] for name in _ISOLATION if name in texts), None)
    if isolation is not None:
        read_committed = isolation.strip().lower() == "read_committed"
    return Read(
        choice_of(given),
        read_committed=read_committed,
        bounded="maxoffsetspertrigger" in texts,
        held="minoffsetspertrigger" in texts,
    )


def client_part(given: Mapping[str, str]) -> dict[str, str]:
    """Return those options of a source that say how its brokers are reached."""
    found = {name: text for name, text in given.items() if name.lower().startswith(_CLIENT)}
    return {_BOOTSTRAP: bootstrap_of(given)} | found


def time_reader_options(
    client: Mapping[str, str],
    *,
    name: str,
    delay_us: int,
    idle_ms: int | None,
    reads: Sequence[Read],
    driver: str,
    closes: bool = False,
) -> dict[str, str]:
    """Write down what a time reader is told."""
    return {
        **client,
        "role": "time",
        _NAME: name,
        _DELAY: str(delay_us),
        _IDLE: "" if idle_ms is None else str(idle_ms),
        _READS: json.dumps([read_as_json(read) for read in reads]),
        _DRIVER: driver,
        _CLOSES: json.dumps(closes),
    }


def read_time_options(given: Mapping[str, str]) -> TimeOptions:
    """Read what `time_reader_options` has written.

    Raises:
        OptionError: It is something else.
    """
    texts = {name.lower(): text for name, text in given.items()}
    assert is_time_role(given)
    try:
        idle = texts[_IDLE.lower()]
        return TimeOptions(
            bootstrap=bootstrap_of(given),
            client=client_options(client_part(given)),
            name=texts[_NAME.lower()],
            delay_us=int(texts[_DELAY.lower()]),
            idle_ms=int(idle) if idle else None,
            reads=tuple(read_from_json(read) for read in json.loads(texts[_READS.lower()])),
            driver=texts[_DRIVER.lower()],
            closes=json.loads(texts[_CLOSES.lower()]) is True,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise OptionError(
            "role = time is for hf.watermark alone",
            hint="use rows.transform(hf.watermark(COLUMN, DELAY))",
        ) from error


def read_as_json(read: Read) -> dict[str, Any]:
    """Write down what a source reads, as `read_from_json` reads it."""
    return {
        "choice": choice_as_json(read.choice),
        "committed": read.read_committed,
        "bounded": read.bounded,
        "held": read.held,
    }


def read_from_json(said: Mapping[str, Any]) -> Read:
    """Read what a source reads."""
    flags = [bool(said[name]) for name in ("committed", "bounded", "held")]
    return Read(choice_of(said["choice"]), *flags)
