"""Operators of one's own, run without Spark: `run_operator` and `check_operator`.

This file alone decides what is tried with an operator: its rows travel and its state is kept as in
a query, through bytes, after every batch; and what depends on what it must not is found out.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from headwater.streams.kernel.buckets import check_buckets
from headwater.streams.kernel.chunks import DictStore
from headwater.streams.kernel.errors import OwnOperatorError
from headwater.streams.kernel.operator import KEY, Time
from headwater.streams.kernel.own import Adapted, OwnOperator, check_own
from headwater.streams.kernel.packing import Packer, from_bytes, in_order, key_name
from headwater.streams.kernel.state import State
from headwater.streams.naming import no_column

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TRIED_BUCKETS: Final = (1, 4, 64)

Watermark = int | datetime | None


class OperatorLawError(AssertionError):
    """An operator whose result depends on what it must not depend on."""


def run_operator(
    operator: OwnOperator,
    batches: Sequence[pa.Table],
    *,
    by: str | Sequence[str],
    watermarks: Sequence[Watermark] | None = None,
    buckets: int = 1,
) -> list[pa.Table]:
    """Run an operator over batches, as `hf.stateful` does.

    Args:
        operator: The operator.
        batches: Rows, with the columns that it is to be given.
        by: The columns of the key.
        watermarks: What time it is at each batch, as a moment or in microseconds.
        buckets: How many buckets there are.

    Returns:
        What it gives for each batch.

    Raises:
        OwnOperatorError: It is no operator, does not keep to what was asked of it, or is given what
            no query gives.
        BucketCountError: There cannot be so many buckets.
    """
    check_own(operator)
    check_buckets(buckets)
    times = _times(watermarks, len(batches))
    adapted, packed = _prepared(operator, batches, _listed(by), buckets)
    states = [adapted.start() for _ in range(buckets)]
    results = []
    previous: int | None = None
    for blobs, now in zip(packed, times, strict=True):
        given = []
        for bucket in range(buckets):
            step = adapted.step(states[bucket], [blobs[bucket]], Time(previous, now))
            states[bucket] = _kept(step.state)
            given.append(step.rows)
        results.append(_named(pa.concat_tables(given), operator.output))
        previous = now
    return results


def check_operator(
    operator: OwnOperator,
    batches: Sequence[pa.Table],
    *,
    by: str | Sequence[str],
    watermarks: Sequence[Watermark] | None = None,
) -> list[pa.Table]:
    """Run an operator, and make sure that it may be run in a query.

    It is run again from the same states, which must give the same bytes, and with other numbers of
    buckets, which must give the same rows.

    Returns:
        What it gives for each batch.

    Raises:
        OperatorLawError: A second run gives something else.
        OwnOperatorError: As `run_operator`.
    """
    first = run_operator(operator, batches, by=by, watermarks=watermarks)
    again = run_operator(operator, batches, by=by, watermarks=watermarks)
    for number, (one, other) in enumerate(zip(first, again, strict=True)):
        if not one.equals(other):
            raise OperatorLawError(
                f"batch {number} gives something else when it is run again: the operator uses more "
                "than its state and its rows, such as a clock, dice, or the order of a set"
            )
    for buckets in _TRIED_BUCKETS:
        spread = run_operator(operator, batches, by=by, watermarks=watermarks, buckets=buckets)
        for number, (one, other) in enumerate(zip(first, spread, strict=True)):
            if _bag(one) != _bag(other):
                raise OperatorLawError(
                    f"batch {number} gives other rows with {buckets} buckets than with one: the "
                    f"operator mixes rows that differ in {', '.join(_listed(by))}"
                )
    return first


def _prepared(
    operator: OwnOperator, batches: Sequence[pa.Table], by: Sequence[str], buckets: int
) -> tuple[Adapted, list[list[pa.Table]]]:
    _check_batches(batches, by)
    names = batches[0].column_names
    kinds = batches[0].schema.types
    values = pa.schema([(f"c{number}", kind) for number, kind in enumerate(kinds)])
    adapted = Adapted(operator, names, values)
    keys = [
        (key_name(number), batches[0].schema.field(name).type) for number, name in enumerate(by)
    ]
    origin = [("time", pa.int64()), ("partition", pa.int32()), ("offset", pa.int64())]
    schema = pa.schema([*keys, *origin, *values])
    empty = pa.schema([(KEY, pa.binary()), *origin, *values]).empty_table()
    packed = []
    offset = 0
    for batch in batches:
        count = batch.num_rows
        columns = [batch.column(name) for name in by]
        columns += [
            pa.nulls(count, pa.int64()),
            pa.array(np.zeros(count, np.int32)),
            pa.array(np.arange(offset, offset + count)),
        ]
        offset += count
        rows = pa.table([*columns, *batch.columns], schema=schema)
        found = [[empty] for _ in range(buckets)]
        packer = Packer(adapted, 0, schema, keys=len(by), buckets=buckets)
        for blobs in packer.pack(rows.to_batches()):
            for bucket, data in zip(blobs.buckets, blobs.data, strict=True):
                found[bucket].append(from_bytes(data.as_buffer()))
        packed.append([in_order(each) for each in found])
    return adapted, packed


def _check_batches(batches: Sequence[pa.Table], by: Sequence[str]) -> None:
    """Refuse what no query gives: no columns, others in each batch, keys that are none of them."""
    if not batches:
        raise OwnOperatorError(
            "there are no batches, and so no columns", hint="give one, if need be without rows"
        )
    for number, batch in enumerate(batches):
        if not isinstance(batch, pa.Table):
            raise OwnOperatorError(
                f"batch {number} is a {type(batch).__name__}, not a table of Arrow",
                hint="batches=[pa.table({...}), ...]",
            )
        if not batch.schema.equals(batches[0].schema):
            raise OwnOperatorError(
                f"batch {number} has other columns than batch 0: {_columns(batch)}",
                hint=f"give all of them {_columns(batches[0])}",
            )
    for name in by:
        if name not in batches[0].column_names:
            raise no_column(OwnOperatorError, name, batches[0].column_names, why=" for the key")


def _columns(batch: pa.Table) -> str:
    return ", ".join(f"{each.name} {each.type}" for each in batch.schema)


def _times(watermarks: Sequence[Watermark] | None, count: int) -> list[int | None]:
    """Return what time it is at each batch; it never goes back, as in a query."""
    times = [_us(each) for each in watermarks or [None] * count]
    if len(times) != count:
        raise OwnOperatorError(
            f"there are {len(times)} watermarks for {count} batches",
            hint="give one for each batch, None where there is none yet, or none at all",
        )
    for number, (earlier, later) in enumerate(pairwise(times), start=1):
        if earlier is not None and (later is None or later < earlier):
            raise OwnOperatorError(
                f"the watermark of batch {number} is before that of batch {number - 1}",
                hint="a watermark never goes back: put them in order",
            )
    return times


def _listed(by: str | Sequence[str]) -> list[str]:
    return [by] if isinstance(by, str) else list(by)


def _kept(state: State) -> State:
    """Return a state as it comes back from a checkpoint."""
    store = DictStore({chunk.name: chunk.data() for chunk in state.chunks})
    return State.restore(json.loads(json.dumps(state.describe())), store)


def _named(rows: pa.Table, output: pa.Schema) -> pa.Table:
    values = [rows.column(f"c{number}") for number in range(len(output))]
    return pa.table(values, schema=output).combine_chunks()


def _bag(rows: pa.Table) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows.to_pylist())


def _us(moment: Watermark) -> int | None:
    if isinstance(moment, datetime):
        return (moment - _EPOCH) // timedelta(microseconds=1)
    return moment
