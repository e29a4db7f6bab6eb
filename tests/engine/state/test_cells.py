from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from snapshot_engine.state.cells import Cells, CurrentKey
from snapshot_engine.state.descriptors import ListState, MapState, ReducingState, ValueState
from snapshot_engine.state.handles import OperatorState, PieceHandle
from snapshot_engine.state.record_keys import RecordKeys
from snapshot_engine.state.record_state import RecordState, StateOwner


class Pieces:
    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def write_table(self, name: str, table: pa.Table, *, shared: bool = False) -> PieceHandle:
        self.tables.append(table)
        return PieceHandle(str(len(self.tables) - 1), 0, "", shared)

    def read_table(self, handle: PieceHandle) -> pa.Table:
        return self.tables[int(handle.path)]


class Store:
    """Keyed state of an operator, without the operator."""

    def __init__(self, states: list[OperatorState] | None = None, pieces: Pieces | None = None) -> None:
        self.pieces = pieces or Pieces()
        self.current = CurrentKey()
        owner = StateOwner("uid", "op", "test", 8, range(8), incremental=True)
        self.state = RecordState(owner, RecordKeys([pa.string()]))
        self.state.restore(states or [], self.pieces, rescaled=False)
        self._cells = Cells(self.state, self.current)

    def cell(self, descriptor: Any) -> Any:
        return self._cells.cell(descriptor)

    def at(self, key: str) -> None:
        self.current.key = key

    def again(self, checkpoint: int = 1) -> Store:
        return Store([self.state.freeze(checkpoint, {}).write(self.pieces)], self.pieces)


@dataclass
class Total:
    count: int
    seen: list[str]


class MoreThanTotal(Total):
    pass


def test_a_value_of_another_class_is_refused_where_it_is_put() -> None:
    """Not at the next checkpoint, of which the function that put it there knows nothing."""
    store, wrong = Store(), MoreThanTotal(1, [])
    store.at("a")
    total = store.cell(ValueState("total", Total))
    totals = store.cell(ListState("totals", Total))
    by_day = store.cell(MapState("by day", str, Total))
    folded = store.cell(ReducingState("folded", lambda old, new: wrong, Total))
    folded.add(Total(0, []))
    totals.add(Total(0, []))
    by_day.put("monday", Total(0, []))
    puts = [
        lambda: total.update(wrong),
        lambda: totals.add(wrong),
        lambda: totals.update([wrong]),
        lambda: by_day.put("tuesday", wrong),
        lambda: folded.add(Total(0, [])),
    ]
    for put in puts:
        with pytest.raises(TypeError, match="a MoreThanTotal would be Total after a restart"):
            put()
    assert (len(totals), len(by_day), folded.get()) == (1, 1, Total(0, []))


def test_a_value_belongs_to_its_key_and_has_a_default() -> None:
    store = Store()
    cell = store.cell(ValueState("n", int, default=7))
    store.at("a")
    assert cell.value() == 7
    cell.update(1)
    store.at("b")
    assert cell.value() == 7
    store.at("a")
    assert cell.value() == 1
    cell.clear()
    assert cell.value() == 7


def test_what_is_done_to_a_default_in_place_is_done_for_one_key_only() -> None:
    store = Store()
    cell = store.cell(ValueState("seen", list, default=[[]]))
    store.at("a")
    cell.value()[0].append(1)
    assert cell.value() == [[]]
    changed = cell.value()
    changed[0].append(2)
    cell.update(changed)
    store.at("b")
    assert cell.value() == [[]]
    store.at("a")
    assert cell.value() == [[2]]


def test_a_list_is_appended_to_and_never_handed_out_itself() -> None:
    store = Store()
    cell = store.cell(ListState("l"))
    store.at("a")
    assert (cell.get(), len(cell)) == ([], 0)
    cell.add(1)
    cell.add_all([2, 3])
    cell.get().append(99)
    assert (cell.get(), len(cell)) == ([1, 2, 3], 3)
    cell.update([4])
    assert list(cell) == [4]
    cell.update([])
    assert cell.get() == []
    assert store.state.size()[0] == 0


def test_a_map_behaves_like_a_dictionary() -> None:
    store = Store()
    cell = store.cell(MapState("m"))
    store.at("a")
    assert cell.is_empty()
    cell["x"] = 1
    cell.put_all({"y": 2, (1, 2): 3})
    assert (cell["x"], cell.get("z"), cell.get("z", 0), "y" in cell, len(cell)) == (1, None, 0, True, 3)
    assert sorted(map(str, cell)) == sorted(map(str, cell.keys()))
    assert dict(cell.items()) == {"x": 1, "y": 2, (1, 2): 3}
    assert sorted(cell.values()) == [1, 2, 3]
    del cell["x"]
    cell.remove("x")
    cell.remove("y")
    with pytest.raises(KeyError):
        del cell["y"]
    cell.remove((1, 2))
    assert cell.is_empty()
    assert store.state.size()[0] == 0
    with pytest.raises(KeyError):
        cell["x"]


def test_a_reduction_folds() -> None:
    store = Store()
    cell = store.cell(ReducingState("sum", lambda a, b: a + b, int))
    store.at("a")
    assert cell.get() is None
    cell.add(2)
    cell.add(3)
    assert cell.get() == 5
    cell.clear()
    assert cell.get() is None


def test_all_kinds_come_back_from_a_checkpoint_with_their_types() -> None:
    store = Store()
    descriptors: list[Any] = [
        ValueState("v", Total),
        ListState("l", Total),
        MapState("m", int, Total),
        ReducingState("r", lambda a, b: Total(a.count + b.count, []), Total),
    ]
    value, list_, map_, reduction = map(store.cell, descriptors)
    store.at("a")
    value.update(Total(1, ["x"]))
    list_.add(Total(2, []))
    map_[5] = Total(3, [])
    reduction.add(Total(4, []))
    again = store.again()
    value, list_, map_, reduction = map(again.cell, descriptors)
    again.at("a")
    assert value.value() == Total(1, ["x"])
    assert list_.get() == [Total(2, [])]
    assert map_[5] == Total(3, [])
    reduction.add(Total(6, []))
    assert reduction.get() == Total(10, [])


def test_what_is_changed_in_place_after_the_barrier_is_not_in_the_checkpoint() -> None:
    store = Store()
    descriptors: list[Any] = [ValueState("v"), ListState("l"), MapState("m")]
    value, list_, map_ = map(store.cell, descriptors)
    for key in "ab":
        store.at(key)
        value.update({"seen": [1]})
        list_.add([1])
        map_["x"] = [1]
    snapshot = store.state.freeze(1, {})
    store.at("a")
    held = value.value()
    held["seen"].append(2)
    value.update(held)
    list_.get()[0].append(2)
    list_.add([3])
    map_["x"].append(2)
    map_["y"] = [3]
    again = Store([snapshot.write(store.pieces)], store.pieces)
    found = [again.cell(descriptor) for descriptor in descriptors]
    for key in "ab":
        again.at(key)
        assert (found[0].value(), found[1].get(), dict(found[2].items())) == ({"seen": [1]}, [[1]], {"x": [1]})
    assert value.value() == {"seen": [1, 2]}


def test_changes_in_place_are_part_of_the_next_incremental_checkpoint() -> None:
    store = Store()
    list_, map_ = store.cell(ListState("l")), store.cell(MapState("m"))
    for number in range(50):
        store.at(str(number))
        list_.add(0)
        map_["x"] = 0
    store.state.freeze(1, {}).write(store.pieces)
    store.state.completed(1)
    store.at("7")
    list_.add(1)
    map_["x"] = 1
    map_["y"] = 2
    again = store.again(2)
    list_, map_ = again.cell(ListState("l")), again.cell(MapState("m"))
    again.at("7")
    assert (list_.get(), dict(map_.items())) == ([0, 1], {"x": 1, "y": 2})
    assert len(store.pieces.tables) == 2


def test_something_else_than_a_descriptor_is_refused() -> None:
    with pytest.raises(TypeError, match="state\\(\\) needs a ValueState"):
        Store().cell("n")
