"""What a sink prepares stays listed until a checkpoint that lists it is complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_engine.connectors.protocols import Committable, SweptJob, WriterContext
from snapshot_engine.operators.operator import OperatorContext, StateTypeChanged
from snapshot_engine.operators.records import Records
from snapshot_engine.operators.sink import SinkOperator
from snapshot_engine.operators.stream_type import HIDDEN_TIME, EventTime, StreamType
from snapshot_engine.state.handles import OperatorState

TYPE = StreamType(pa.schema({"n": pa.int64()}))


class ListSink:
    """A committable is the list of the rows that it stands for."""

    exactly_once = True

    def __init__(self) -> None:
        self.context: WriterContext | None = None
        self.batches: list[pa.RecordBatch] = []
        self.closed = 0

    def open(self, context: WriterContext) -> ListSink:
        self.context = context
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        rows = [row["n"] for batch in self.batches for row in batch.to_pylist()]
        self.batches = []
        return [{"rows": rows}] if rows else []

    def close(self) -> None:
        self.closed += 1

    def commit(self, committables: Sequence[Committable]) -> None: ...

    def sweep(self, job: SweptJob, vertex: str, before_generation: int, keep: Sequence[Committable]) -> None: ...


def _opened(sink: Any, type: StreamType = TYPE, restored: Sequence[OperatorState] = ()) -> SinkOperator:
    operator = SinkOperator(sink=sink, input=type)
    operator.open(
        OperatorContext(
            uid="out",
            name="out",
            subtask=1,
            parallelism=2,
            key_groups=128,
            attempt=(3, 4),
            restored=restored,
            rescaled=False,
            reader=None,  # type: ignore[arg-type]
            clock=lambda: 0,
            job="job",
            lineage="5e1f",
        )
    )
    return operator


def _write(operator: SinkOperator, *numbers: int) -> None:
    operator.process(0, pa.RecordBatch.from_pydict({"n": list(numbers)}, TYPE.schema))


def _listed(operator: SinkOperator, checkpoint: int) -> list[list[int]]:
    snapshot = operator.snapshot(checkpoint)
    assert snapshot is not None
    state = OperatorState.from_json(snapshot.write(None).to_json())  # type: ignore[arg-type]
    return [committable["rows"] for committable in state.committables]


def test_the_writer_is_told_who_it_is() -> None:
    sink = ListSink()
    _opened(sink)
    assert sink.context == WriterContext("job", "out", 1, 3, 4, "5e1f")


def test_a_snapshot_lists_what_was_written_since_the_last_one() -> None:
    operator = _opened(ListSink())
    _write(operator, 1, 2)
    assert _listed(operator, 1) == [[1, 2]]
    operator.on_completed(1)
    assert _listed(operator, 2) == []
    _write(operator, 3)
    assert _listed(operator, 3) == [[3]]


def test_an_aborted_checkpoints_transactions_go_with_the_next_one() -> None:
    operator = _opened(ListSink())
    _write(operator, 1)
    assert _listed(operator, 1) == [[1]]
    operator.on_aborted(1)
    _write(operator, 2)
    assert _listed(operator, 2) == [[1], [2]]
    operator.on_completed(2)
    assert _listed(operator, 3) == []


def test_completing_a_checkpoint_does_not_drop_what_a_later_one_prepared() -> None:
    operator = _opened(ListSink())
    _write(operator, 1)
    _listed(operator, 1)
    _write(operator, 2)
    _listed(operator, 2)
    operator.on_completed(1)
    assert _listed(operator, 3) == [[2]]


def test_a_savepoint_commits_nothing_so_all_stays_listed() -> None:
    operator = _opened(ListSink())
    _write(operator, 1)
    assert _listed(operator, 1) == [[1]]
    _write(operator, 2)
    assert _listed(operator, 2) == [[1], [2]]


def test_the_final_snapshot_keeps_its_transactions_for_every_later_checkpoint() -> None:
    operator = _opened(ListSink())
    _write(operator, 1)
    operator.end_input()
    assert _listed(operator, -1) == [[1]]
    operator.on_completed(99)
    assert _listed(operator, -1) == [[1]]


def test_a_view_is_not_altered_by_a_completion() -> None:
    operator = _opened(ListSink())
    _write(operator, 1)
    view = operator.snapshot(1)
    assert view is not None
    operator.on_completed(1)
    assert len(view.write(None).committables) == 1  # type: ignore[arg-type]


def test_restored_transactions_are_left_to_the_job_master() -> None:
    restored = OperatorState("out", "sink", committables=({"rows": [1]},))
    assert _listed(_opened(ListSink(), restored=[restored]), 5) == []


def test_state_of_another_kind_is_refused() -> None:
    with pytest.raises(StateTypeChanged):
        _opened(ListSink(), restored=[OperatorState("out", "counts")])


def test_a_sink_without_transactions_has_no_state() -> None:
    sink = ListSink()
    sink.exactly_once = False
    operator = _opened(sink)
    _write(operator, 1)
    assert operator.snapshot(1) is None
    assert sink.batches == [], "it is flushed all the same"


def test_hidden_columns_do_not_reach_the_sink() -> None:
    sink = ListSink()
    schema = pa.schema({"n": pa.int64(), HIDDEN_TIME: pa.int64()})
    operator = _opened(sink, StreamType(schema, EventTime(HIDDEN_TIME)))
    operator.process(0, pa.RecordBatch.from_pydict({"n": [1], HIDDEN_TIME: [5]}, schema))
    assert sink.batches[0].schema == TYPE.schema


def test_records_reach_the_sink_as_a_batch() -> None:
    sink = ListSink()
    operator = _opened(sink)
    operator.process(0, Records([{"n": 1}, {"n": 2}]))
    assert sink.batches[0].to_pylist() == [{"n": 1}, {"n": 2}]


def test_closing_closes_the_writer_once() -> None:
    sink = ListSink()
    operator = _opened(sink)
    operator.close()
    operator.close()
    assert sink.closed == 1


@given(st.lists(st.sampled_from(["write", "snapshot", "complete", "abort"]), max_size=40))
def test_completed_checkpoints_together_list_every_row_that_was_prepared_by_then(steps: list[str]) -> None:
    """Whatever is aborted: what lies before the last completed barrier has been listed by a completed checkpoint."""
    operator = _opened(ListSink())
    committed: set[int] = set()
    listed: dict[int, list[list[int]]] = {}
    written = checkpoint = 0
    written_at: dict[int, int] = {}
    for step in steps:
        if step == "write":
            written += 1
            _write(operator, written)
        elif step == "snapshot":
            checkpoint += 1
            listed[checkpoint], written_at[checkpoint] = _listed(operator, checkpoint), written
        elif listed and step == "complete":
            number = max(listed)
            committed |= {row for rows in listed[number] for row in rows}
            operator.on_completed(number)
            assert committed == set(range(1, written_at[number] + 1))
            listed.clear()
        elif listed:
            operator.on_aborted(min(listed))
            del listed[min(listed)]
