"""The job of `exception_recovery`: a keyed sum over a generated sequence that fails at one row.

A module of its own, since slots import it at each restart: as a job of a user's it needs the API and no more.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa

from snapshot_engine.api import Environment
from snapshot_engine.connectors.discard import DiscardSink
from snapshot_engine.connectors.generator import GeneratorSource

ROWS_PER_SECOND = 20_000
POISONED_ROW = 3 * ROWS_PER_SECOND


def numbers(offsets: Any) -> pa.RecordBatch:
    return pa.record_batch({"k": (offsets % 1000).astype(np.int64), "n": offsets.astype(np.int64)})


def add_up(old: Any, new: Any) -> Any:
    """The moment is told in the message: what a restart takes begins where the exception is raised."""
    if new.n == POISONED_ROW:
        raise ZeroDivisionError(f"raised at {time.monotonic():.6f}")
    return old._replace(n=old.n + new.n)


def pipeline(env: Environment) -> None:
    (
        env.from_source(GeneratorSource(numbers, rate=ROWS_PER_SECOND, splits=2), uid="numbers")
        .key_by("k")
        .reduce(add_up)
        .uid("sums")
        .sink_to(DiscardSink(), uid="out")
    )
