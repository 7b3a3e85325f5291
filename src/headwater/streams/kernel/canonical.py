"""One way to write a column down: equal contents have equal buffers.

This file alone decides which of the many layouts that Arrow allows for the same values is the one
of state: no offset, no gap, a bitmap only where there is a null, zeros under nulls and behind the
last bit. A chunk is named by its bytes, so a step that is run again must give the same ones.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.streams.kernel import arrays
from headwater.streams.kernel.arrays import EVERYTHING, Bytes
from headwater.streams.kernel.errors import ValueTypeError

_STRINGS: Final = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def check_value_type(name: str, kind: pa.DataType) -> None:
    """Refuse a column that state cannot be kept of.

    Raises:
        ValueTypeError: It is a dictionary, a union, a view or of a type made up by somebody.
    """
    if not _is_kept(kind):
        raise ValueTypeError(
            f"column {name} of type {kind} cannot be kept in state",
            hint="cast it to a plain type: a number, a string, a list, a map or a struct",
        )


def _is_kept(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return False
    if _is_list(kind) or pa.types.is_fixed_size_list(kind):
        return _is_kept(kind.value_type)
    if pa.types.is_map(kind):
        return _is_kept(kind.key_type) and _is_kept(kind.item_type)
    if pa.types.is_struct(kind):
        return all(_is_kept(field.type) for field in kind)
    return pa.types.is_null(kind) or kind in _STRINGS or _bits(kind) > 0


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _bits(kind: pa.DataType) -> int:
    """Return how wide a type of fixed width is, 0 for others."""
    is_flat = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    return kind.bit_width if is_flat or pa.types.is_fixed_size_binary(kind) else 0


def canonical(array: pa.Array) -> pa.Array:
    """Return an equal array in the one layout."""
    return _laid_out(array, EVERYTHING)


def _laid_out(array: pa.Array, present: Bytes) -> pa.Array:
    """Lay an array out that is part of one with nulls, whose values are nobody's."""
    kind, count = array.type, len(array)
    if pa.types.is_null(kind):
        return pa.nulls(count)
    valid = arrays.both(present, arrays.validity(array))
    bitmap = arrays.packed(valid)
    if kind in _STRINGS:
        return _strings(array, valid, bitmap)
    if _is_list(kind) or pa.types.is_map(kind):
        return _lists(array, valid, bitmap)
    if pa.types.is_struct(kind):
        children = [_laid_out(array.field(at), valid) for at in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, count, [bitmap], children=children)
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        inside = arrays.frozen(np.repeat(valid, size))
        child = _laid_out(array.values.slice(array.offset * size, count * size), inside)
        return pa.Array.from_buffers(kind, count, [bitmap], children=[child])
    return pa.Array.from_buffers(kind, count, [bitmap, _flat(array, valid)])


def _flat(array: pa.Array, valid: Bytes) -> pa.Buffer:
    if pa.types.is_boolean(array.type):
        truths = arrays.bits(array.buffers()[1], array.offset, len(array))
        return pa.py_buffer(np.packbits(arrays.both(truths, valid), bitorder="little"))
    width = _bits(array.type) // 8
    data = array.buffers()[1]
    if data is None:
        return pa.py_buffer(b"")
    values = data.slice(array.offset * width, len(array) * width)
    if not len(valid):
        return values
    blanked = np.frombuffer(values, np.uint8).reshape(len(array), width) * valid[:, np.newaxis]
    return pa.py_buffer(blanked)


def _strings(array: pa.Array, valid: Bytes, bitmap: pa.Buffer | None) -> pa.Array:
    offsets, data = arrays.binary(array)
    lengths = np.diff(offsets)
    if len(valid) and lengths[valid == 0].any():
        data = data[_kept(offsets, lengths, valid)]
        starts = _starts(lengths * valid, offsets.dtype)
        pieces = [bitmap, pa.py_buffer(starts), pa.py_buffer(data)]
        return pa.Array.from_buffers(array.type, len(array), pieces)
    start, end = int(offsets[0]), int(offsets[-1])
    held = array.buffers()[2]
    kept = held.slice(start, end - start) if held is not None else pa.py_buffer(b"")
    starts = pa.py_buffer(offsets - offsets[0] if start else offsets)
    return pa.Array.from_buffers(array.type, len(array), [bitmap, starts, kept])


def _lists(array: pa.Array, valid: Bytes, bitmap: pa.Buffer | None) -> pa.Array:
    dtype = np.int64 if pa.types.is_large_list(array.type) else np.int32
    offsets = arrays.frozen(np.zeros(1, dtype))
    if len(array):
        held = arrays.seen(array.buffers()[1], dtype)
        offsets = held[array.offset : array.offset + len(array) + 1]
    child = _entries(array) if pa.types.is_map(array.type) else array.values
    lengths = np.diff(offsets)
    if len(valid) and lengths[valid == 0].any():
        child = child.take(pa.array(_kept(offsets, lengths, valid)))
        lengths = lengths * valid
    else:
        child = child.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    starts = pa.py_buffer(_starts(lengths, dtype))
    children = [_laid_out(child, EVERYTHING)]
    return pa.Array.from_buffers(array.type, len(array), [bitmap, starts], children=children)


def _entries(array: pa.MapArray) -> pa.Array:
    """Return the pairs of a map, which pyarrow shows as two columns."""
    kind = pa.struct([array.type.key_field, array.type.item_field])
    keys, items = array.keys, array.items
    return pa.Array.from_buffers(kind, len(keys), [None], children=[keys, items])


def _kept(offsets: npt.NDArray[Any], lengths: npt.NDArray[Any], valid: Bytes) -> Any:  # noqa: ANN401
    """Return where everything lies that no null covers."""
    covered = np.repeat(valid, lengths)
    return int(offsets[0]) + np.flatnonzero(covered)


def _starts(lengths: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    starts = np.zeros(len(lengths) + 1, dtype)
    np.cumsum(lengths, out=starts[1:])
    return starts
