from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from snapshot_engine.state.handles import OperatorState, PieceHandle
from snapshot_engine.state.key_groups import owned_key_groups
from snapshot_engine.state.record_keys import RecordKeys
from snapshot_engine.state.record_state import RecordState, StateOwner
from snapshot_engine.state.timers import TimerQueue

KEYS = RecordKeys([pa.int64()])


class Pieces:
    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def write_table(self, name: str, table: pa.Table, *, shared: bool = False) -> PieceHandle:
        self.tables.append(table)
        return PieceHandle(str(len(self.tables) - 1), 0, "", shared)

    def read_table(self, handle: PieceHandle) -> pa.Table:
        return self.tables[int(handle.path)]


def queue(
    states: list[OperatorState] | None = None, pieces: Pieces | None = None, subtask: int = 0, parallelism: int = 1
) -> tuple[RecordState, TimerQueue]:
    owned = owned_key_groups(subtask, parallelism, 8)
    state = RecordState(StateOwner("uid", "op", "test", 8, owned, incremental=True), KEYS)
    if states and pieces:
        state.restore(states, pieces, rescaled=parallelism > 1)
    return state, TimerQueue(state, "timers")


def test_timers_fire_in_the_order_of_their_times_once_per_key() -> None:
    _, timers = queue()
    for timestamp, key in ((30, 1), (10, 1), (20, 2), (10, 2), (10, 1)):
        timers.register(timestamp, key)
    assert timers.next_time() == 10
    assert list(timers.due(20)) == [(10, 1), (10, 2), (20, 2)]
    assert list(timers.due(20)) == []
    assert (timers.next_time(), len(timers)) == (30, 1)


def test_a_deleted_timer_does_not_fire_and_can_be_set_again() -> None:
    _, timers = queue()
    timers.register(10, 1)
    timers.register(10, 2)
    timers.delete(10, 1)
    timers.delete(10, 9)
    timers.delete(99, 1)
    assert list(timers.due(10)) == [(10, 2)]
    timers.register(10, 1)
    timers.delete(10, 1)
    assert timers.next_time() is None
    timers.register(10, 1)
    assert list(timers.due(10)) == [(10, 1)]


def test_a_timer_that_is_set_while_others_fire_fires_in_its_turn() -> None:
    _, timers = queue()
    timers.register(10, 1)
    timers.register(30, 1)
    fired = []
    for timestamp, key in timers.due(30):
        fired.append(timestamp)
        if timestamp == 10:
            timers.register(20, key)
            timers.register(40, key)
    assert fired == [10, 20, 30]


Steps = st.lists(
    st.tuples(st.sampled_from(["set", "set", "delete", "fire", "checkpoint"]), st.integers(-9, 9), st.integers(0, 5)),
    max_size=40,
)


@given(Steps, st.booleans())
def test_timers_are_those_of_a_simple_model_over_any_number_of_restores(
    steps: list[tuple[str, int, int]], aborts: bool
) -> None:
    pieces = Pieces()
    state, timers = queue()
    model: set[tuple[int, int]] = set()
    for number, (step, timestamp, key) in enumerate(steps):
        if step == "set":
            timers.register(timestamp, key)
            model.add((timestamp, key))
        elif step == "delete":
            timers.delete(timestamp, key)
            model.discard((timestamp, key))
        elif step == "fire":
            due = {timer for timer in model if timer[0] <= timestamp}
            fired = list(timers.due(timestamp))
            assert [time for time, _ in fired] == sorted(time for time, _ in fired)
            assert set(fired) == due
            assert len(fired) == len(due)
            model -= due
        else:
            snapshot = state.freeze(number, {})
            timers.register(1000, 1)
            written = snapshot.write(pieces)
            if aborts and key < 3:
                state.aborted(number)
                timers.delete(1000, 1)
            else:
                state, timers = queue([written], pieces)
        assert timers.next_time() == min((time for time, _ in model), default=None)
        assert len(timers) == len(model)


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=40), st.integers(2, 4))
def test_timers_move_with_their_key_groups(timers_set: set[tuple[int, int]], parallelism: int) -> None:
    pieces = Pieces()
    state, timers = queue()
    for timestamp, key in timers_set:
        timers.register(timestamp, key)
    written = state.freeze(1, {}).write(pieces)
    fired = []
    for subtask in range(parallelism):
        part, mine = queue([written], pieces, subtask, parallelism)
        for timer in mine.due(100):
            assert KEYS.groups([timer[1]], 8)[0] in part.owner.owned
            fired.append(timer)
    assert sorted(fired) == sorted(timers_set)
