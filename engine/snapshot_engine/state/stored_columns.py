"""Arrow columns from words and byte strings: the way back of `kernels/arrow_views.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.kernels.arrow_views import ByteStrings, Words, stored_width

Validity = npt.NDArray[np.bool_]


def bitmap(valid: Validity | None) -> pa.Buffer | None:
    if valid is None or valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def large_type(type_: pa.DataType) -> pa.DataType:
    """The type under which a column is stored in a checkpoint: strings without the limit of 2 GB."""
    if pa.types.is_string(type_) or pa.types.is_string_view(type_):
        return pa.large_string()
    if pa.types.is_binary(type_) or pa.types.is_binary_view(type_):
        return pa.large_binary()
    return type_


def array_of_words(words: Words, valid: Validity | None, type_: pa.DataType) -> pa.Array:
    """The column whose values have these words."""
    data: npt.NDArray[Any]
    if pa.types.is_boolean(type_):
        data = np.packbits(words != 0, bitorder="little")
    elif pa.types.is_floating(type_):
        floats = words.view(np.float64)
        data = floats if type_.bit_width == 64 else floats.astype(np.dtype(f"f{type_.bit_width // 8}"))
    elif type_.bit_width == 64:
        data = words
    else:
        data = words.astype(np.dtype(f"i{type_.bit_width // 8}"))
    return pa.Array.from_buffers(type_, len(words), [bitmap(valid), pa.py_buffer(data)])


def array_of_strings(strings: ByteStrings, valid: Validity | None, type_: pa.DataType) -> pa.Array:
    """The column of strings, binary values or decimals with these bytes."""
    count = len(strings.offsets) - 1
    width = stored_width(type_)
    if width is not None:
        return _array_of_fixed_width(strings, valid, type_, width)
    offsets = strings.offsets
    target = type_
    if pa.types.is_string_view(type_) or pa.types.is_binary_view(type_):
        target = pa.large_string() if pa.types.is_string_view(type_) else pa.large_binary()
    large = pa.types.is_large_string(target) or pa.types.is_large_binary(target)
    if not large and offsets.dtype != np.int32:
        if int(offsets[-1] - offsets[0]) >= 1 << 31:
            raise OverflowError(f"a column of type {type_} cannot hold 2 GB: use large_{type_}")
        base = offsets[0]
        data = strings.data[int(base) :]
        offsets = (offsets - base).astype(np.int32)
    else:
        data = strings.data
        offsets = offsets.astype(np.int64) if large else offsets
    buffers = [bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    array = pa.Array.from_buffers(target, count, buffers)
    return array if target == type_ else array.cast(type_)


def _array_of_fixed_width(strings: ByteStrings, valid: Validity | None, type_: pa.DataType, width: int) -> pa.Array:
    count = len(strings.offsets) - 1
    data = strings.data[int(strings.offsets[0]) : int(strings.offsets[-1])].reshape(-1, width)
    if valid is not None and not valid.all():
        # A null has no bytes here: give it some, so that the others keep their places.
        kept, data = data, np.zeros((count, width), np.uint8)
        data[valid] = kept
    return pa.Array.from_buffers(type_, count, [bitmap(valid), pa.py_buffer(np.ascontiguousarray(data))])
