"""Rows that stand for several: how many each does, where rows of one key were combined before they were sent."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from snapshot_engine.kernels.arrow_views import Rows, fixed_width
from snapshot_engine.operators.stream_type import HIDDEN_WEIGHT

WEIGHT = pa.field(HIDDEN_WEIGHT, pa.int32())


def weights_of(batch: pa.RecordBatch) -> Rows | None:
    """None where each row counts once, as those of older segments and of other edges do."""
    position = batch.schema.get_field_index(HIDDEN_WEIGHT)
    return None if position < 0 else fixed_width(batch.column(position), np.int32)


def rows_counted(batch: pa.RecordBatch) -> int:
    """How many rows of the user's these are."""
    weights = weights_of(batch)
    return batch.num_rows if weights is None else int(weights.sum(dtype=np.int64))


class Ones:
    """The weights of rows that were not combined: always the same memory."""

    def __init__(self) -> None:
        self._ones = pa.array(np.ones(0, np.int32))

    def append_to(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if len(self._ones) < batch.num_rows:
            self._ones = pa.array(np.ones(2 * batch.num_rows, np.int32))
        return batch.append_column(WEIGHT, self._ones.slice(0, batch.num_rows))
