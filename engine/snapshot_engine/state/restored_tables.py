"""Reading back what `piece_chain` wrote: every piece once, in order, and of it only what this subtask owns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from snapshot_engine.kernels.hashing import hash_rows
from snapshot_engine.operators.operator import OperatorContext, iterate_states
from snapshot_engine.state.changed_state import UnfitState
from snapshot_engine.state.handles import OperatorState, PieceHandle


class StateSchemaChanged(UnfitState):
    """The checkpoint's keys or values have other types than the operator's."""


def restored_tables(
    context: OperatorContext,
    kind: str,
    schema: Mapping[str, Any],
    key_columns: Callable[[str], Sequence[str]],
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The tables of all restored states as (name, rows), each state's in the order in which they must be applied.

    `key_columns` says which columns of a table (by its name) are its key.
    """
    seen: set[PieceHandle] = set()
    for state in iterate_states(context.restored, kind):
        _check(state, schema)
        for piece in state.pieces:
            if piece in seen:
                continue
            seen.add(piece)
            table = context.reader.read_table(piece)
            name = table.schema.metadata[b"table"].decode()
            for batch in table.combine_chunks().to_batches():
                owned = _owned(batch, key_columns(name), context) if context.rescaled else batch
                if owned.num_rows:
                    yield name, owned


def restored_watermark(context: OperatorContext, kind: str) -> int | None:
    """The watermark that all restored subtasks had reached; None at a fresh start."""
    states = iterate_states(context.restored, kind)
    return min((int(state.meta["watermark"]) for state in states), default=None)


def _owned(batch: pa.RecordBatch, keys: Sequence[str], context: OperatorContext) -> pa.RecordBatch:
    groups = hash_rows(batch, keys) % np.uint64(context.key_groups)
    owned = context.owned_key_groups()
    return batch.filter(pa.array((groups >= owned.start) & (groups < owned.stop)))


def _check(state: OperatorState, expected: Mapping[str, Any]) -> None:
    found = state.schema
    changes = [
        f"{name} was {found.get(name, 'not there')}, is {expected.get(name, 'gone')}"
        for name in sorted({*found, *expected})
        if found.get(name) != expected.get(name)
    ]
    if changes:
        raise StateSchemaChanged(
            f"the state of {state.uid!r} in the checkpoint does not fit the operator: {'; '.join(changes)}. Give the "
            "changed operator a new uid and allow the old state to be dropped, or change it back"
        )
