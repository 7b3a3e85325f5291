"""How a batch gets into the log exactly once: the protocol of the driver.

This file alone decides whether a batch is written, skipped or refused. It knows no socket, no
Spark and no clock: it is handed a store of markers and a transactor, so that every interleaving of
drivers and every crash can be played in a test.

    1. Read the marker; not if this process itself wrote the batch before this one: if another
       run has written since, step 2 refuses it. Any other memory is worth nothing, since another
       process of this run may have written in between, and to a broker that looks like the same
       request again. A run that the marker names among the earlier ones stops: a newer one has
       taken over. So does one whose checkpoint is older than the log: it would repeat a batch
       before the last, or the last one by another plan than the one that was written.
    2. Begin. The run that wrote the marker goes on as the producer it was, and is refused if
       somebody has begun since. Any other run takes over: it begins as the newest, which fences
       all before it and ends what they left open. Then it reads the marker again, because the
       last of them may have committed in between. So does a run whose own last marker it found
       undecided: a broker acknowledges a commit before all partitions have it.
    3. The batch is the marker's: it was written by an attempt whose success Spark never saw.
       Write nothing but the marker in the new run's name, if it is another.
    4. Send the rows and the new marker, then commit.

A batch without rows writes no marker, and yet it is refused where one with rows would be: a
checkpoint that was set back may plan nothing but empty batches up to the marker's, and what comes
behind them would be written twice. Only where another plan of this very batch is undecided does it
have to begin, to learn what became of that one.

Why it holds: a transaction that carries batch n carries the marker n, both or none. Between the
marker that a run has seen in step 2 and its commit nobody else can commit under the transactional
id, or the commit is refused. So at each commit the marker before it is known, and n follows it.
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from headwater.base.errors import HeadwaterError
from headwater.base.record.varint import BytesLike
from headwater.delivery.client.cluster import Place
from headwater.delivery.client.errors import ProducerFencedError, TransactionTimedOutError
from headwater.streams.sink.errors import (
    CheckpointBehindError,
    MarkerError,
    OlderDriverError,
    too_slow,
)
from headwater.streams.sink.marker import MARKER_PLACE, Marker, Seen
from headwater.streams.sink.plan import Plan

Batches = Mapping[Place, Sequence[BytesLike]]
"""Finished record batches without a producer, by partition, in order."""

# A producer's epoch grows with each transaction and ends at 32,767; a producer that begins as the
# newest gets another id in time.
_EPOCH_MAX = 32_000
# What fits an error that people read: the offsets of some 50 partitions.
_SHOWN_MAX = 1_000


class MarkerStore(Protocol):
    """Where one sink's markers are."""

    def read(self) -> Seen:
        """Return the last committed marker, and one that is undecided."""
        ...

    def recall(self, run_id: str) -> Marker | None:
        """Return the marker that this process was the last to write for the run, and forget it."""
        ...

    def remember(self, marker: Marker) -> None:
        """Keep in mind what was just committed."""
        ...

    def prepare(self) -> None:
        """Make sure that markers can be written and will be kept."""
        ...

    def batches(self, marker: Marker) -> Batches:
        """Return the marker as it is sent."""
        ...


class Transactor(Protocol):
    """One transaction at a time under the sink's transactional id."""

    @property
    def end_offsets(self) -> dict[Place, int]:
        """The offset behind the last record sent, for each partition of the transaction."""
        ...

    def begin(self, producer: tuple[int, int] | None = None) -> tuple[int, int]:
        """Become the writer; only as this earlier one, where it is given."""
        ...

    def send(self, batches: Batches, *, soon: Collection[Place] = ()) -> None:
        """Write as part of the transaction, which partitions named here will belong to as well."""
        ...

    def commit(self) -> dict[Place, int]:
        """Make all of it visible."""
        ...

    def abort(self) -> None:
        """Give up what was sent."""
        ...


class Outcome(Enum):
    """What became of a batch."""

    WRITTEN = "written"
    WRITTEN_BEFORE = "written before"


@dataclass(frozen=True, slots=True)
class Attempt:
    """Which batch is to be written, and on whose behalf.

    Attributes:
        query_id: The query, over all its runs.
        run_id: The run of it.
        batch_id: Spark's number of the batch.
        checkpoint: Where Spark keeps the query's checkpoint, if that is known.
        plan: The plan of the batch, if that is known.
    """

    query_id: str
    run_id: str
    batch_id: int
    checkpoint: str | None = None
    plan: Plan | None = None


def commit_batch(
    attempt: Attempt, parts: Iterable[Batches], *, markers: MarkerStore, transactor: Transactor
) -> Outcome:
    """Write a batch and its marker, unless that has been done.

    Args:
        attempt: Which batch.
        parts: Its rows, one part after the other; asked for only if they are to be written.
        markers: Where the query's markers are.
        transactor: Writes under the query's transactional id.

    Raises:
        OlderDriverError: Another run has taken over.
        BatchTooSlowError: The broker has given the transaction up before it was whole.
        CheckpointBehindError: Later batches of the query have been written, or this one by another
            plan.
        HeadwaterError: It failed, or it is not known whether it did; a new run will find out.
    """
    remembered = markers.recall(attempt.run_id)
    if remembered is not None and remembered.batch_id == attempt.batch_id - 1:
        seen = Seen(remembered, None)
    else:
        seen = markers.read()
    # Whoever has got as far as an undecided one has begun since, whatever becomes of it.
    _refuse(attempt, seen.committed)
    _refuse(attempt, seen.undecided)
    _refuse_other_plan(attempt, seen.committed)
    try:
        producer, marker = _begin(attempt, seen, markers, transactor)
        if marker is not None and marker.batch_id == attempt.batch_id:
            if marker.run_id != attempt.run_id:
                taken = marker.taken_over(run_id=attempt.run_id, producer=producer)
                transactor.send(markers.batches(taken))
                transactor.commit()
            return Outcome.WRITTEN_BEFORE
        for part in parts:
            transactor.send(part, soon=(MARKER_PLACE,))
        following = _following(attempt, marker, producer, transactor.end_offsets)
        transactor.send(markers.batches(following))
        transactor.commit()
        markers.remember(following)
    except TransactionTimedOutError as error:
        raise too_slow(f"batch {attempt.batch_id} of query {attempt.query_id}", error) from error
    except ProducerFencedError as error:
        raise _older(attempt, "has begun to write") from error
    except BaseException:
        # Where the broker cannot be told, it gives up by itself, or a new run makes it.
        with contextlib.suppress(HeadwaterError):
            transactor.abort()
        raise
    return Outcome.WRITTEN


def check_batch(attempt: Attempt, *, markers: MarkerStore, transactor: Transactor) -> None:
    """Refuse a batch without rows where one with rows would be refused; write nothing.

    Args:
        attempt: Which batch.
        markers: Where the query's markers are.
        transactor: Ends what is open under the query's transactional id, where that matters.

    Raises:
        OlderDriverError: Another run has taken over.
        CheckpointBehindError: Later batches of the query have been written, or this one by another
            plan.
        HeadwaterError: It is not known what was written.
    """
    seen = markers.read()
    _refuse(attempt, seen.committed)
    _refuse(attempt, seen.undecided)
    _refuse_other_plan(attempt, seen.committed)
    if _has_other_plan(attempt, seen.undecided):
        try:
            _begin(attempt, seen, markers, transactor)
        except ProducerFencedError as error:
            raise _older(attempt, "has begun to write") from error


def _begin(
    attempt: Attempt, seen: Seen, markers: MarkerStore, transactor: Transactor
) -> tuple[tuple[int, int], Marker | None]:
    """Become the writer; return as whom, and the marker that holds from now on."""
    last = seen.undecided or seen.committed
    if last is not None and last.run_id == attempt.run_id and last.producer[1] < _EPOCH_MAX:
        producer = transactor.begin(last.producer)
        if seen.undecided is None:
            return producer, last
    else:
        markers.prepare()
        producer = transactor.begin()
    seen = markers.read()
    if seen.undecided is not None:
        raise MarkerError(
            f"a transaction of query {attempt.query_id} is open, although one has just begun",
            hint="start the query again: the broker has to end it first",
        )
    _refuse(attempt, seen.committed)
    _refuse_other_plan(attempt, seen.committed)
    return producer, seen.committed


def _refuse(attempt: Attempt, marker: Marker | None) -> None:
    if marker is None:
        return
    if attempt.run_id in marker.earlier:
        raise _older(attempt, f"has taken over as run {marker.run_id}")
    if attempt.batch_id < marker.batch_id:
        raise _behind(
            f"batch {attempt.batch_id} of query {attempt.query_id} was to be written, but batch "
            f"{marker.batch_id} has been",
            marker,
        )


def _refuse_other_plan(attempt: Attempt, committed: Marker | None) -> None:
    """Refuse a batch whose number has been written with other input.

    A plan of a transaction that is not decided does not count: if it is given up, this batch is
    the first of its number.
    """
    if committed is not None and _has_other_plan(attempt, committed):
        raise _behind(
            f"batch {attempt.batch_id} of query {attempt.query_id} was planned again, after a batch"
            f" {attempt.batch_id} with other input had been written",
            committed,
        )


def _has_other_plan(attempt: Attempt, marker: Marker | None) -> bool:
    """Tell whether a marker is of the same batch, and for certain of another plan."""
    if marker is None or marker.batch_id != attempt.batch_id:
        return False
    if attempt.plan is None or marker.plan is None:
        return False
    return attempt.plan.digest != marker.plan.digest


def _behind(what: str, marker: Marker) -> CheckpointBehindError:
    offsets = [] if marker.plan is None else marker.plan.starting_offsets()
    where = " and ".join(offsets)
    given = f"startingOffsets = {where}" if 0 < len(where) <= _SHOWN_MAX else "startingOffsets"
    return CheckpointBehindError(
        f"{what}: the checkpoint is older than the log",
        hint="if another driver runs this query, stop one of them; if the checkpoint was restored "
        f"from a copy, restore one that was made after batch {marker.batch_id}, or, where the query"
        f" keeps no state, start with a new checkpointLocation and {given}",
    )


def _following(
    attempt: Attempt,
    marker: Marker | None,
    producer: tuple[int, int],
    ends: Mapping[Place, int],
) -> Marker:
    if marker is None:
        return Marker(attempt.batch_id, attempt.run_id, producer, (), dict(ends), attempt.plan)
    return marker.followed_by(
        batch_id=attempt.batch_id,
        run_id=attempt.run_id,
        producer=producer,
        ends=dict(ends),
        plan=attempt.plan,
    )


def _older(attempt: Attempt, what: str) -> OlderDriverError:
    return OlderDriverError(
        f"another driver of query {attempt.query_id} {what}; run {attempt.run_id} is older and "
        f"stops at batch {attempt.batch_id}",
        hint="one checkpoint is for one driver: let the newer one run, or stop it and start again",
    )
