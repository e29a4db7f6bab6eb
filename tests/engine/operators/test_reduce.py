from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_engine.kernels.partition import HashPartitioner
from snapshot_engine.operators.operator import StateTypeChanged
from snapshot_engine.operators.records import Records
from snapshot_engine.operators.reduce import ReduceOperator
from snapshot_engine.operators.row_reduce import RowReduceOperator
from snapshot_engine.operators.stream_type import HIDDEN_KEY, HIDDEN_TIME, RECORDS, EventTime, StreamType
from snapshot_engine.operators.user_errors import RecordMismatchError, UserFunctionError
from snapshot_engine.state.changed_state import RecordStateChanged
from snapshot_engine.state.handles import OperatorState
from snapshot_engine.state.packing import pack
from snapshot_engine.state.restored_tables import StateSchemaChanged

SCHEMA = pa.schema([("city", pa.string()), ("n", pa.int64()), ("at", pa.int64())])
ROWS = StreamType(SCHEMA, EventTime("at"))
PLAIN_IN = StreamType(RECORDS.append(pa.field(HIDDEN_KEY, pa.binary())))
PLAIN_OUT = StreamType(RECORDS)


def rows(*values: tuple[str, int, int]) -> pa.RecordBatch:
    columns = list(zip(*values, strict=True))
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def add(old: Any, new: Any) -> Any:
    return (old.city, old.n + new.n, new.at)


def summing(fn: Any = add) -> RowReduceOperator:
    return RowReduceOperator(fn, ("city",), ROWS, ROWS)


def test_every_record_gives_the_result_so_far(bench: Any) -> None:
    operator = summing()
    out = bench.open(operator, ROWS)
    operator.process(0, rows(("Rome", 1, 1), ("Oslo", 2, 2), ("Rome", 3, 3)))
    operator.process(0, rows(("Rome", 5, 4)))
    assert out.records() == [("Rome", 1, 1), ("Oslo", 2, 2), ("Rome", 4, 3), ("Rome", 9, 4)]


@pytest.mark.parametrize(
    "fn",
    [
        lambda old, new: new._replace(n=old.n + new.n),
        lambda old, new: {"city": new.city, "at": new.at, "n": old.n + new.n},
    ],
)
def test_the_next_fold_is_given_a_row_whatever_the_last_one_returned(bench: Any, fn: Any) -> None:
    operator = summing(fn)
    out = bench.open(operator, ROWS)
    operator.process(0, rows(("Rome", 1, 1), ("Rome", 2, 2), ("Rome", 3, 3)))
    assert [row.n for row in out.records()] == [1, 3, 6]


def test_what_is_folded_keeps_the_time_of_the_new_record_where_it_is_hidden(bench: Any) -> None:
    schema = pa.schema([("city", pa.string()), (HIDDEN_TIME, pa.int64())])
    stream = StreamType(schema, EventTime(HIDDEN_TIME))
    operator = RowReduceOperator(lambda old, new: old, ("city",), stream, stream)
    out = bench.open(operator, stream)
    operator.process(0, pa.record_batch({"city": ["a", "a"], HIDDEN_TIME: [5, 9]}, schema=schema))
    assert out.times() == [5, 9]


def plain(*pairs: tuple[Any, Any]) -> pa.RecordBatch:
    keys, values = zip(*pairs, strict=True)
    arrays = [pa.array([pack(value) for value in values]), pa.array([pack(key) for key in keys])]
    return pa.RecordBatch.from_arrays(arrays, schema=PLAIN_IN.schema)


def test_plain_records_may_be_folded_in_place(bench: Any) -> None:
    def collect(old: Any, new: Any) -> Any:
        old["seen"].extend(new["seen"])
        return old

    operator = ReduceOperator(collect, (HIDDEN_KEY,), PLAIN_IN, PLAIN_OUT)
    out = bench.open(operator, PLAIN_OUT)
    operator.process(0, plain(("a", {"seen": [1]}), ("a", {"seen": [2]}), ((1, "b"), {"seen": [3]})))
    snapshot = operator.snapshot(1)
    operator.process(0, plain(("a", {"seen": [4]})))
    assert out.records() == [{"seen": [1]}, {"seen": [1, 2]}, {"seen": [3]}, {"seen": [1, 2, 4]}]

    again = ReduceOperator(collect, (HIDDEN_KEY,), PLAIN_IN, PLAIN_OUT)
    out = bench.open(again, PLAIN_OUT, restored=[snapshot.write(bench.pieces)])  # type: ignore[union-attr]
    again.process(0, plain(("a", {"seen": [9]}), ((1, "b"), {"seen": [9]})))
    assert out.records() == [{"seen": [1, 2, 9]}, {"seen": [3, 9]}]


def test_an_exception_shows_the_record(bench: Any) -> None:
    operator = summing(lambda old, new: old.n // new.n)
    bench.open(operator, ROWS)
    with pytest.raises(UserFunctionError, match=r"(?s)the reduce function.*ZeroDivisionError.*city='Rome', n=0, at=2"):
        operator.process(0, rows(("Rome", 1, 1), ("Rome", 0, 2)))


def test_a_result_that_is_no_row_is_told(bench: Any) -> None:
    operator = summing(lambda old, new: (1, 2))
    bench.open(operator, ROWS)
    with pytest.raises(UserFunctionError) as caught:
        operator.process(0, rows(("Rome", 1, 1), ("Rome", 0, 2)))
    assert isinstance(caught.value.__cause__, RecordMismatchError)
    assert "it has 2 fields, expected 3" in str(caught.value)


def test_records_that_were_never_a_batch_are_folded_too(bench: Any) -> None:
    operator = summing()
    out = bench.open(operator, ROWS)
    operator.process(0, Records([("Rome", 1, 1), {"city": "Rome", "n": 2, "at": 2}]))
    assert out.records() == [("Rome", 1, 1), ("Rome", 3, 2)]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), incremental=st.booleans())
def test_results_are_the_same_over_any_restores_and_changes_of_parallelism(
    new_bench: Any, seed: int, incremental: bool
) -> None:
    rng = random.Random(seed)
    bench = new_bench()
    batches = [
        rows(*[(rng.choice("abcdefgh"), rng.randrange(100), 0) for _ in range(rng.randrange(1, 20))])
        for _ in range(rng.randrange(1, 12))
    ]
    totals: dict[str, int] = {}
    parallelism = rng.randrange(1, 4)
    subtasks = opened(bench, parallelism, [], rescaled=False, incremental=incremental)
    for number, batch in enumerate(batches):
        results = []
        for subtask, part in enumerate(HashPartitioner(("city",), parallelism, 128).split(batch)):
            if part is not None:
                operator, out = subtasks[subtask]
                out.data.clear()
                operator.process(0, part)
                results += out.records()
        expected = []
        for row in batch.to_pylist():
            totals[row["city"]] = totals.get(row["city"], 0) + row["n"]
            expected.append((row["city"], totals[row["city"]], 0))
        assert sorted(results) == sorted(expected)
        if rng.random() < 0.5:
            states = [bench.snapshot(operator, number) for operator, _ in subtasks]
            if rng.random() < 0.5:
                before, parallelism = parallelism, rng.randrange(1, 4)
                subtasks = opened(bench, parallelism, states, rescaled=parallelism != before, incremental=incremental)
            else:
                for operator, _ in subtasks:
                    (operator.on_completed if rng.random() < 0.7 else operator.on_aborted)(number)


def opened(bench: Any, parallelism: int, states: list[OperatorState], *, rescaled: bool, incremental: bool) -> Any:
    subtasks = []
    for subtask in range(parallelism):
        operator = summing()
        restored = states if rescaled else states[subtask : subtask + 1]
        out = bench.open(
            operator,
            ROWS,
            subtask=subtask,
            parallelism=parallelism,
            restored=restored,
            rescaled=rescaled,
            incremental=incremental,
        )
        subtasks.append((operator, out))
    return subtasks


def test_a_changed_row_is_a_changed_type(bench: Any) -> None:
    operator = summing()
    bench.open(operator, ROWS)
    operator.process(0, rows(("Rome", 1, 1)))
    state = bench.snapshot(operator)
    schema = SCHEMA.set(1, pa.field("n", pa.float64()))
    other = RowReduceOperator(add, ("city",), StreamType(schema), StreamType(schema))
    with pytest.raises(StateSchemaChanged, match=r"'op-1'.*column n was int64, is double"):
        bench.open(other, restored=[state])


def test_another_kind_of_state_is_refused(bench: Any) -> None:
    with pytest.raises(StateTypeChanged):
        bench.open(summing(), restored=[OperatorState("op-1", "window-aggregate")])
