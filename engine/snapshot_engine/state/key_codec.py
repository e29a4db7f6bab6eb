"""Key columns to encoded keys and back. Equal encodings mean equal keys, and nothing else does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from snapshot_engine.kernels.arrow_views import (
    UnsupportedType,
    Words,
    byte_strings_of,
    is_byteslike,
    is_wordlike,
    plain,
    validity,
    words_of,
)
from snapshot_engine.state.encoded_keys import ByteKeys, EncodedKeys, TupleKeys, WordKeys
from snapshot_engine.state.packed_rows import pack_rows, unpack_rows
from snapshot_engine.state.stored_columns import array_of_strings, array_of_words, large_type


class KeyCodec:
    """Encodes the columns of a key; `names` serve messages only."""

    def __init__(self, names: Sequence[str], types: Sequence[pa.DataType]) -> None:
        self.names = tuple(names)
        self.types = tuple(plain_type(type_) for type_ in types)
        for name, type_ in zip(self.names, self.types, strict=True):
            if not is_wordlike(type_) and not is_byteslike(type_):
                raise UnsupportedType(
                    f"column {name!r} of type {type_} cannot be a key here: use numbers, strings, binary, decimals, "
                    "dates or times (a column made from it, for instance)"
                )

    @property
    def single(self) -> bool:
        return len(self.types) == 1

    @property
    def only_words(self) -> bool:
        return all(map(is_wordlike, self.types))

    def encode(self, columns: Sequence[pa.Array]) -> EncodedKeys:
        arrays = [plain(column) for column in columns]
        if not self.single:
            return self._encode_tuples(arrays) if self.only_words else ByteKeys(pack_rows(arrays), None)
        array = arrays[0]
        valid = validity(array)
        if self.only_words:
            return WordKeys(words_of(array), valid)
        return ByteKeys(byte_strings_of(array), valid)

    def decode(self, keys: EncodedKeys, *, large: bool = False) -> list[pa.Array]:
        """The key columns, of exactly the types given; with `large`, strings of any total size."""
        if isinstance(keys, WordKeys):
            return [array_of_words(keys.words, keys.valid, self.types[0])]
        if isinstance(keys, TupleKeys):
            return self._decode_tuples(keys.tuples)
        types = [large_type(type_) for type_ in self.types] if large else self.types
        if self.single:
            return [array_of_strings(keys.strings, keys.valid, types[0])]
        return unpack_rows(keys.strings, types)

    def _encode_tuples(self, arrays: Sequence[pa.Array]) -> TupleKeys:
        tuples = np.zeros((len(arrays[0]), len(arrays) + 1), np.int64)
        for number, array in enumerate(arrays):
            words = words_of(array)
            valid = validity(array)
            if valid is not None:
                words = np.where(valid, words, 0)
                tuples[:, -1] |= np.where(valid, 0, np.int64(1) << number)
            tuples[:, number] = words
        return TupleKeys(tuples)

    def _decode_tuples(self, tuples: Words) -> list[pa.Array]:
        nulls = tuples[:, -1]
        columns = []
        for number, type_ in enumerate(self.types):
            valid = (nulls >> number) & 1 == 0 if nulls.any() else None
            columns.append(array_of_words(np.ascontiguousarray(tuples[:, number]), valid, type_))
        return columns


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The type of the values, without dictionary, run-end or extension encoding."""
    while True:
        if isinstance(type_, pa.BaseExtensionType):
            type_ = type_.storage_type
        elif pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
            type_ = type_.value_type
        else:
            return type_
