"""Stable hashes of rows, from the values of their key columns.

FROZEN: the same value has the same hash in every version, on every machine, whatever the Arrow layout it
comes in (integers of any width, strings with small or large offsets, plain or dictionary-encoded).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from snapshot_engine.kernels.arrow_views import (
    UnsupportedType,
    byte_strings_of,
    is_byteslike,
    is_wordlike,
    plain,
    validity,
    view,
    words_of,
)
from snapshot_engine.kernels.compiled import kernel, read, write
from snapshot_engine.kernels.memory import address_of
from snapshot_engine.kernels.mixing import NULL_HASH, combine, hash_bytes, mix

Hashes = npt.NDArray[np.uint64]

_HASHES = write(types.uint64)


@kernel((read(types.int64), _HASHES))
def hash_words(words: npt.NDArray[np.int64], out: Hashes) -> None:
    for i in range(len(out)):
        out[i] = mix(np.uint64(words[i]))


@kernel(
    (read(types.uint8), read(types.int32), _HASHES),
    (read(types.uint8), read(types.int64), _HASHES),
)
def hash_byte_strings(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], out: Hashes) -> None:
    start = address_of(data)
    for i in range(len(out)):
        out[i] = hash_bytes(start + offsets[i], offsets[i + 1] - offsets[i], start + len(data))


@kernel((_HASHES, read(types.uint64)))
def combine_hashes(into: Hashes, column: Hashes) -> None:
    for i in range(len(into)):
        into[i] = combine(into[i], column[i])


@kernel((read(types.int64), read(types.uint64), _HASHES))
def hash_lists(offsets: npt.NDArray[np.int64], elements: Hashes, out: Hashes) -> None:
    for i in range(len(out)):
        state = mix(np.uint64(offsets[i + 1] - offsets[i]))
        for j in range(offsets[i], offsets[i + 1]):
            state = combine(state, elements[j])
        out[i] = state


def hash_rows(batch: pa.RecordBatch | pa.Table, columns: Sequence[str]) -> Hashes:
    """One hash per row, from the values of `columns` in this order."""
    hashes = hash_array(batch.column(columns[0]), columns[0])
    for name in columns[1:]:
        combine_hashes(hashes, hash_array(batch.column(name), name))
    return hashes


def hash_array(array: pa.Array | pa.ChunkedArray, name: str = "") -> Hashes:
    """One hash per value; nulls have a hash of their own."""
    if isinstance(array, pa.DictionaryArray) and len(array.dictionary) < len(array):
        return _hash_dictionary(array, name)
    array = plain(array)
    hashes = _hash_values(array, name)
    valid = validity(array)
    if valid is not None:
        hashes[~valid] = NULL_HASH
    return hashes


def _hash_values(array: pa.Array, name: str) -> Hashes:
    type_ = array.type
    hashes = np.empty(len(array), np.uint64)
    if is_wordlike(type_):
        hash_words(words_of(array), hashes)
    elif is_byteslike(type_):
        strings = byte_strings_of(array)
        hash_byte_strings(strings.data, strings.offsets, hashes)
    elif pa.types.is_struct(type_):
        hashes.fill(NULL_HASH)
        for index, field in enumerate(type_):
            combine_hashes(hashes, hash_array(array.field(index), f"{name}.{field.name}"))
    elif pa.types.is_list(type_) or pa.types.is_large_list(type_):
        _hash_list(array, name, hashes)
    elif pa.types.is_fixed_size_list(type_):
        _hash_list(array.cast(pa.list_(type_.value_type)), name, hashes)
    elif pa.types.is_null(type_):
        hashes.fill(NULL_HASH)
    else:
        raise UnsupportedType(
            f"column {name!r} of type {type_} cannot be a key: two equal values may be stored differently; "
            "key by a column made from it (a string, a number, or a struct or list of these)"
        )
    return hashes


def _hash_list(array: pa.Array, name: str, out: Hashes) -> None:
    large = pa.types.is_large_list(array.type)
    offsets = view(array.buffers()[1], np.int64 if large else np.int32, len(array) + 1, array.offset)
    hash_lists(offsets.astype(np.int64), hash_array(array.values, f"{name}[]"), out)


def _hash_dictionary(array: pa.DictionaryArray, name: str) -> Hashes:
    of_values = hash_array(array.dictionary, name)
    indices = array.indices
    valid = validity(indices)
    numbers = words_of(indices)
    if valid is not None:
        hashes: Hashes = np.full(len(array), NULL_HASH)
        hashes[valid] = of_values[numbers[valid]]
        return hashes
    return of_values[numbers]
