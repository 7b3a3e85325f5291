"""The reader that says what time it is: one row, whenever that changes.

This file alone decides when the watermark is decided: when Spark asks for the end of the next
batch. The answer is the reader's offset, so a batch that is repeated has the same, and a change is
reason enough for a batch without data. Where nothing changes the offset must not either, or Spark
would run empty batches for ever.

What is decided is a function of what the checkpoint at hand has read. All batches before the one
that is planned are done, and their reports are in the topic; the driver says how far the query has
read (`query_positions`), and exactly the reports of rows before that are folded. So it makes no
difference whether the process was started again, whether a batch was cut off and repeated, or
whether a copy of the checkpoint reports under the same query's id: a report of rows that were read
is as true as one's own, and others wait. The offset keeps what was folded, for reports may be
removed. It is written when the decision changes; until then a process that is started again finds
the same reports.

A query that ends by itself may end the stream (`at_end="close"`). Its first batch reads all that
there is; at the next planning it is the end of time, so that everything closes. After that there is
no more time to be had on this checkpoint.

A first offset is a change by itself: operators are told that there is a clock, and the driver can
find the query by it from then on.
"""

import dataclasses
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from headwater.base.clock import Clock, SystemClock
from headwater.streams.connecting import connect
from headwater.streams.errors import CheckpointError, hints_shown
from headwater.streams.time.fold import END_US, Decision, Place, Progress, decide, merged
from headwater.streams.time.idleness import Idleness, Log
from headwater.streams.time.partitions import Partitions
from headwater.streams.time.query_positions import PositionsClient, QueryPositions
from headwater.streams.time.reader_options import TimeOptions
from headwater.streams.time.records import Names, TimeScan
from headwater.streams.time.resuming import Identity, found_again
from headwater.streams.time.time_log import TimeLog
from headwater.streams.time.time_offset import TimeOffset, parse_time_offset

if TYPE_CHECKING:
    import pyarrow as pa


class Driver(Protocol):
    """The process that runs the query, and knows how far the query has read."""

    def ask(self, clock_id: str) -> QueryPositions:
        """Return how far the query of a clock has read."""
        ...

    def close(self) -> None:
        """Close the connection to it."""
        ...


class TimePartition(InputPartition):
    """The one row of a batch."""

    def __init__(self, offset: TimeOffset) -> None:
        super().__init__(None)
        self.offset = offset


class TimeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what time it is."""

    def __init__(
        self, options: TimeOptions, clock: Clock | None = None, driver: Driver | None = None
    ) -> None:
        self._options = options
        self._clock = clock or SystemClock()
        self._cluster = connect(options.bootstrap, options.client)
        self._log = TimeLog(options.bootstrap, options.client)
        self._partitions = Partitions(self._cluster, options.reads, self._clock)
        self._driver = driver or PositionsClient(options.driver, options.bootstrap, options.reads)
        self._idleness = Idleness(options.idle_ms, self._clock.now_ms())
        self._clock_id = secrets.token_hex(8)
        self._identity = Identity.of(options.name, options.reads)
        self._is_found = False
        self._scan: TimeScan | None = None
        self._plannings = 0
        self._asked: QueryPositions | None = None
        self._ends: dict[Place, Log] | None = None
        self._has_closed = False

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
            self._idleness.hurry(logs)
            self._ends = logs if self._options.closes else None

    def latestOffset(  # noqa: N802 - Spark's name
        self,
        start: dict[str, Any],
        limit: ReadLimit,  # noqa: ARG002 - there is one row
    ) -> dict[str, Any]:
        """Decide what time it is; return `start` itself when it is what it was."""
        with hints_shown():
            self._plannings += 1
            before = self._own(parse_time_offset(start))
            if before.ends is not None:
                self._refuse_more(before)
                return start
            if before.asked == 0:
                return dataclasses.replace(self._identity.put_on(before), asked=1).as_json()
            if self._ends is not None and self._plannings > 1:
                return self._closed(before).as_json()
            after = self._decide(before)
            is_same = after.decision == before.decision and self._identity.is_on(before)
            if is_same and self._ends is not None:
                # Everything ends at the next planning, so there has to be one.
                return dataclasses.replace(before, asked=before.asked + 1).as_json()
            return start if is_same and before.clock_id == start["clock"] else after.as_json()

    def _own(self, at_place: TimeOffset) -> TimeOffset:
        """Return what the checkpoint has of this clock; it is looked for once."""
        if self._is_found or at_place.asked == 0:
            return at_place
        found = found_again(self._identity, at_place, lambda: self._query(at_place).clocks)
        self._is_found = True
        return found

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

    def _decide(self, before: TimeOffset) -> TimeOffset:
        """Return what time it is by all that this checkpoint has read."""
        scan = self._read(before)
        fold = dict(before.fold)
        for place, progress in scan.progress().items():
            fold[place] = merged(fold.get(place), progress)
        existing = self._partitions.all(fold)
        if self._partitions.gone:
            scan.forget_partitions(self._partitions.gone)
        partitions = {place: fold.get(place) for place in existing}
        idle = self._idle(before, partitions, scan.counts)
        return dataclasses.replace(
            self._identity.put_on(before),
            decision=decide(before.decision, partitions, idle, self._options.delay_us),
            fold={place: each for place, each in partitions.items() if each is not None},
        )

    def _read(self, before: TimeOffset) -> TimeScan:
        if self._scan is None:
            names = Names(self._options.name, before.name)
            self._scan = TimeScan(self._query(before).query_id, names)
        self._log.read(self._scan)
        self._scan.fold(self._query(before).positions)
        self._log.clear_up(self._scan)
        return self._scan

    def _query(self, before: TimeOffset) -> QueryPositions:
        """Return how far the query has read; it is asked again when there was a batch."""
        if self._asked is None:
            self._asked = self._driver.ask(before.clock_id)
        return self._asked

    def _idle(
        self,
        before: TimeOffset,
        partitions: Mapping[Place, Progress | None],
        counts: Mapping[Place, int],
    ) -> set[Place]:
        silent = self._idleness.silent(partitions, counts, self._clock.monotonic_ms())
        if not silent:
            return set()
        logs = self._partitions.logs(silent)
        return self._idleness.idle(logs, self._query(before).positions)

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

        assert isinstance(partition, TimePartition)
        offset = partition.offset
        with hints_shown():
            yield pa.record_batch(
                {
                    "clock": pa.array([offset.clock_id], pa.string()),
                    "watermark": pa.array([offset.decision.watermark_us], pa.int64()),
                    "idle": pa.array([offset.decision.idle], pa.bool_()),
                }
            )

    def commit(self, end: dict[str, Any]) -> None:  # noqa: ARG002 - the checkpoint has it
        """Take note that a batch was planned: when the next one is, the query has read more."""
        self._asked = None

    def stop(self) -> None:
        """Let go of the brokers."""
        self._driver.close()
        self._log.close()
        self._cluster.close()
