from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from snapshot_engine.operators.operator import OperatorContext, StateTypeChanged
from snapshot_engine.state.handles import OperatorState, PieceHandle
from snapshot_engine.state.restored_tables import StateSchemaChanged, restored_tables, restored_watermark

SCHEMA = {"key": "int64"}


class Tables:
    def __init__(self, tables: dict[str, pa.Table]) -> None:
        self.tables = tables

    def read_table(self, handle: PieceHandle) -> pa.Table:
        return self.tables[handle.path]

    def read_bytes(self, handle: PieceHandle) -> bytes:
        raise AssertionError


def context_of(
    states: list[OperatorState],
    tables: dict[str, pa.Table],
    subtask: int = 0,
    parallelism: int = 1,
    rescaled: bool = False,
) -> OperatorContext:
    return OperatorContext(
        uid="op",
        name="op",
        subtask=subtask,
        parallelism=parallelism,
        key_groups=16,
        attempt=(1, 1),
        restored=states,
        rescaled=rescaled,
        reader=Tables(tables),
        clock=lambda: 0,
    )


def table_of(keys: list[Any], name: str = "groups") -> pa.Table:
    return pa.table({"key": pa.array(keys, pa.int64())}).replace_schema_metadata({"table": name})


def state_of(*paths: str, watermark: int = 0) -> OperatorState:
    pieces = tuple(PieceHandle(path, 1, "") for path in paths)
    return OperatorState("op", "test", SCHEMA, {"watermark": watermark}, pieces)


def read(context: OperatorContext) -> list[tuple[str, list[Any]]]:
    found = restored_tables(context, "test", SCHEMA, lambda _: ["key"])
    return [(name, batch.column("key").to_pylist()) for name, batch in found]


def test_pieces_come_in_their_order_with_their_names() -> None:
    tables = {"a": table_of([1, 2]), "b": table_of([3], "pairs"), "c": table_of([])}
    assert read(context_of([state_of("a", "c", "b")], tables)) == [("groups", [1, 2]), ("pairs", [3])]


def test_each_row_goes_to_one_subtask_after_rescaling() -> None:
    tables = {"a": table_of([*range(50), None]), "b": table_of(list(range(50, 90)))}
    states = [state_of("a"), state_of("b")]
    found: list[Any] = []
    for subtask in range(3):
        mine = [key for _, keys in read(context_of(states, tables, subtask, 3, rescaled=True)) for key in keys]
        assert mine, "each subtask has some"
        found += mine
    assert len(found) == 91
    assert set(found) == {None, *range(90)}


def test_a_piece_that_is_named_twice_is_read_once() -> None:
    tables = {"a": table_of([1, 2]), "b": table_of([3])}
    states = [state_of("a", "b"), state_of("a")]
    assert read(context_of(states, tables, rescaled=True)) == [("groups", [1, 2]), ("groups", [3])]


def test_the_watermark_is_the_one_that_all_had_reached() -> None:
    states = [state_of(watermark=7), state_of(watermark=5)]
    assert restored_watermark(context_of(states, {}), "test") == 5
    assert restored_watermark(context_of([], {}), "test") is None


def test_a_changed_type_is_an_error_that_names_it() -> None:
    state = OperatorState("op", "test", {"key": "string", "gone": "int64"}, {})
    with pytest.raises(StateSchemaChanged, match="gone was int64, is gone; key was string, is int64"):
        read(context_of([state], {}))


def test_another_kind_of_state_is_refused() -> None:
    state = OperatorState("op", "other", SCHEMA, {})
    with pytest.raises(StateTypeChanged, match="'other'"):
        read(context_of([state], {}))
