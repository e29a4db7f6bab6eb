"""What both joins share: the columns that come out, keys that match nothing, pairs in bounded numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.kernels.arrow_views import Rows
from snapshot_engine.kernels.joining import count_partners, list_pairs
from snapshot_engine.operators.stream_type import HIDDEN_KEY, HIDDEN_TIME, StreamType
from snapshot_engine.operators.window_output import MOST_ROWS
from snapshot_engine.state.encoded_keys import EncodedKeys
from snapshot_engine.state.key_codec import KeyCodec

RIGHT_SUFFIX = "_right"
"""What a column of the right side is called where the left side has one of the same name."""


@dataclass(frozen=True)
class JoinSide:
    """One input of a join: its keys, and the columns that it adds to the output."""

    name: str
    keys: tuple[str, ...]
    others: tuple[str, ...]
    schema: pa.Schema

    @classmethod
    def of(cls, name: str, keys: Sequence[str], type_: StreamType) -> JoinSide:
        hidden = {HIDDEN_KEY, HIDDEN_TIME} - set(keys)
        others = tuple(column for column in type_.schema.names if column not in keys and column not in hidden)
        kept = pa.schema([type_.schema.field(column) for column in (*keys, *others)])
        return cls(name, tuple(keys), others, kept)

    def codec(self) -> KeyCodec:
        return KeyCodec(self.keys, [self.schema.field(key).type for key in self.keys])

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Only what the join looks at and puts out."""
        return batch.select([*self.keys, *self.others])

    def matchable(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_] | None:
        """Which rows have a key without a null: no other can equal anything. None: all of them."""
        with_nulls = [batch.column(key) for key in self.keys if batch.column(key).null_count]
        if not with_nulls:
            return None
        valid = np.ones(batch.num_rows, np.bool_)
        for column in with_nulls:
            valid &= column.is_valid().to_numpy(zero_copy_only=False)
        return valid

    def encode(self, codec: KeyCodec, batch: pa.RecordBatch) -> EncodedKeys:
        return codec.encode([batch.column(key) for key in self.keys])

    def describe(self) -> dict[str, str]:
        """For the checkpoint: the columns that are kept and their types."""
        described = {f"{self.name} {field.name}": str(field.type) for field in self.schema}
        return {**described, f"{self.name} keys": ", ".join(self.keys)}

    def stored_keys(self) -> list[str]:
        return [f"col.{key}" for key in self.keys]

    def stored(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        """What is written of these rows; the columns are called such that the join's own can be added to them."""
        table = pa.Table.from_batches(batches, self.schema).unify_dictionaries()
        return table.rename_columns([f"col.{name}" for name in self.schema.names])

    def restored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [batch.column(f"col.{name}") for name in self.schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def joined_fields(left: JoinSide, right: JoinSide, taken: Sequence[str] = ()) -> tuple[list[pa.Field], list[pa.Field]]:
    """The key columns under the left side's names, and the other columns of both sides; nulls may come anywhere."""
    keys = [left.schema.field(key).with_nullable(True) for key in left.keys]
    names = {*left.keys, *taken}
    others = []
    for side in (left, right):
        for column in side.others:
            name = column + RIGHT_SUFFIX if side is right and column in names else column
            if name in names:
                raise ValueError(
                    f"the join would have two columns {name!r}: rename {column!r} of the {side.name} stream before it"
                )
            names.add(name)
            others.append(side.schema.field(column).with_name(name).with_nullable(True))
    return keys, others


def whole(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """All rows as one batch."""
    if len(batches) == 1:
        return batches[0]
    combined = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
    if len(combined) > 1:
        raise OverflowError(
            "one window of the join holds more than 2 GB of a string column: cast it to large_string, or make the "
            "windows smaller"
        )
    return combined[0] if combined else pa.RecordBatch.from_pylist([], schema=schema)


def pairs_in_parts(keys: Rows, heads: Rows, nexts: Rows, counts: npt.NDArray[np.int64]) -> Iterator[tuple[Rows, Rows]]:
    """Pairs of (probing row, stored row), in parts of about MOST_ROWS; `counts` says how many each probing row has."""
    ends = np.cumsum(counts)
    begin = 0
    while begin < len(keys):
        done = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, done + MOST_ROWS, side="right")))
        size = int(ends[end - 1]) - done
        if size:
            probes, partners = np.empty(size, np.int32), np.empty(size, np.int32)
            list_pairs(keys, begin, end, heads, nexts, probes, partners)
            yield probes, partners
        begin = end


def partners_of(keys: Rows, heads: Rows, nexts: Rows) -> npt.NDArray[np.int64]:
    counts = np.empty(len(keys), np.int64)
    count_partners(keys, heads, nexts, counts)
    return counts
