"""Where a step meets Spark: one bucket's rows and state in, its rows and state out.

This file alone decides how state lies in Spark's state store: a small header for each bucket, and
chunks under the names of their contents. A step whose attempt loses, or whose batch is run again,
has left nothing but chunks that a header does not name; Spark takes those back with the rest.
"""

import functools
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from headwater.streams.errors import hints_shown
from headwater.streams.kernel.buckets import bucket_ids
from headwater.streams.kernel.chunks import ChunkStore
from headwater.streams.kernel.copies import LocalCopies
from headwater.streams.kernel.errors import (
    StateDamagedError,
    StateMismatchError,
    check_version,
)
from headwater.streams.kernel.operator import OFFSET, PARTITION, Operator, Time
from headwater.streams.kernel.packing import from_bytes, in_order, pieces
from headwater.streams.kernel.state import VERSION, State, changes

BLOB_COLUMNS: Final = (
    "bucket int, input int, blob binary, clock string, watermark long, idle boolean, hold long"
)
"""What a bucket is sent: rows of an input, or what a clock says."""

GREETING: Final = b""
"""What a bucket is sent for nothing but to be called on."""

RESULT_COLUMNS: Final = "blob binary, late long"


# What is smaller is asked of the store again: a file for each would cost more than it saves.
_COPIED_BYTES_MIN: Final = 64 * 1024
# The process in which Spark asks a processor for the columns of its state.
_STATE_PLANNER: Final = "pyspark.sql.streaming.transform_with_state_driver_worker"


class Setting(NamedTuple):
    """All that a processor has to be told.

    Attributes:
        operator: What is computed.
        rows: The rows of each input as packers are given them, but with their keys in one column.
        fingerprint: What must be the same for as long as a state lives.
        buckets: How many buckets there are.
        clocks: How many clocks must have spoken before it is known what time it is.
    """

    operator: Operator
    rows: tuple[pa.Schema, ...]
    fingerprint: Mapping[str, str]
    buckets: int
    clocks: int


class _Header(NamedTuple):
    """What a bucket remembers beside its chunks.

    Attributes:
        watermark_us: What time it was at the last batch.
        clocks: What each clock has said last: its watermark, and whether it is idle.
        given: How many rows the bucket has given, ever.
        state: Where the operator's state is.
    """

    watermark_us: int | None
    clocks: Mapping[str, tuple[int | None, bool]]
    given: int
    state: State


class BucketProcessor(StatefulProcessor):
    """Runs an operator for each bucket that has rows, or whose time has moved."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._headers: ValueState
        self._chunks: MapState

    def __reduce__(self) -> tuple[Any, ...]:
        return (_arrived, (self._setting,))

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Ask for the places where state lies."""
        self._headers = handle.getValueState("header", "header binary")
        self._chunks = handle.getMapState("chunks", "name string", "chunk binary")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: tuple[int],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        """Run one step."""
        with hints_shown():
            sent = list(rows)
            bucket = bucket_ids(self._setting.buckets).index(key[0])
            before = self._read(bucket)
            clocks, watermark_us = _told(before, sent, self._setting.clocks)
            inputs = self._inputs(sent)
            time = Time(before.watermark_us, watermark_us)
            if time.previous == time.now and not any(each.num_rows for each in inputs):
                # As when a clock falls silent: nothing came, no time has passed.
                self._write(before, before._replace(clocks=clocks))
                return
            step = self._setting.operator.step(before.state, inputs, time)
            after = _Header(watermark_us, clocks, before.given + step.rows.num_rows, step.state)
            self._write(before, after)
            if step.late:
                yield Row(blob=None, late=step.late)
            for piece in pieces(_numbered(step.rows, bucket, before.given)):
                yield Row(blob=piece.to_pybytes(), late=0)

    def close(self) -> None:
        """Let go of nothing: chunks that are open may serve the next batch."""

    def _inputs(self, sent: list[Row]) -> list[pa.Table]:
        operator = self._setting.operator
        inputs = []
        for which, schema in enumerate(self._setting.rows):
            mine = [row.blob for row in sent if row.input == which]
            # Spark may bring them in another order when it repeats a batch, and rows that come from
            # the same place stand as their blobs do.
            blobs = [from_bytes(blob) for blob in sorted(mine) if blob != GREETING]
            inputs.append(
                in_order(blobs) if blobs else operator.combine(which, schema.empty_table())
            )
        return inputs

    def _read(self, bucket: int) -> _Header:
        kept = self._headers.get()
        if kept is None:
            return _Header(None, {}, 0, self._setting.operator.start())
        store = _copies().over(_InSpark(self._chunks))
        try:
            header = json.loads(kept[0])
            # First: another version may say all else in other words.
            check_version(header["state"]["version"], VERSION)
            _check_fingerprint(header["made by"], self._setting.fingerprint)
            clocks = {name: (said[0], said[1]) for name, said in header["clocks"].items()}
            state = State.restore(header["state"], store, stagger=bucket)
            return _Header(header["watermark"], clocks, header["given"], state)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise StateDamagedError(
                f"the state of bucket {bucket} cannot be read: {type(error).__name__}: {error}",
                hint="the checkpoint was damaged, or another version has written it: go on with "
                "that one, or begin anew without the state, with a new checkpointLocation",
            ) from error

    def _write(self, before: _Header, after: _Header) -> None:
        header = {
            "made by": dict(self._setting.fingerprint),
            "watermark": after.watermark_us,
            "clocks": after.clocks,
            "given": after.given,
            "state": after.state.describe(),
        }
        added, removed = changes(before.state, after.state)
        for chunk in added:
            self._chunks.updateValue((chunk.name,), (chunk.data().to_pybytes(),))
            _copies().keep(chunk)
        for name in removed:
            self._chunks.removeKey((name,))
        self._headers.update((json.dumps(header, sort_keys=True).encode(),))


def _arrived(setting: Setting) -> BucketProcessor:
    """Make a processor where Spark has sent it."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None and main.__spec__.name == _STATE_PLANNER:
        # It tells the terminal of every step that it takes.
        vars(main)["print"] = _say_nothing
    return BucketProcessor(setting)


def _say_nothing(*_values: object, **_options: object) -> None:
    """Stand in for `print`."""


@functools.cache
def _copies() -> LocalCopies:
    """Return the copies of chunks that this machine has, for the processes of one user."""
    folders = os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    folder = Path(folders.split(",")[0]) / f"headwater-chunks-{os.getuid()}"
    return LocalCopies(folder, file_bytes_min=_COPIED_BYTES_MIN)


class _InSpark(ChunkStore):
    """The chunks of the bucket that Spark is at."""

    def __init__(self, chunks: MapState) -> None:
        self._chunks = chunks

    def get(self, name: str) -> pa.Buffer:
        found = self._chunks.getValue((name,))
        if found is None:
            raise StateMismatchError(
                f"a part of the state is missing from the checkpoint: chunk {name}",
                hint="begin anew with a new checkpointLocation, and let it read its topics again",
            )
        return pa.py_buffer(found[0])


def _told(
    before: _Header, sent: list[Row], clocks_wanted: int
) -> tuple[dict[str, tuple[int | None, bool]], int | None]:
    """Return what clocks have said last, and what time it is by them."""
    clocks = dict(before.clocks)
    for row in sent:
        if row.clock is not None:
            said_us = None if row.watermark is None else row.watermark - row.hold
            clocks[row.clock] = (said_us, row.idle)
    clocks = dict(sorted(clocks.items()))
    if len(clocks) < clocks_wanted:
        return clocks, before.watermark_us
    awake = [said_us for said_us, is_idle in clocks.values() if not is_idle]
    known = [said_us for said_us in awake if said_us is not None]
    if not known or len(known) < len(awake):
        return clocks, before.watermark_us
    earlier = [] if before.watermark_us is None else [before.watermark_us]
    return clocks, max([min(known), *earlier])


def _numbered(rows: pa.Table, bucket: int, given: int) -> pa.Table:
    """Say of each row where it comes from, as a source would."""
    count = rows.num_rows
    return rows.append_column(PARTITION, pa.array(np.full(count, bucket, np.int32))).append_column(
        OFFSET, pa.array(np.arange(given, given + count, dtype=np.int64))
    )


def _check_fingerprint(made_by: Mapping[str, str], now: Mapping[str, str]) -> None:
    changed = [
        f"{what}: {made_by.get(what, 'none')} became {now.get(what, 'none')}"
        for what in sorted({*made_by, *now})
        if made_by.get(what) != now.get(what)
    ]
    if changed:
        raise StateMismatchError(
            f"the checkpoint has the state of another operator: {'; '.join(changed)}",
            hint="change it back, or begin anew without the state: with a new checkpointLocation",
        )
