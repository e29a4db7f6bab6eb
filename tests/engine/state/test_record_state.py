"""Snapshots of record state: whatever happens after the barrier, what is written is what was there at the barrier."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_engine.state.changed_state import RecordStateChanged
from snapshot_engine.state.handles import OperatorState, PieceHandle
from snapshot_engine.state.key_groups import owned_key_groups
from snapshot_engine.state.record_keys import RecordKeys
from snapshot_engine.state.record_pieces import UnpackableStateError
from snapshot_engine.state.record_state import (
    MOST_DELTAS,
    RecordSnapshot,
    RecordState,
    StateOwner,
)
from snapshot_engine.state.record_tables import FLAT, MISSING, StateTable
from snapshot_engine.state.row_class import make_row
from snapshot_engine.state.state_types import PlainCodec, codec_of

KEY_GROUPS = 16
KEYS = RecordKeys([pa.int64()])
GROUP_OF = dict(enumerate(KEYS.groups(list(range(60)), KEY_GROUPS).tolist()))


@dataclass
class Kept:
    n: int


class Pieces:
    """Keeps what was written; what belongs to aborted checkpoints is deleted and must not be read again."""

    def __init__(self) -> None:
        self.tables: dict[str, pa.Table] = {}
        self.names = 0
        self.rows = 0

    def write_table(self, name: str, table: pa.Table, *, shared: bool = False) -> PieceHandle:
        self.names += 1
        path = f"{self.names}-{name}"
        self.tables[path] = table
        self.rows += sum(table.column("entries").to_pylist())
        return PieceHandle(path, table.nbytes, "", shared)

    def read_table(self, handle: PieceHandle) -> pa.Table:
        return self.tables[handle.path]

    def delete(self, state: OperatorState, kept: tuple[PieceHandle, ...]) -> None:
        for piece in set(state.pieces) - set(kept):
            del self.tables[piece.path]


def owner(subtask: int = 0, parallelism: int = 1, *, incremental: bool = False) -> StateOwner:
    owned = owned_key_groups(subtask, parallelism, KEY_GROUPS)
    return StateOwner("uid", "counter", "test", KEY_GROUPS, owned, incremental)


def new_state(*, incremental: bool = False) -> tuple[RecordState, StateTable, StateTable]:
    state = RecordState(owner(incremental=incremental), KEYS)
    flat = state.declare("flat", "value[any]", PlainCodec())
    spaced = state.declare("spaced", "value[any]", PlainCodec(), spaced=True)
    return state, flat, spaced


def restored(
    states: list[OperatorState], pieces: Pieces, subtask: int = 0, parallelism: int = 1, *, incremental: bool = False
) -> tuple[RecordState, StateTable, StateTable]:
    state = RecordState(owner(subtask, parallelism, incremental=incremental), KEYS)
    states = [OperatorState.from_json(each.to_json()) for each in states]
    state.restore(states, pieces, rescaled=parallelism > 1 or len(states) > 1)
    flat = state.declare("flat", "value[any]", PlainCodec())
    spaced = state.declare("spaced", "value[any]", PlainCodec(), spaced=True)
    state.all_declared()
    return state, flat, spaced


Content = dict[tuple[str, int, int], Any]


def content(*tables: StateTable) -> Content:
    return {
        (table.name, space, key): value
        for table in tables
        for space, values in table.spaces.items()
        for key, value in values.items()
    }


def mutate(rng: random.Random, model: Content, flat: StateTable, spaced: StateTable) -> None:
    """One random change, to the state and to the model of it."""
    table = rng.choice((flat, spaced))
    space = FLAT if table is flat else rng.randrange(-3, 5) * 100
    key = rng.randrange(20)
    place = (table.name, space, key)
    action = rng.randrange(10)
    if action < 5:
        value = rng.choice((rng.randrange(1000), [rng.randrange(9)], {"a": [1]}))
        table.put(space, key, value)
        model[place] = _copied(value)
    elif action < 7:
        table.remove(space, key)
        model.pop(place, None)
    elif action < 9:
        value = table.own(space, key)
        if isinstance(value, list):
            value.append(7)
            table.touch(space, key)
            model[place] = [*model[place], 7]
        elif isinstance(value, dict):
            value["a"].append(8)
            table.touch(space, key)
            model[place] = {"a": [*model[place]["a"], 8]}
    elif table is spaced:
        table.drop(space)
        for place in [place for place in model if place[:2] == (table.name, space)]:
            del model[place]


def _copied(value: Any) -> Any:
    return list(value) if isinstance(value, list) else {"a": list(value["a"])} if isinstance(value, dict) else value


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), incremental=st.booleans())
def test_any_history_of_changes_checkpoints_aborts_and_restores_is_right(seed: int, incremental: bool) -> None:
    """Snapshots are written late, complete late or never, and any completed one can be restored from."""
    rng = random.Random(seed)
    pieces, model = Pieces(), Content()
    state, flat, spaced = new_state(incremental=incremental)
    waiting: list[tuple[RecordSnapshot, Content]] = []
    written: list[tuple[int, OperatorState, Content]] = []
    latest: tuple[OperatorState, Content] | None = None
    checkpoint = 0
    for _ in range(rng.randrange(5, 60)):
        action = rng.randrange(12)
        if action < 6:
            mutate(rng, model, flat, spaced)
        elif action == 6:
            checkpoint += 1
            waiting.append((state.freeze(checkpoint, {"watermark": 0}), dict(model)))
        elif action == 7 and waiting:
            snapshot, expected = waiting.pop(0)
            written.append((snapshot.checkpoint, snapshot.write(pieces), expected))
        elif action == 8 and written:
            number, done, expected = written.pop(rng.randrange(len(written)))
            written = [entry for entry in written if entry[0] > number]
            state.completed(number)
            latest = done, expected
        elif action == 9 and written:
            number, lost, _ = written.pop(rng.randrange(len(written)))
            state.aborted(number)
            pieces.delete(lost, latest[0].pieces if latest else ())
        elif action == 10 and waiting:
            snapshot, _ = waiting.pop()
            state.aborted(snapshot.checkpoint)
        elif action == 11 and latest and rng.random() < 0.5:
            model = dict(latest[1])
            state, flat, spaced = restored([latest[0]], pieces, incremental=incremental)
            waiting, written = [], []
        assert content(flat, spaced) == model
    for snapshot, expected in waiting:
        _, again, again_spaced = restored([snapshot.write(pieces)], pieces)
        assert content(again, again_spaced) == expected


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), old=st.integers(1, 5), new=st.integers(1, 5), incremental=st.booleans())
def test_after_a_change_of_parallelism_every_entry_is_with_the_owner_of_its_key_group(
    seed: int, old: int, new: int, incremental: bool
) -> None:
    rng = random.Random(seed)
    pieces, states, total = Pieces(), [], Content()
    for subtask in range(old):
        state = RecordState(owner(subtask, old, incremental=incremental), KEYS)
        flat = state.declare("flat", "value[any]", PlainCodec())
        spaced = state.declare("spaced", "value[any]", PlainCodec(), spaced=True)
        mine = [key for key in range(60) if GROUP_OF[key] in state.owner.owned]
        for round_ in range(2):
            for key in rng.sample(mine, len(mine) // 2):
                flat.put(FLAT, key, round_)
                spaced.put(rng.randrange(4), key, key)
            spaced.drop(rng.randrange(4))
            done = state.freeze(round_ + 1, {"watermark": 0}).write(pieces)
            state.completed(round_ + 1)
        states.append(done)
        total |= content(flat, spaced)
    found = Content()
    for subtask in range(new):
        state, flat, spaced = (
            restored(states, pieces, subtask, new, incremental=incremental)
            if new > 1
            else restored([*states], pieces, incremental=incremental)
        )
        part = content(flat, spaced)
        for _, _, key in part:
            assert GROUP_OF[key] in state.owner.owned
        assert not part.keys() & found.keys()
        found |= part
    assert found == total


def test_an_incremental_snapshot_writes_only_what_changed_and_refers_to_the_rest() -> None:
    state, flat, _ = new_state(incremental=True)
    pieces = Pieces()
    for key in range(1000):
        flat.put(FLAT, key, key)
    first = state.freeze(1, {}).write(pieces)
    state.completed(1)
    flat.put(FLAT, 5, "new")
    flat.remove(FLAT, 6)
    before = pieces.rows
    second = state.freeze(2, {}).write(pieces)
    assert pieces.rows - before == 2
    assert second.pieces[: len(first.pieces)] == first.pieces
    assert all(piece.shared for piece in second.pieces)
    _, again, _ = restored([second], pieces)
    assert (again.spaces[FLAT][5], 6 in again.spaces[FLAT], len(again)) == ("new", False, 999)


def test_what_changed_before_a_checkpoint_that_never_completed_is_written_again() -> None:
    state, flat, _ = new_state(incremental=True)
    pieces = Pieces()
    for key in range(100):
        flat.put(FLAT, key, key)
    first = state.freeze(1, {}).write(pieces)
    state.completed(1)
    flat.put(FLAT, 1, "second")
    lost = state.freeze(2, {}).write(pieces)
    flat.put(FLAT, 2, "third")
    state.aborted(2)
    pieces.delete(lost, first.pieces)
    third = state.freeze(3, {}).write(pieces)
    _, again, _ = restored([third], pieces)
    assert (again.spaces[FLAT][1], again.spaces[FLAT][2]) == ("second", "third")


def test_after_many_deltas_everything_is_written_again() -> None:
    state, flat, _ = new_state(incremental=True)
    pieces = Pieces()
    for key in range(100):
        flat.put(FLAT, key, key)
    longest = 0
    for checkpoint in range(1, 3 * MOST_DELTAS):
        flat.put(FLAT, checkpoint, "x")
        written = state.freeze(checkpoint, {}).write(pieces)
        state.completed(checkpoint)
        longest = max(longest, len(written.pieces))
    assert MOST_DELTAS <= longest <= MOST_DELTAS + 1


def test_a_restored_job_goes_on_with_the_pieces_it_was_restored_from() -> None:
    state, flat, _ = new_state(incremental=True)
    pieces = Pieces()
    for key in range(100):
        flat.put(FLAT, key, key)
    first = state.freeze(1, {}).write(pieces)
    again, flat, _ = restored([first], pieces, incremental=True)
    flat.put(FLAT, 1, "x")
    assert again.freeze(2, {}).write(pieces).pieces[0] == first.pieces[0]


def test_the_final_state_of_a_finished_subtask_stands_alone() -> None:
    state, flat, _ = new_state(incremental=True)
    pieces = Pieces()
    flat.put(FLAT, 1, 1)
    state.freeze(1, {}).write(pieces)
    state.completed(1)
    _, again, _ = restored([state.freeze(-1, {}).write(pieces)], pieces)
    assert again.spaces[FLAT] == {1: 1}


def test_a_table_is_not_copied_once_its_snapshot_is_written() -> None:
    state, flat, _ = new_state()
    flat.put(FLAT, 1, [1])
    snapshot = state.freeze(1, {})
    shared = flat.spaces[FLAT]
    snapshot.write(Pieces())
    flat.put(FLAT, 2, [2])
    assert flat.spaces[FLAT] is shared
    second = state.freeze(2, {})
    flat.put(FLAT, 3, [3])
    assert flat.spaces[FLAT] is not shared
    del second
    third = flat.spaces[FLAT]
    flat.put(FLAT, 4, [4])
    assert flat.spaces[FLAT] is third


def test_a_changed_type_is_an_error_that_names_the_state() -> None:
    state, flat, _ = new_state()
    pieces = Pieces()
    flat.put(FLAT, 1, 1)
    written = state.freeze(1, {}).write(pieces)
    again = RecordState(owner(), KEYS)
    again.restore([written], pieces, rescaled=False)
    with pytest.raises(
        RecordStateChanged, match=r"state 'flat' of operator 'counter' .* is value\[any\] .* value\[int\]"
    ):
        again.declare("flat", "value[int]", PlainCodec("int"))


def test_state_that_is_not_declared_any_more_is_an_error() -> None:
    state, flat, _ = new_state()
    pieces = Pieces()
    flat.put(FLAT, 1, 1)
    again = RecordState(owner(), KEYS)
    again.restore([state.freeze(1, {}).write(pieces)], pieces, rescaled=False)
    again.declare("spaced", "value[any]", PlainCodec(), spaced=True)
    with pytest.raises(RecordStateChanged, match=r"holds state 'flat' \(value\[any\]\) of operator 'counter'"):
        again.all_declared()


def test_a_changed_key_is_an_error() -> None:
    state, _, _ = new_state()
    pieces = Pieces()
    again = RecordState(owner(), RecordKeys([pa.string()]))
    with pytest.raises(RecordStateChanged, match="keyed by int64 in the checkpoint, but by string now"):
        again.restore([state.freeze(1, {}).write(pieces)], pieces, rescaled=False)


def test_two_states_of_one_name_are_refused() -> None:
    state, _, _ = new_state()
    with pytest.raises(ValueError, match="two states called 'flat'"):
        state.declare("flat", "value[any]", PlainCodec())


def test_a_value_that_cannot_be_packed_is_told_with_state_and_key() -> None:
    state, flat, _ = new_state()
    flat.put(FLAT, 4, 1)
    flat.put(FLAT, 5, object())
    with pytest.raises(UnpackableStateError, match="state 'flat' of key 5 holds <object"):
        state.freeze(1, {}).write(Pieces())


def test_a_value_of_another_class_than_declared_is_told_with_state_and_key() -> None:
    state = RecordState(owner(), KEYS)
    table = state.declare("last", "value[Kept(n: int)]", codec_of(Kept))
    table.put(FLAT, 5, make_row(("n",), (1,)))
    with pytest.raises(
        UnpackableStateError, match=r"state 'last' of key 5 holds Row\(n=1\), which is not Kept\(n: int\)"
    ):
        state.freeze(1, {}).write(Pieces())


def test_own_tells_what_is_missing() -> None:
    _, flat, spaced = new_state()
    assert flat.own(FLAT, 1) is MISSING
    assert spaced.own(9, 1) is MISSING
