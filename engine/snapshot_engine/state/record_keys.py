"""Keys as Python values: their key groups, and their bytes in checkpoints."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.kernels.hashing import hash_rows
from snapshot_engine.state.key_codec import plain_type
from snapshot_engine.state.packing import pack, unpack

Key = Any
"""What state is kept under: the value of the key column, a tuple of them, or the packed bytes of a key function."""

KeyGroups = npt.NDArray[np.int64]

NAN = float("nan")
"""Not a number as a key: always this very object, since no other one is found again in a dictionary."""


def holds_floats(type_: pa.DataType) -> bool:
    """Whether values of this type may be, or hold, a NaN."""
    if pa.types.is_nested(type_):
        return any(holds_floats(type_.field(number).type) for number in range(type_.num_fields))
    return bool(pa.types.is_floating(type_))


def with_one_nan(value: Any) -> Any:
    """The same value, in which every NaN is `NAN`."""
    if isinstance(value, tuple):
        return tuple(map(with_one_nan, value))
    return NAN if value != value else value


def _in_utc(value: Any) -> Any:
    """The hour that comes twice in autumn is one and the same to Python, as long as both have the same zone."""
    if not isinstance(value, dt.datetime):
        return value
    return value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)


def key_groups_of(batch: pa.RecordBatch, key_columns: Sequence[str], key_groups: int) -> KeyGroups:
    """The key group of every row, exactly as rows are routed by it."""
    return (hash_rows(batch, key_columns) % np.uint64(key_groups)).astype(np.int64)


class RecordKeys:
    """Keys made of values of these Arrow types. `columns` names where they are read, for checkpoints to tell them
    apart; a key function reads none."""

    def __init__(self, types: Sequence[pa.DataType], columns: Sequence[str] = ()) -> None:
        self.columns = list(columns)
        self.types = [plain_type(type_) for type_ in types]
        self._names = [str(number) for number in range(len(self.types))]
        self._floats = [position for position, type_ in enumerate(self.types) if holds_floats(type_)]
        self._zones = {
            position: pa.lib.string_to_tzinfo(type_.tz)
            for position, type_ in enumerate(self.types)
            if pa.types.is_timestamp(type_) and type_.tz is not None
        }

    def described(self) -> list[str]:
        """The types of the key, as they are kept in checkpoints."""
        return [str(type_) for type_ in self.types]

    def groups(self, keys: Sequence[Key], key_groups: int) -> KeyGroups:
        """The key group of every key: through the same columns, and so the same hashes, as rows are routed by."""
        if not keys:
            return np.empty(0, np.int64)
        batch = pa.RecordBatch.from_arrays(self.arrays(keys), names=self._names)
        return key_groups_of(batch, self._names, key_groups)

    def arrays(self, keys: Sequence[Key]) -> list[pa.Array]:
        """The columns that the keys come from."""
        if not keys:
            return [pa.array([], type_) for type_ in self.types]
        columns: Sequence[Sequence[Any]] = [keys] if len(self.types) == 1 else list(zip(*keys, strict=True))
        return [pa.array(column, type_) for column, type_ in zip(columns, self.types, strict=True)]

    def joined(self, columns: Sequence[Sequence[Any]]) -> list[Key]:
        """Of the columns' values, which are hashable, the keys: all that are the same key are equal."""
        columns = list(columns)
        for position in self._floats:
            columns[position] = list(map(with_one_nan, columns[position]))
        for position in self._zones:
            columns[position] = list(map(_in_utc, columns[position]))
        return list(columns[0]) if len(columns) == 1 else list(zip(*columns, strict=True))

    def in_zones(self, key: Key) -> Key:
        """The key with its times in the zones of their columns."""
        if not self._zones:
            return key
        values = [key] if len(self.types) == 1 else list(key)
        for position, zone in self._zones.items():
            if values[position] is not None:
                values[position] = values[position].astimezone(zone)
        return values[0] if len(values) == 1 else tuple(values)

    def encode(self, keys: Sequence[Key]) -> bytes:
        """Many keys as bytes; column by column, because tuples are dear to pack."""
        if len(self.types) == 1:
            return pack(list(keys))
        return pack([list(column) for column in zip(*keys, strict=True)])

    def decode(self, data: bytes) -> list[Key]:
        values: list[Any] = unpack(data)
        return self.joined([values] if len(self.types) == 1 else values)
