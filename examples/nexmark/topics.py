"""Events as records of the topic `nexmark`: keys, JSON values, partitions.

This file alone decides how an event is written down, as the Kafka form of Nexmark does it: one
topic; each record has the number of its kind and one of `person`, `auction` and `bid`, the others
null. Where that form spreads records in turn, ours have keys, so that an auction and its bids stay
in order: the id of a person, the id of an auction, the auction of a bid. It writes to no log.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from examples.nexmark.loops import Int64s
from examples.nexmark.model import Events
from headwater.delivery.client.partitioner import partition_for_key

TOPIC: Final = "nexmark"
KINDS: Final = ("person", "auction", "bid")
"""`event_type` is the place in this list."""
KEYS: Final = {"person": "id", "auction": "id", "bid": "auction"}
_PLACE: Final = ("append_time", "partition", "offset")

RECORDS: Final = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)


def place(events: Events, partitions: int, next_offsets: Sequence[int] | None = None) -> Events:
    """Give the events the partitions and offsets that a topic with so many partitions has for them.

    Args:
        events: A part of the stream as the generator gives it: `offset` is its order.
        partitions: How many partitions the topic has.
        next_offsets: The first free offset of each partition; 0 if nothing was written yet.
    """
    order = np.argsort(np.concatenate([np.asarray(table["offset"]) for table in events]))
    chosen = np.concatenate([_partitions(events, kind, partitions) for kind in KINDS])
    offsets = np.empty(len(order), np.int64)
    for partition in range(partitions):
        rows = order[chosen[order] == partition]
        first = next_offsets[partition] if next_offsets else 0
        offsets[rows] = np.arange(first, first + len(rows))
    bounds = np.cumsum([0, *(table.num_rows for table in events)])
    return Events(
        *(
            _placed(table, chosen[begin:end], offsets[begin:end])
            for table, begin, end in zip(events, bounds[:-1], bounds[1:], strict=True)
        )
    )


def behind(events: Events, partition: int, more: Events) -> Events:
    """Place one event of each kind behind all that a partition has, whatever their keys say.

    Args:
        events: What the topic has, placed.
        partition: Where they go.
        more: Events, of which the first of each kind are taken.
    """
    first = 1 + max(_last_offset(table, partition) for table in events)
    return Events(
        *(
            _placed(table.slice(0, 1), np.array([partition]), np.array([first + at]))
            for at, table in enumerate(more)
        )
    )


def together(*parts: Events) -> Events:
    """Return all events of several parts."""
    return Events(*(pa.concat_tables(tables) for tables in zip(*parts, strict=True)))


def records(events: Events) -> pa.Table:
    """Give the records of some events, by partition and offset; they are appended in that order."""
    parts = []
    for number, (kind, table) in enumerate(zip(KINDS, events, strict=True)):
        columns = [table[name].combine_chunks() for name in table.column_names]
        fields = dict(zip(table.column_names, columns, strict=True))
        before = "".join(f',"{other}":null' for other in KINDS[:number])
        after = "".join(f',"{other}":null' for other in KINDS[number + 1 :])
        value = _joined(f'{{"event_type":{number}{before},"{kind}":', _json(fields), f"{after}}}")
        key = fields[KEYS[kind]].cast(pa.string())
        parts.append(
            pa.table(
                [
                    fields["partition"],
                    fields["offset"],
                    fields["append_time"],
                    key.cast(pa.binary()),
                    value.cast(pa.binary()),
                ],
                schema=RECORDS,
            )
        )
    return pa.concat_tables(parts).sort_by([("partition", "ascending"), ("offset", "ascending")])


def _last_offset(table: pa.Table, partition: int) -> int:
    offsets = np.asarray(table["offset"])[np.asarray(table["partition"]) == partition]
    return int(offsets.max(initial=-1))


def _placed(table: pa.Table, partitions: Int64s, offsets: Int64s) -> pa.Table:
    columns = dict(zip(table.column_names, table.columns, strict=True))
    columns["partition"] = pa.array(partitions, pa.int32())
    columns["offset"] = pa.array(offsets)
    return pa.table(list(columns.values()), schema=table.schema)


def _partitions(events: Events, kind: str, partitions: int) -> Int64s:
    keys = getattr(events, kind)[KEYS[kind]].combine_chunks().dictionary_encode()
    ids = keys.dictionary.to_pylist()
    chosen = [partition_for_key(str(each).encode(), partitions) for each in ids]
    return np.asarray(chosen, np.int64).take(np.asarray(keys.indices))


def _json(fields: dict[str, pa.Array]) -> pa.StringArray:
    """Rows as JSON objects; their strings have no character that JSON would escape."""
    parts: list[pa.StringArray | str] = []
    for name, column in fields.items():
        if name in _PLACE:
            continue
        parts.append(f'{"," if parts else "{"}"{name}":')
        if pa.types.is_integer(column.type):
            parts.append(column.cast(pa.string()))
        elif pa.types.is_timestamp(column.type):
            parts += ['"', _iso(column), '"']
        else:
            parts += ['"', column, '"']
    return _joined(*parts, "}")


def _iso(times: pa.Array) -> pa.StringArray:
    """As in 2015-07-15T00:00:00.123Z; Arrow's own cast has a blank for the T."""
    text = times.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("ms")).cast(pa.string())
    date, hour = len("2015-07-15"), len("2015-07-15T")
    return _joined(pc.utf8_replace_slice(text, date, hour, "T"), "Z")


def _joined(*parts: pa.StringArray | str) -> pa.StringArray:
    return pc.binary_join_element_wise(*parts, "")
