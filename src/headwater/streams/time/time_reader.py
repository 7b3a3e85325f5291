"""The reader that says what time it is: one row, whenever that changes.

This file alone decides when the watermark is decided: when Spark asks for the end of the next
batch. The answer is the reader's offset, so a batch that is repeated has the same, and a change is
reason enough for a batch without data. Where nothing changes the offset must not either, or Spark
would run empty batches for ever.

A query that ends by itself may end the stream (`at_end="close"`). Its first batch reads all that
there is; at the next planning it is the end of time, so that everything closes. After that there is
no more time to be had on this checkpoint.

Spark keeps one process for each query to ask these things. It does not tell it which query that is,
but tasks know: so the first offset is a change by itself, and the task that reads it writes down
the id of its query. Reports of that query are then folded, from the start of their topic after
every start of the query.
"""

import dataclasses
import secrets
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from headwater.base.clock import Clock, SystemClock
from headwater.streams.connecting import connect
from headwater.streams.errors import CheckpointError, hints_shown
from headwater.streams.time.fold import END_US, Decision, Place, Progress, decide
from headwater.streams.time.idleness import Idleness, Log, Plannings
from headwater.streams.time.partitions import Partitions
from headwater.streams.time.reader_options import TimeOptions
from headwater.streams.time.records import TimeScan
from headwater.streams.time.time_log import TimeLog
from headwater.streams.time.time_offset import TimeOffset, parse_time_offset

if TYPE_CHECKING:
    import pyarrow as pa


class TimePartition(InputPartition):
    """The one row of a batch."""

    def __init__(self, offset: TimeOffset) -> None:
        super().__init__(None)
        self.offset = offset


class TimeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what time it is."""

    def __init__(self, options: TimeOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._cluster = connect(options.bootstrap, options.client)
        self._log = TimeLog(options.bootstrap, options.client)
        self._partitions = Partitions(self._cluster, options.reads, self._clock)
        self._idleness = Idleness(
            options.idle_ms,
            self._clock.now_ms(),
            bounded=any(read.bounded for read in options.reads),
            held=any(read.held for read in options.reads),
        )
        self._clock_id = secrets.token_hex(8)
        self._scan: TimeScan | None = None
        self._plannings = Plannings()
        self._ends: dict[Place, Log] | None = None
        self._has_closed = False
        self._looked_at: dict[Place, Log] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to the workers as options; connections and memories stay here."""
        return (TimeReader, (self._options,))

    # --- what time it is ------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return what a query without a checkpoint knows: nothing."""
        return TimeOffset(self._clock_id).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return that there is none."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Take note that nothing comes after what is there."""
        with hints_shown():
            logs = self._partitions.logs(self._partitions.all(()))
            self._idleness.hurry(logs, self._clock.now_ms())
            self._ends = logs if self._options.closes else None

    def latestOffset(  # noqa: N802 - Spark's name
        self,
        start: dict[str, Any],
        limit: ReadLimit,  # noqa: ARG002 - there is one row
    ) -> dict[str, Any]:
        """Decide what time it is; return `start` itself when it is what it was."""
        with hints_shown():
            self._plannings.begin()
            before = parse_time_offset(start)
            if before.ends is not None:
                self._refuse_more(before)
                return start
            if before.asked == 0:
                return dataclasses.replace(before, asked=1).as_json()
            scan = self._read(before)
            if scan.query_id is None:
                # Whoever was asked has answered, but the answer is gone.
                return dataclasses.replace(before, asked=before.asked + 1).as_json()
            if self._ends is not None and self._plannings.number > 1:
                return self._closed(dataclasses.replace(before, query_id=scan.query_id)).as_json()
            decision = self._decide(before.decision, scan)
            if decision == before.decision and self._ends is not None:
                # Everything ends at the next planning, so there has to be one.
                return dataclasses.replace(before, asked=before.asked + 1).as_json()
            if decision == before.decision:
                return start
            after = dataclasses.replace(before, query_id=scan.query_id, decision=decision)
            return after.as_json()

    def _closed(self, before: TimeOffset) -> TimeOffset:
        """End the stream: sources that are not read in parts were read by the batch before."""
        assert self._ends is not None
        self._has_closed = True
        ends = tuple(sorted((*place, log.end) for place, log in self._ends.items()))
        return dataclasses.replace(before, decision=Decision(END_US, idle=False), ends=ends)

    def _refuse_more(self, before: TimeOffset) -> None:
        """Refuse to go on behind the end of a stream; whoever has just ended it reads no more."""
        if self._has_closed:
            return
        assert before.ends is not None
        ends = {(topic, number): end for topic, number, end in before.ends}
        for place, log in self._partitions.logs(self._partitions.all(())).items():
            rest = Log(max(log.start, ends.get(place, log.start)), log.end)
            if self._partitions.holds_rows(place, rest):
                raise CheckpointError(
                    f"the stream was ended with at_end='close', and {place[0]}-{place[1]} has more "
                    "since: all of it would be late",
                    hint="begin anew with another checkpointLocation, or headwater pipeline reset; "
                    "at_end='hold' keeps windows open from run to run",
                )

    def _read(self, before: TimeOffset) -> TimeScan:
        if self._scan is None:
            self._scan = TimeScan(before.clock_id, self._options.name, query_id=before.query_id)
        self._log.read(self._scan)
        if before.query_id is not None:
            self._scan.forget_clock()
        self._log.clear_up(self._scan)
        return self._scan

    def _decide(self, before: Decision, scan: TimeScan) -> Decision:
        progress = scan.progress()
        existing = self._partitions.all(progress)
        if self._partitions.gone:
            scan.forget_partitions(self._partitions.gone)
        partitions = {place: progress.get(place) for place in existing}
        return decide(before, partitions, self._idle(partitions), self._options.delay_us)

    def _idle(self, partitions: dict[Place, Progress | None]) -> set[Place]:
        silent = self._idleness.silent(partitions, self._clock.now_ms())
        if not silent:
            return set()
        logs = self._partitions.logs(silent)
        idle = self._judge(logs, partitions)
        unread = self._idleness.unread(idle, partitions)
        # One look for each: what lies in a log does not change.
        new = {place: log for place, log in unread.items() if self._looked_at.get(place) != log}
        self._looked_at |= new
        bare = [place for place, log in new.items() if not self._partitions.holds_rows(place, log)]
        for place in bare:
            self._idleness.prove(place)
        return self._judge(logs, partitions) if bare else idle

    def _judge(
        self, logs: dict[Place, Log], partitions: dict[Place, Progress | None]
    ) -> set[Place]:
        return self._idleness.idle(logs, partitions, self._plannings)

    # --- the row --------------------------------------------------------------------------------

    def partitions(
        self,
        start: dict[str, Any],
        end: dict[str, Any],
    ) -> Sequence[InputPartition]:
        """Return the one row of a batch, if there is one."""
        with hints_shown():
            return [] if start == end else [TimePartition(parse_time_offset(end))]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Return the row."""
        import pyarrow as pa  # noqa: PLC0415 - planning needs none

        from headwater.streams.time.report import bind_clock  # noqa: PLC0415 - as above

        assert isinstance(partition, TimePartition)
        offset = partition.offset
        with hints_shown():
            if offset.query_id is None:
                bind_clock(self._options.bootstrap, self._options.client, offset.clock_id)
            yield pa.record_batch(
                {
                    "clock": pa.array([offset.clock_id], pa.string()),
                    "watermark": pa.array([offset.decision.watermark_us], pa.int64()),
                    "idle": pa.array([offset.decision.idle], pa.bool_()),
                }
            )

    def commit(self, end: dict[str, Any]) -> None:  # noqa: ARG002 - the checkpoint has it
        """Take note that a batch was planned."""
        self._plannings.commit()

    def stop(self) -> None:
        """Let go of the brokers."""
        self._log.close()
        self._cluster.close()
