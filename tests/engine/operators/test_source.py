"""Which splits a subtask reads, where it goes on, and what it says about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from snapshot_engine.connectors.protocols import EndOfSplit, Position
from snapshot_engine.operators.operator import OperatorContext, Origin, SourceStatus, StateTypeChanged
from snapshot_engine.operators.source import SourceReaderOperator
from snapshot_engine.protocol.source_drift import NOBODY_AHEAD, SourceDrift
from snapshot_engine.state.handles import OperatorState

SCHEMA = pa.schema({"split": pa.string(), "n": pa.int64()})


class ListSource:
    """Each split has the numbers 0 … rows-1; None among them means: nothing right now."""

    bounded = True
    schema = SCHEMA

    def __init__(self, splits: dict[str, Sequence[int | None]], sequential: bool = False) -> None:
        self.content = splits
        self.sequential = sequential
        self.opened: list[tuple[str, Position]] = []
        self.closed: list[str] = []

    def splits(self, parallelism: int) -> Sequence[str]:
        return list(reversed(self.content))

    def open(self, split: str, position: Position) -> ListReader:
        self.opened.append((split, position))
        return ListReader(self, split, position or 0)


class ListReader:
    def __init__(self, source: ListSource, split: str, position: int) -> None:
        self.source, self.split, self.next = source, split, position

    def read(self, max_rows: int) -> pa.RecordBatch | None:
        content = self.source.content[self.split]
        if self.next >= len(content):
            raise EndOfSplit
        if content[self.next] is None:
            self.next += 1
            return None
        rows = [number for number in content[self.next : self.next + max_rows] if number is not None]
        self.next += len(rows)
        return pa.RecordBatch.from_pylist([{"split": self.split, "n": n} for n in rows], SCHEMA)

    def position(self) -> Position:
        return self.next

    def lag(self) -> int | None:
        return len(self.source.content[self.split]) - self.next

    def close(self) -> None:
        self.source.closed.append(self.split)


class Reading:
    """A subtask that reads, as the slot would drive it."""

    def __init__(
        self,
        source: Any,
        subtask: int = 0,
        parallelism: int = 1,
        restored: Sequence[OperatorState] = (),
        batch_rows: int = 2,
    ) -> None:
        self.origin = Origin()
        self.now = 0
        self.rows: list[tuple[str, int]] = []
        self.operator = SourceReaderOperator(source, batch_rows)
        self.operator.output = self  # type: ignore[assignment]
        self.operator.open(
            OperatorContext(
                uid="src",
                name="src",
                subtask=subtask,
                parallelism=parallelism,
                key_groups=128,
                attempt=(1, 1),
                restored=restored,
                rescaled=False,
                reader=None,  # type: ignore[arg-type]
                clock=lambda: self.now,
                origin=self.origin,
            )
        )

    def emit(self, batch: pa.RecordBatch) -> None:
        assert set(batch.column("split").to_pylist()) == {self.origin.split}
        self.rows += [(row["split"], row["n"]) for row in batch.to_pylist()]

    def poll(self, times: int = 1, most_rows: int = 100) -> list[tuple[str, int]]:
        """What is read by so many polls."""
        before = len(self.rows)
        for _ in range(times):
            self.operator.poll(most_rows)
        return self.rows[before:]

    def to_end(self) -> list[tuple[str, int]]:
        before = len(self.rows)
        while self.operator.poll() != SourceStatus.ENDED:
            pass
        return self.rows[before:]

    def snapshot(self) -> OperatorState:
        state = self.operator.snapshot(1).write(None)  # type: ignore[arg-type]
        return OperatorState.from_json(state.to_json())


def _numbers(**splits: int) -> dict[str, Sequence[int]]:
    return {name: range(rows) for name, rows in splits.items()}


def test_splits_are_read_in_turn_one_batch_per_poll() -> None:
    reading = Reading(ListSource(_numbers(a=3, b=3)))
    assert [reading.poll() for _ in range(4)] == [[("a", 0), ("a", 1)], [("b", 0), ("b", 1)], [("a", 2)], [("b", 2)]]
    assert reading.to_end() == []


def test_a_batch_that_is_read_in_parts_is_one_turn_of_its_split() -> None:
    reading = Reading(ListSource(_numbers(a=5, b=3)), batch_rows=3)
    parts = [(reading.poll(most_rows=2), reading.origin.more_of_batch) for _ in range(5)]
    assert parts == [
        ([("a", 0), ("a", 1)], True),
        ([("a", 2)], False),
        ([("b", 0), ("b", 1)], True),
        ([("b", 2)], False),
        ([("a", 3), ("a", 4)], True),
    ]
    assert reading.operator.rows_read == 8
    assert reading.snapshot().meta["splits"]["a"] == {"position": 5, "ended": False}
    assert reading.to_end() == []
    assert not reading.origin.more_of_batch


def test_it_says_when_it_asked_each_split() -> None:
    reading = Reading(ListSource({"a": [0, 1], "b": [None, 7], "c": range(9)}))
    reading.now = 100
    reading.poll()
    assert reading.origin.asked == {"a": 100}
    reading.now = 200
    reading.poll()  # b has nothing, so c is asked as well
    assert reading.origin.asked == {"a": 100, "b": 200, "c": 200}
    reading.to_end()
    assert reading.origin.asked == {}


def test_a_split_that_has_no_more_of_a_batch_waits_for_its_next_turn() -> None:
    reading = Reading(ListSource({"a": [0, None, 1], "b": [7]}), batch_rows=3)
    assert reading.poll(most_rows=1) == [("a", 0)]
    assert reading.origin.more_of_batch
    assert reading.poll(most_rows=1) == [("b", 7)]
    assert reading.poll(most_rows=1) == [("a", 1)]


def test_a_sequential_source_reads_one_split_after_the_other_and_opens_it_only_then() -> None:
    source = ListSource(_numbers(a=3, b=1), sequential=True)
    reading = Reading(source)
    assert source.opened == [("a", None)]
    assert reading.poll(2) == [("a", 0), ("a", 1), ("a", 2)]
    assert source.opened == [("a", None)]
    assert reading.poll() == [("b", 0)]
    assert source.closed == ["a"]
    assert reading.operator.poll() == SourceStatus.ENDED


def test_a_split_with_nothing_does_not_hold_back_the_others() -> None:
    reading = Reading(ListSource({"a": [None, None, None], "b": [0, 1, 2, 3]}))
    assert reading.poll(2) == [("b", 0), ("b", 1), ("b", 2), ("b", 3)]


def test_nothing_to_read_is_said() -> None:
    assert Reading(ListSource({"a": [None, 0]})).operator.poll() == SourceStatus.NOTHING
    assert Reading(ListSource({"a": [None, 0]}, sequential=True)).operator.poll() == SourceStatus.NOTHING
    assert Reading(ListSource({})).operator.poll() == SourceStatus.ENDED


def test_the_watermark_is_told_which_splits_are_read_and_which_have_ended() -> None:
    reading = Reading(ListSource(_numbers(a=1, b=3)))
    assert reading.origin.reading == {"a", "b"}
    reading.to_end()
    assert (reading.origin.reading, reading.origin.ended) == (set(), {"a", "b"})


def test_each_split_belongs_to_one_subtask() -> None:
    splits = _numbers(a=1, b=1, c=1, d=1, e=1)
    read = [Reading(ListSource(splits), subtask, 3).to_end() for subtask in range(3)]
    assert [[split for split, _ in rows] for rows in read] == [["a", "d"], ["b", "e"], ["c"]]


def test_a_restored_subtask_goes_on_where_it_was() -> None:
    splits = _numbers(a=5, b=2)
    first = Reading(ListSource(splits))
    seen = first.poll(4)
    restored = Reading(ListSource(splits), restored=[first.snapshot()])
    assert restored.origin.ended == first.origin.ended
    assert sorted(seen + restored.to_end()) == sorted((name, n) for name, rows in splits.items() for n in rows)


def test_a_snapshot_is_not_altered_by_what_is_read_later() -> None:
    reading = Reading(ListSource(_numbers(a=5)))
    reading.poll()
    view = reading.operator.snapshot(1)
    reading.to_end()
    assert view.write(None).meta["splits"] == {"a": {"position": 2, "ended": False}}  # type: ignore[arg-type]


def test_later_splits_are_not_taken_up_by_a_restored_job() -> None:
    state = Reading(ListSource(_numbers(a=1))).snapshot()
    restored = Reading(ListSource(_numbers(a=1, new=5)), restored=[state])
    assert restored.to_end() == [("a", 0)]


@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1), (1, 4), (4, 4), (2, 7)])
def test_rescaling_loses_and_doubles_nothing(before: int, after: int, sequential: bool) -> None:
    splits = _numbers(a=7, b=1, c=0, d=4, e=9)
    old = [Reading(ListSource(splits, sequential), subtask, before) for subtask in range(before)]
    seen = [row for reading in old for row in reading.poll(2)]
    states = [reading.snapshot() for reading in old]
    new = [Reading(ListSource(splits, sequential), subtask, after, states) for subtask in range(after)]
    seen += [row for reading in new for row in reading.to_end()]
    assert sorted(seen) == sorted((name, n) for name, rows in splits.items() for n in rows)


def test_splits_that_were_begun_apart_are_read_in_turn_when_one_subtask_has_them_all() -> None:
    """Else the watermark of the first would make the rest of the others late."""
    splits = _numbers(a=6, b=6, c=2, d=2)
    old = [Reading(ListSource(splits, sequential=True), subtask, 2) for subtask in range(2)]
    for reading in old:
        reading.poll()
    source = ListSource(splits, sequential=True)
    new = Reading(source, 0, 1, [reading.snapshot() for reading in old])
    assert source.opened == [("a", 2), ("b", 2)]
    assert new.origin.reading == {"a", "b"}
    assert [new.poll()[0][0] for _ in range(4)] == ["a", "b", "a", "b"]
    assert new.operator.lag() is None  # of those that are not begun nobody knows
    assert [split for split, _ in new.to_end()] == ["c", "c", "d", "d"]


def test_a_subtask_without_splits_stays_without_after_a_restore() -> None:
    splits = _numbers(a=3)
    states = [Reading(ListSource(splits), subtask, 2).snapshot() for subtask in range(2)]
    assert Reading(ListSource(splits), 1, 2, [states[1]]).to_end() == []
    assert len(Reading(ListSource(splits), 0, 2, [states[0]]).to_end()) == 3


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_source_that_grows_has_its_new_splits_read_from_a_checkpoint_on(after: int) -> None:
    old = [Reading(ListSource(_numbers(a=4, b=4)), subtask, 2) for subtask in range(2)]
    seen = [row for reading in old for row in reading.poll()]
    states = [reading.snapshot() for reading in old]
    splits = _numbers(a=4, b=4, c=2, d=1, e=3)
    grown = ListSource(splits)
    grown.grows = True  # type: ignore[attr-defined]
    for subtask in range(after):
        restored = [states[subtask]] if after == 2 else states
        seen += Reading(grown, subtask, after, restored).to_end()
    assert sorted(seen) == sorted((name, n) for name, rows in splits.items() for n in rows)


@pytest.mark.parametrize("after", [1, 2, 3])
def test_new_splits_are_opened_at_their_beginning_where_the_source_says_which_that_is(after: int) -> None:
    class Grown(ListSource):
        grows = True

        def beginning(self, split: str) -> Position:
            return 1 if split == "c" else 2

    states = [Reading(ListSource(_numbers(a=4, b=4)), subtask, 2).snapshot() for subtask in range(2)]
    opened = []
    for subtask in range(after):
        source = Grown(_numbers(a=4, b=4, c=4, d=4))
        Reading(source, subtask, after, [states[subtask]] if after == 2 else states)
        opened += source.opened
    assert sorted(opened) == [("a", 0), ("b", 0), ("c", 1), ("d", 2)]


@pytest.mark.parametrize("after", [2, 3, 4])
def test_splits_that_came_while_subtasks_began_are_read_once(after: int) -> None:
    """The second subtask listed them before the last ones came, the others after."""
    splits = _numbers(a=4, b=4, c=4, d=4, e=4, f=4)
    listed = [splits, {name: splits[name] for name in "abcd"}, splits]
    old = [Reading(_growing(seen), subtask, 3) for subtask, seen in enumerate(listed)]
    seen = [row for reading in old for _ in range(2) for row in reading.poll()]
    states = [reading.snapshot() for reading in old]
    for subtask in range(after):
        restored = [states[subtask]] if after == 3 else states
        seen += Reading(_growing(splits), subtask, after, restored).to_end()
    assert sorted(seen) == sorted((name, n) for name, rows in splits.items() for n in rows)


def _growing(splits: Any) -> ListSource:
    source = ListSource(splits)
    source.grows = True  # type: ignore[attr-defined]
    return source


def test_state_of_another_kind_is_refused() -> None:
    with pytest.raises(StateTypeChanged):
        Reading(ListSource(_numbers(a=1)), restored=[OperatorState("src", "counts")])


def test_a_split_that_is_named_twice_is_refused() -> None:
    class Twice(ListSource):
        def splits(self, parallelism: int) -> Sequence[str]:
            return ["a", "a"]

    with pytest.raises(ValueError, match="names a split twice"):
        Reading(Twice(_numbers(a=1)))


def test_a_batch_of_another_schema_is_an_error_that_shows_both() -> None:
    class Other(ListSource):
        schema = pa.schema({"n": pa.int32()})

    with pytest.raises(TypeError, match=r"(?s)declared:\nn: int32\nfound:\nsplit: string\nn: int64"):
        Reading(Other(_numbers(a=1))).poll()


def test_a_failing_reader_says_which_split_it_was_reading() -> None:
    source = ListSource({"a": [0]})
    reading = Reading(source)
    source.content = {}
    with pytest.raises(KeyError) as caught:
        reading.poll()
    assert "while reading split 'a'" in caught.value.__notes__[0]


def test_lag_is_known_if_every_split_knows_it() -> None:
    reading = Reading(ListSource(_numbers(a=5, b=4)))
    assert reading.operator.lag() == 9
    reading.poll()
    assert reading.operator.lag() == 7
    assert Reading(ListSource(_numbers(a=5, b=4), sequential=True)).operator.lag() is None


def test_closing_closes_every_reader_once() -> None:
    source = ListSource(_numbers(a=1, b=9))
    reading = Reading(source)
    reading.poll(3)
    reading.operator.close()
    reading.operator.close()
    assert sorted(source.closed) == ["a", "b"]


def test_a_split_that_is_ahead_of_others_is_not_read() -> None:
    reading = Reading(ListSource(_numbers(a=6, b=6)))
    reading.origin.drift = drift = SourceDrift(10)
    drift.told(NOBODY_AHEAD)
    drift.stands_at({"a": 0, "b": 11})
    assert reading.poll(2) == [("a", 0), ("a", 1), ("a", 2), ("a", 3)]
    drift.stands_at({"a": 11, "b": 11})
    assert reading.poll(2) == [("b", 0), ("b", 1), ("a", 4), ("a", 5)]


def test_when_all_splits_wait_nothing_is_read_and_nothing_has_ended() -> None:
    reading = Reading(ListSource(_numbers(a=2, b=2)))
    reading.origin.drift = drift = SourceDrift(10)
    drift.told(0)
    drift.stands_at({"a": 11, "b": 11})
    assert reading.operator.poll() == SourceStatus.HELD
    assert reading.rows == []
    drift.told(1)
    assert len(reading.to_end()) == 4


def test_a_batch_that_is_begun_is_read_to_its_end_before_its_split_waits() -> None:
    reading = Reading(ListSource(_numbers(a=4, b=4)), batch_rows=3)
    reading.origin.drift = drift = SourceDrift(10)
    reading.poll(most_rows=2)
    drift.stands_at({"a": 11, "b": 0})
    assert reading.poll(2) == [("a", 2), ("b", 0), ("b", 1), ("b", 2)]
