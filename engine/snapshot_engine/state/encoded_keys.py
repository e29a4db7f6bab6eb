"""Keys as compiled tables take them: one word each, a tuple of words, or a byte string."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from snapshot_engine.kernels.arrow_views import ByteStrings, Rows, Words
from snapshot_engine.kernels.memory import COPY_SLACK
from snapshot_engine.kernels.ordering import gather_bytes

Validity = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class WordKeys:
    """Keys of a single column whose values are words; `valid` is None where no key is null."""

    words: Words
    valid: Validity | None

    def __len__(self) -> int:
        return len(self.words)

    def take(self, rows: Rows) -> WordKeys:
        return WordKeys(self.words[rows], None if self.valid is None else self.valid[rows])


@dataclass(frozen=True, slots=True)
class TupleKeys:
    """Keys of several columns of words: a row-major matrix, whose last column has a bit for each null."""

    tuples: Words

    def __len__(self) -> int:
        return len(self.tuples)

    def take(self, rows: Rows) -> TupleKeys:
        return TupleKeys(self.tuples[rows])


@dataclass(frozen=True, slots=True)
class ByteKeys:
    """Keys that are byte strings: those of a single column, or packed rows (which are never null)."""

    strings: ByteStrings
    valid: Validity | None

    def __len__(self) -> int:
        return len(self.strings.offsets) - 1

    def take(self, rows: Rows) -> ByteKeys:
        taken = take_strings(self.strings, rows)
        return ByteKeys(taken, None if self.valid is None else self.valid[rows])


EncodedKeys = WordKeys | TupleKeys | ByteKeys


def take_strings(strings: ByteStrings, rows: Rows) -> ByteStrings:
    order = rows.astype(np.uint32)
    offsets = np.empty(len(rows) + 1, strings.offsets.dtype)
    lengths = np.diff(strings.offsets)
    out = np.empty(int(lengths[rows].sum()) + COPY_SLACK, np.uint8)
    gather_bytes(strings.data, strings.offsets, order, out, offsets)
    return ByteStrings(out[: offsets[-1]], offsets)
