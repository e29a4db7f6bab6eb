"""Arrow arrays as NumPy views, without copying where the layout allows it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int32]

SIGN_BIT = np.uint64(1 << 63)
_CANONICAL_NAN = np.float64("nan")


WIDTH_1 = {type_.id for type_ in (pa.int8(), pa.uint8())}
WIDTH_2 = {type_.id for type_ in (pa.int16(), pa.uint16(), pa.float16())}
WIDTH_4 = {type_.id for type_ in (pa.int32(), pa.uint32(), pa.float32(), pa.date32(), pa.time32("s"))}
WIDTH_8 = {
    type_.id
    for type_ in (
        pa.int64(),
        pa.uint64(),
        pa.float64(),
        pa.date64(),
        pa.time64("us"),
        pa.timestamp("ms"),
        pa.duration("ms"),
    )
}
SMALL_OFFSETS = {pa.string().id, pa.binary().id}
LARGE_OFFSETS = {pa.large_string().id, pa.large_binary().id}

_BOOL = pa.bool_().id
_WORD_TYPES = {_BOOL} | WIDTH_1 | WIDTH_2 | WIDTH_4 | WIDTH_8
_PLAIN_WORDS = WIDTH_8 - {pa.float64().id}
_FLOAT_TYPES = {pa.float16().id, pa.float32().id, pa.float64().id}
_STORED_TYPES = {
    type_.id
    for type_ in (
        pa.decimal32(1),
        pa.decimal64(1),
        pa.decimal128(1),
        pa.decimal256(1),
        pa.binary(1),
        pa.month_day_nano_interval(),
    )
}
_VIEW_TYPES = {pa.string_view().id, pa.binary_view().id}
_BYTES_TYPES = SMALL_OFFSETS | LARGE_OFFSETS | _VIEW_TYPES | _STORED_TYPES
_ENCODED_TYPES = {
    pa.dictionary(pa.int32(), pa.string()).id,
    pa.run_end_encoded(pa.int32(), pa.int8()).id,
    pa.uuid().id,
}


class UnsupportedType(TypeError):
    """A column's type cannot be used for what was asked; the message says which column and what to do."""


class ByteStrings(NamedTuple):
    """Values of variable length: value i is data[offsets[i] : offsets[i + 1]]."""

    data: Bytes
    offsets: npt.NDArray[Any]


def view(buffer: pa.Buffer | None, dtype: Any, count: int, offset: int = 0) -> npt.NDArray[Any]:
    """`count` values of a buffer from value `offset` on; aligned, as compiled loops expect it."""
    if buffer is None or count == 0:
        return np.empty(0, dtype)
    values = np.frombuffer(buffer, dtype, count, offset * np.dtype(dtype).itemsize)
    return values if values.flags.aligned else values.copy()


def fixed_width(array: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    """The values of an array of fixed width; what lies under a null is arbitrary."""
    return view(array.buffers()[1], dtype, len(array), array.offset)


def validity(array: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Which values are not null; None if all of them are."""
    if array.null_count == 0:
        return None
    valid: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def is_wordlike(type_: pa.DataType) -> bool:
    """Whether a value fits into one 64-bit word, so that equal words mean equal values."""
    return type_.id in _WORD_TYPES


def is_byteslike(type_: pa.DataType) -> bool:
    """Whether a value is a string of bytes, or is stored as one of fixed width."""
    return type_.id in _BYTES_TYPES


def stored_width(type_: pa.DataType) -> int | None:
    """The width of types whose values are compared by their stored bytes: decimals and fixed-size binary."""
    return int(type_.bit_width) // 8 if type_.id in _STORED_TYPES else None


def plain(array: pa.Array) -> pa.Array:
    """The same values without dictionary, run-end or extension encoding."""
    while array.type.id in _ENCODED_TYPES or isinstance(array, pa.ChunkedArray):
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        elif isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif isinstance(array, pa.DictionaryArray):
            array = array.dictionary_decode()
        else:
            array = pc.run_end_decode(array)
    return array


def words_of(array: pa.Array) -> Words:
    """One int64 per value such that equal values have equal words; of floats: their bits."""
    type_ = array.type
    if type_.id in _PLAIN_WORDS:
        return fixed_width(array, np.int64)
    if type_.id == _BOOL:
        return fixed_width(array.cast(pa.uint8()), np.uint8).astype(np.int64)
    if type_.id in _FLOAT_TYPES:
        floats = fixed_width(array.cast(pa.float64()), np.float64)
        floats = np.where(np.isnan(floats), _CANONICAL_NAN, floats) + 0.0  # -0.0 + 0.0 is 0.0
        return floats.view(np.int64)
    kind = "u" if pa.types.is_unsigned_integer(type_) else "i"
    return fixed_width(array, np.dtype(f"{kind}{type_.bit_width // 8}")).astype(np.int64)


def byte_strings_of(array: pa.Array) -> ByteStrings:
    """The values of a string or binary array (of any layout), or the stored bytes of decimals."""
    width = stored_width(array.type)
    if width is not None:
        data = view(array.buffers()[1], np.uint8, len(array) * width, array.offset * width)
        return ByteStrings(data, np.arange(0, (len(array) + 1) * width, width, dtype=np.int64))
    type_ = array.type
    if type_.id in _VIEW_TYPES:
        array = array.cast(pa.large_binary())
        type_ = array.type
    large = type_.id in LARGE_OFFSETS
    _, offsets, data_buffer = array.buffers()
    if len(array) == 0:
        return ByteStrings(np.empty(0, np.uint8), np.zeros(1, np.int64 if large else np.int32))
    data = view(data_buffer, np.uint8, 0 if data_buffer is None else data_buffer.size)
    return ByteStrings(data, view(offsets, np.int64 if large else np.int32, len(array) + 1, array.offset))
