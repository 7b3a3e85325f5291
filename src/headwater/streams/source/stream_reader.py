"""The streaming reader: what Spark asks, answered by the rest of this room.

This file alone decides what a query remembers between two batches: nothing that its checkpoint
does not hold, but for the end that `availableNow` fixes, the time of the last batch, what it has
complained of, and where a query without a checkpoint has begun. Spark keeps one process for each
query to ask these things; `read` runs in others, which get the options alone.
"""

import logging
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from headwater.base.clock import Clock, SystemClock
from headwater.streams.connecting import connect
from headwater.streams.errors import hints_shown
from headwater.streams.options import SourceOptions
from headwater.streams.source.fetching import read_range
from headwater.streams.source.offsets import Offsets, Place, make_offsets, parse_offsets
from headwater.streams.source.ownership import refuse_anothers
from headwater.streams.source.positions import Positions
from headwater.streams.source.progress import Progress
from headwater.streams.source.ranges import (
    Available,
    Located,
    Range,
    backlog,
    batch_end,
    locate,
    planned,
    split,
)

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger(__name__)
# A mirror may hold up a query no longer than a batch would take.
_MIRROR_TIMEOUT_S = 3.0


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(None)
        self.range = wanted


class HeadwaterStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream, batch after batch."""

    def __init__(self, options: SourceOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._choice = options.choice.in_order()
        self._clock = clock or SystemClock()
        self._cluster = connect(options.bootstrap, options.client)
        self._positions = Positions(self._cluster, options)
        self._progress = Progress(
            connect(
                options.bootstrap,
                options.client,
                timeout_s=min(_MIRROR_TIMEOUT_S, options.client.timeout_s),
            ),
            self._clock,
        )
        self._initial: Offsets | None = None
        self._fixed: Available | None = None
        self._seen: Offsets | None = None
        self._last_batch_ms: int | None = None
        self._told: set[str] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to the workers as options; connections and memories stay here."""
        return (HeadwaterStreamReader, (self._options,))

    # --- where a batch begins and ends ----------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a query without a checkpoint begins; the same whenever it is asked."""
        with hints_shown():
            if self._initial is None:
                positions, ids = self._positions.initial()
                group = f"{self._options.group_prefix}-{secrets.token_hex(4)}"
                self._initial = make_offsets(
                    positions, ids, group=group, initial=True, choice=self._choice
                )
            return self._initial.as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that the options set."""
        if self._options.offsets_max is not None:
            return ReadMaxRows(self._options.offsets_max)
        if self._options.offsets_min is not None:
            return ReadMinRows(self._options.offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end: what is there now, and nothing that comes later."""
        with hints_shown():
            self._fixed = self._positions.available(Offsets({}))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return where the next batch ends; `start` itself when there is nothing to read."""
        with hints_shown():
            stored = parse_offsets(start)
            begin = stored.only(self._choice.takes)
            available = self._positions.available(begin)
            refuse_anothers(self._choice, stored, lambda: available.starts)
            self._tell_forgotten(stored)
            self._mirror(begin)
            self._seen = make_offsets(available.ends, available.ids, group=begin.group)
            if self._fixed is not None:
                self._fixed = _completed(self._fixed, available, begin)
                available = _bounded(available, self._fixed)
            located = locate(begin, available)
            self._tell_losses(located)
            if not self._is_due(located, available, limit):
                return start
            offsets_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            end = batch_end(begin, located, available, offsets_max, self._choice)
            if end is None:
                return start
            self._last_batch_ms = self._clock.monotonic_ms()
            return end.as_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the end of the topics when they were last looked at."""
        return None if self._seen is None else self._seen.as_json()

    def _is_due(self, located: Located, available: Available, limit: ReadLimit) -> bool:
        """Tell whether enough has come for a batch, or enough time has passed."""
        enough = self._options.offsets_min
        if enough is None or self._fixed is not None or isinstance(limit, ReadAllAvailable):
            return True
        if self._last_batch_ms is None:
            return True
        waited_ms = self._clock.monotonic_ms() - self._last_batch_ms
        waiting = sum(backlog(located, available.ends).values())
        return waiting >= enough or waited_ms >= self._options.trigger_delay_ms

    def _tell_forgotten(self, offsets: Offsets) -> None:
        """Say what is not chosen any more: a choice that was changed loses nothing."""
        for topic, number in offsets.positions():
            if not self._choice.takes(topic, number):
                self._tell_once(
                    f"{topic}-{number} is not among what is read any more; its place is forgotten"
                )

    def _existing(self) -> Iterable[Place]:
        return self._positions.available(Offsets({})).starts

    def _tell_losses(self, located: Located) -> None:
        losses = [*located.losses, *located.absences]
        if losses and self._options.fail_on_data_loss:
            raise losses[0]
        for loss in located.losses:
            _LOG.warning("%s; going on, because failOnDataLoss is false", loss.message)
        for absence in located.absences:
            self._tell_once(f"{absence.message}; going on, because failOnDataLoss is false")

    def _tell_once(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            _LOG.warning("%s", what)

    # --- what a batch reads ---------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges of a batch; the same for the same offsets."""
        with hints_shown():
            stop = parse_offsets(end)
            # A batch that is repeated comes from the checkpoint, too.
            refuse_anothers(self._choice, stop, self._existing)
            ranges = planned(parse_offsets(start), stop)
            return [RangePartition(each) for each in split_as_told(ranges, self._options)]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Return the rows of one range."""
        assert isinstance(partition, RangePartition)
        with hints_shown():
            yield from read_range(self._options, partition.range)

    # --- when a batch is done -------------------------------------------------------------------

    def commit(self, end: dict[str, Any]) -> None:
        """Show the world how far the query is."""
        with hints_shown():
            self._mirror(parse_offsets(end))

    def stop(self) -> None:
        """Let go of the brokers."""
        self._progress.close()
        self._cluster.close()

    def _mirror(self, offsets: Offsets) -> None:
        group = self._options.group or offsets.group
        if group:
            self._progress.mirror(group, offsets)


def split_as_told(ranges: list[Range], options: SourceOptions) -> list[Range]:
    """Cut ranges as the options say."""
    return split(ranges, partitions_min=options.partitions_min, records_max=options.records_max)


def _completed(fixed: Available, now: Available, begin: Offsets) -> Available:
    """Add to a fixed end what a checkpoint has, and what was not there when the end was fixed."""
    late = [place for place in begin.positions() if place in now.ends and place not in fixed.ends]
    return Available(
        dict(fixed.ids) | {topic: now.ids[topic] for topic, _ in late},
        dict(fixed.starts) | {place: now.starts[place] for place in late},
        dict(fixed.ends) | {place: now.ends[place] for place in late},
        dict(fixed.log_ends) | {place: now.log_ends[place] for place in late},
    )


def _bounded(now: Available, fixed: Available) -> Available:
    """Return what is there now without what came after the end was fixed."""
    places = [place for place in now.ends if place in fixed.ends]
    return Available(
        {topic: now.ids[topic] for topic in fixed.ids if topic in now.ids},
        {place: now.starts[place] for place in places},
        {place: min(now.ends[place], fixed.ends[place]) for place in places},
        {place: now.log_ends[place] for place in places},
    )
