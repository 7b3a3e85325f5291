"""What a stateful operator is: a pure step over Arrow tables.

This file alone decides what an operator is given and what it gives. It knows no Spark: whoever has
an operator can test it with tables made by hand.

An operator sees rows without the names that people gave them:

- `key`: the bytes of all key columns, never null; rows of one key meet in one step.
- `time`: when the event was, in microseconds; null where it has no time that can be believed.
- `topic` (where there may be several), `partition`, `offset`: where the row comes from. Rows come
  in this order, so that what is equal in time still has an order, and the same one on replay.
- `weight`: 1 for a row that appears, -1 for one that is taken back. Operators for plain streams are
  given none; what an operator gives always has it.
- `version`, in what an operator gives: 0 for a result on time, n for its n-th correction.
- `c0`, `c1`, ...: the values.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from headwater.streams.kernel.state import State

KEY: Final = "key"
TIME: Final = "time"
TOPIC: Final = "topic"
PARTITION: Final = "partition"
OFFSET: Final = "offset"
WEIGHT: Final = "weight"
VERSION: Final = "version"


def value_name(number: int) -> str:
    """Return the name of a value among the columns of an operator."""
    return f"c{number}"


class Time(NamedTuple):
    """The watermark in microseconds: all events before it are believed to have come.

    Attributes:
        previous: At the last batch. A row is late against this one.
        now: At this batch. Windows close against this one, when the batch's rows are in.
    """

    previous: int | None
    now: int | None


class Step(NamedTuple):
    """What one batch does to one bucket.

    Attributes:
        state: What the next step is given.
        rows: What comes out, in an order that depends on nothing but state and rows.
        late: How many events came too late; whatever becomes of them, they are counted. Those
            without a time are not among them: they are counted on their way here.
    """

    state: State
    rows: pa.Table
    late: int = 0


class Operator(Protocol):
    """A pure function of state, rows and time.

    The same state, rows and time must give the same result to the bit: a batch that is run again
    after a crash is written only once, and the state that goes on is the second one's.

    Attributes:
        inputs: The values of each input.
        output: The values that come out.
        hold_us: By how much rows that come out may be older than the watermark.
    """

    inputs: tuple[pa.Schema, ...]
    output: pa.Schema
    hold_us: int

    @property
    def parameters(self) -> Mapping[str, object]:
        """What must stay the same for as long as a state lives, as JSON has it, by its name.

        Types of keys and values, and the names that people gave them, are not among it: these are
        compared in any case.
        """

    def start(self) -> State:
        """Return the state of a bucket that has seen nothing."""

    def combine(self, which: int, rows: pa.Table) -> pa.Table:
        """Make rows of one input fewer before they travel, or return them as they are."""

    def step(self, state: State, inputs: Sequence[pa.Table], time: Time) -> Step:
        """Take a batch in."""
