"""Records and batches for the tests of this room.

This file alone decides what a typical and what an arbitrary record looks like here.
"""

from collections.abc import Callable
from typing import TypeVar

from hypothesis import strategies as st

from headwater.base.errors import CorruptRecordError
from headwater.base.record.batch import write_crc
from headwater.base.record.codecs import Codec
from headwater.base.record.records import Record, build_batch

CODECS = list(Codec)
Result = TypeVar("Result")
NOW_MS = 1_700_000_000_000

# Timestamps of years 1970 to 2100: the foreign readers turn some of them into dates.
timestamps = st.integers(0, 4_102_444_800_000)
payloads = st.none() | st.binary(max_size=100) | st.integers(100, 20_000).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=100)), max_size=4)


@st.composite
def record_lists(draw: st.DrawFn, max_size: int = 20) -> list[Record]:
    """Records as a producer gives them: numbered from 0, everything else arbitrary."""
    drawn = draw(
        st.lists(st.tuples(timestamps, payloads, payloads, headers), min_size=1, max_size=max_size)
    )
    return [
        Record(offset, timestamp, key, value, tuple(header_list))
        for offset, (timestamp, key, value, header_list) in enumerate(drawn)
    ]


def typical(count: int = 3) -> list[Record]:
    """Records of the usual kind: ascending timestamps, a key, a value, one header."""
    return [
        Record(
            offset,
            NOW_MS + 7 * offset,
            b"key-%d" % offset,
            b'{"id": %d, "name": "ada"}' % offset,
            (("trace", b"%d" % offset),),
        )
        for offset in range(count)
    ]


def batch_of(data: bytes | bytearray, *, count: int, codec: int = Codec.NONE) -> bytearray:
    """Make a batch with a right checksum around a records part that may be wrong."""
    batch = build_batch(typical(1))[:61] + data
    batch[8:12] = (len(batch) - 12).to_bytes(4)
    batch[22] = codec
    batch[23:27] = (count - 1).to_bytes(4, signed=True)
    batch[57:61] = count.to_bytes(4, signed=True)
    write_crc(batch, 0, len(batch))
    return batch


def attempt(action: Callable[[], Result]) -> Result | CorruptRecordError:
    """Return what the action gives or the error of ours that it raises; others escape."""
    try:
        return action()
    except CorruptRecordError as error:
        return error
