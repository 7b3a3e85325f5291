"""The two indexes, against `struct` and a linear search."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from headwater.log.index import OffsetIndex, TimeIndex

BASE = 1 << 40
INT32 = st.integers(0, 2**31 - 1)


def growing(values: list[int]) -> list[int]:
    return sorted(set(values))


offset_entries = st.lists(st.tuples(INT32, INT32), max_size=40).map(
    lambda pairs: list(
        zip(growing([a for a, _ in pairs]), growing([b for _, b in pairs]), strict=False)
    )
)
time_entries = st.lists(st.tuples(st.integers(0, 2**63 - 1), INT32), max_size=40).map(
    lambda pairs: list(
        zip(growing([a for a, _ in pairs]), growing([b for _, b in pairs]), strict=False)
    )
)


def offset_index(entries: list[tuple[int, int]]) -> OffsetIndex:
    index = OffsetIndex(BASE)
    for offset, position in entries:
        index.append(BASE + offset, position)
    return index


def time_index(entries: list[tuple[int, int]]) -> TimeIndex:
    index = TimeIndex(BASE)
    for timestamp, offset in entries:
        index.maybe_append(timestamp, BASE + offset)
    return index


@given(offset_entries, st.binary(max_size=7))
def test_an_offset_index_is_written_and_read_as_struct_does(
    entries: list[tuple[int, int]], rest: bytes
) -> None:
    content = b"".join(struct.pack(">ii", *entry) for entry in entries)

    assert offset_index(entries).encode() == content
    read = OffsetIndex(BASE, content + rest)
    assert read.encode() == content
    assert read.saved_entries == len(read) == len(entries)
    assert read.encode(start=len(entries) // 2) == content[len(entries) // 2 * 8 :]


@given(time_entries, st.binary(max_size=11))
def test_a_time_index_is_written_and_read_as_struct_does(
    entries: list[tuple[int, int]], rest: bytes
) -> None:
    content = b"".join(struct.pack(">qi", *entry) for entry in entries)

    assert time_index(entries).encode() == content
    read = TimeIndex(BASE, content + rest)
    assert read.encode() == content
    assert read.saved_entries == len(read) == len(entries)
    assert read.encode(start=len(entries) // 2) == content[len(entries) // 2 * 12 :]


@given(offset_entries, INT32)
def test_offsets_and_positions_are_found(entries: list[tuple[int, int]], wanted: int) -> None:
    index = offset_index(entries)

    before = [position for offset, position in entries if offset <= wanted]
    assert index.position_before(BASE + wanted) == (before[-1] if before else 0)
    floor = [position for _, position in entries if position <= wanted]
    assert index.floor_position(wanted) == (floor[-1] if floor else 0)
    assert index.last_position() == (entries[-1][1] if entries else 0)


@given(time_entries, st.integers(0, 2**63 - 1), INT32)
def test_timestamps_are_found(entries: list[tuple[int, int]], timestamp: int, offset: int) -> None:
    index = time_index(entries)
    nothing = (-1, 0)

    older = [entry for entry in entries if entry[0] <= timestamp]
    found = older[-1] if older else nothing
    assert index.floor(timestamp) == (found[0], BASE + found[1])
    below = [entry for entry in entries if entry[1] < offset]
    found = below[-1] if below else nothing
    assert index.last_below(BASE + offset) == (found[0], BASE + found[1])


def test_a_time_that_does_not_grow_is_left_out() -> None:
    index = time_index([(5, 1), (5, 2), (4, 3), (6, 4)])

    assert index.encode() == struct.pack(">qiqi", 5, 1, 6, 4)
    assert time_index([(-1, 0)]).encode() == b""


@given(offset_entries, st.data())
def test_an_offset_index_is_cut_at_its_first_impossible_entry(
    entries: list[tuple[int, int]], data: st.DataObject
) -> None:
    garbage = data.draw(st.lists(st.tuples(INT32, INT32), max_size=3))
    content = b"".join(struct.pack(">ii", *entry) for entry in entries + garbage)
    below_offset = data.draw(INT32)
    below_position = data.draw(INT32)
    index = OffsetIndex(BASE, content)
    kept = 0
    for number, (offset, position) in enumerate(entries + garbage):
        previous = (entries + garbage)[number - 1] if number else (-1, -1)
        if offset <= previous[0] or position <= previous[1]:
            break
        if offset >= below_offset or position >= below_position:
            break
        kept += 1

    whole = index.keep_valid(below_offset=BASE + below_offset, below_position=below_position)

    assert index.encode() == content[: kept * 8]
    assert whole == (kept == len(entries) + len(garbage))
    assert index.file_is_longer == (not whole)
    assert index.saved_entries == kept
