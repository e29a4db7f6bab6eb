from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_engine.kernels.partition import HashPartitioner
from snapshot_engine.operators.operator import StateTypeChanged
from snapshot_engine.operators.records import Records, to_arrow, to_records
from snapshot_engine.operators.reduce import ReduceOperator
from snapshot_engine.operators.row_reduce import RowReduceOperator
from snapshot_engine.operators.stream_type import HIDDEN_KEY, HIDDEN_TIME, RECORDS, EventTime, StreamType
from snapshot_engine.operators.user_errors import RecordMismatchError, UserFunctionError
from snapshot_engine.state import newest_rows
from snapshot_engine.state.changed_state import RecordStateChanged
from snapshot_engine.state.handles import OperatorState
from snapshot_engine.state.restored_tables import StateSchemaChanged
from snapshot_engine.state.row_class import row_class

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


def test_the_checkpoints_of_rows_in_python_are_restored(bench: Any) -> None:
    """What `ReduceOperator` wrote of rows before this operator did."""
    earlier = ReduceOperator(add, ("city",), ROWS, ROWS)
    bench.open(earlier, ROWS)
    cities = [f"city {number}" for number in range(50)]
    earlier.process(0, rows(*[(city, number, 0) for number, city in enumerate(cities)]))
    states = [bench.snapshot(earlier)]
    found = []
    for operator, out in opened(bench, 2, states, rescaled=True, incremental=True):
        mine = operator.state_size()[0]
        assert 0 < mine < len(cities)
        again = RowReduceOperator(add, ("city",), ROWS, ROWS)
        out = bench.open(again, ROWS, restored=[bench.snapshot(operator)])
        again.process(0, rows(*[(city, 100, 1) for city in cities]))
        found += [row for row in out.records() if row.n > 100 or row.city == "city 0"]
    results = {row.city: row.n for row in sorted(found, key=lambda row: row.n)}
    assert results == {city: 100 + number for number, city in enumerate(cities)}


def test_a_changed_row_is_a_changed_type_also_in_an_earlier_checkpoint(bench: Any) -> None:
    earlier = ReduceOperator(add, ("city",), ROWS, ROWS)
    bench.open(earlier, ROWS)
    earlier.process(0, rows(("Rome", 1, 1)))
    schema = SCHEMA.set(1, pa.field("n", pa.float64()))
    other = RowReduceOperator(add, ("city",), StreamType(schema), StreamType(schema))
    with pytest.raises(RecordStateChanged, match=r"'reduced'.*n: int64.*n: double"):
        bench.open(other, restored=[bench.snapshot(earlier)])


def test_an_incremental_snapshot_has_the_keys_that_changed(bench: Any) -> None:
    operator = summing()
    bench.open(operator, ROWS, incremental=True)
    operator.process(0, rows(*[(city, 1, 0) for city in "abcdefgh"]))
    bench.snapshot(operator, 1)
    operator.on_completed(1)
    operator.process(0, rows(("b", 1, 0), ("c", 1, 0), ("b", 1, 0)))
    state = bench.snapshot(operator, 2)
    base, delta = [bench.pieces.read_table(piece) for piece in state.pieces]
    assert base.num_rows == 8
    assert sorted(zip(delta["key.city"].to_pylist(), delta["col.n"].to_pylist(), strict=True)) == [("b", 3), ("c", 2)]

    again = summing()
    out = bench.open(again, ROWS, restored=[state], incremental=True)
    again.process(0, rows(("a", 0, 0), ("b", 0, 0), ("c", 0, 0)))
    assert [row.n for row in out.records()] == [1, 3, 2]


def test_a_snapshot_shows_the_moment_of_the_barrier(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_rows, "_DEAD_ROWS", 0)
    operator = summing()
    bench.open(operator, ROWS)
    operator.process(0, rows(("Rome", 1, 1), ("Oslo", 2, 1)))
    snapshot = operator.snapshot(1)
    for _ in range(10):
        operator.process(0, rows(("Rome", 1, 1), ("Oslo", 1, 1), ("Kyiv", 1, 1)))
    again = summing()
    out = bench.open(again, ROWS, restored=[snapshot.write(bench.pieces)])
    again.process(0, rows(("Rome", 0, 2), ("Oslo", 0, 2), ("Kyiv", 0, 2)))
    assert [row.n for row in out.records()] == [1, 2, 0]


def either(old: Any, new: Any) -> Any:
    """Hands on one of the rows, or makes one."""
    return old if new.n % 5 < 2 else new if new.n % 5 < 4 else (new.city, old.n + new.n, old.at)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), own=st.integers(1, 100))
def test_rows_that_are_handed_on_come_out_as_they_went_in(new_bench: Any, seed: int, own: int) -> None:
    rng = random.Random(seed)
    operator = summing(either)
    out = new_bench().open(operator, ROWS)
    newest: dict[Any, Any] = {}
    expected = []
    row = row_class(("city", "n", "at"))
    for at in range(rng.randrange(1, 6)):
        batch = [(rng.choice([*"abcd", None]), rng.randrange(own), at) for _ in range(rng.randrange(1, 40))]
        for record in map(row, batch):
            newest[record[0]] = row(either(newest[record[0]], record)) if record[0] in newest else record
            expected.append(newest[record[0]])
        operator.process(0, rows(*batch))
    assert out.records() == expected


def test_results_do_not_depend_on_where_batches_are_cut_where_the_column_holds_less_than_python(bench: Any) -> None:
    schema = pa.schema(
        [("key", pa.int64()), ("sum", pa.float32()), ("at", pa.timestamp("ms")), ("of", pa.list_(pa.float32()))]
    )
    stream = StreamType(schema)

    def fold(old: Any, new: Any) -> Any:
        return (old.key, old.sum + 0.1, old.at + dt.timedelta(microseconds=400), [old.of[0] + 0.1])

    def results(cut: int) -> list[Any]:
        operator = RowReduceOperator(fold, ("key",), stream, stream)
        out = bench.open(operator, stream)
        row = {"key": 1, "sum": 0.0, "at": dt.datetime(2020, 1, 1), "of": [0.0]}
        batch = pa.RecordBatch.from_pylist([row] * 12, schema=schema)
        for start in range(0, 12, cut):
            operator.process(0, batch.slice(start, cut))
            if cut == 3:
                states = [bench.snapshot(operator)]
                operator = RowReduceOperator(fold, ("key",), stream, stream)
                before, out = out, bench.open(operator, stream, restored=states)
                out.data.extend(before.data)
        found: list[Any] = out.records()
        return found

    whole = results(12)
    assert [row.at.microsecond for row in whole[:4]] == [0, 0, 0, 1000]
    assert results(1) == results(3) == whole


VALUES: list[tuple[pa.DataType, Any]] = [
    (pa.string(), "é"),
    (pa.large_string(), "x"),
    (pa.string_view(), "a string that is too long to be kept in its view"),
    (pa.dictionary(pa.int32(), pa.string()), "often"),
    (pa.binary(), b"\x00"),
    (pa.bool_(), True),
    (pa.uint64(), 2**64 - 1),
    (pa.float16(), 0.5),
    (pa.decimal128(10, 2), Decimal("1.50")),
    (pa.date32(), dt.date(2020, 2, 29)),
    (pa.time32("ms"), dt.time(1, 2, 3, 4000)),
    (pa.timestamp("us", "UTC"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
    (pa.timestamp("s", "Europe/Rome"), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
    (pa.timestamp("ns"), dt.datetime(2020, 1, 1, 0, 0, 0, 1)),
    (pa.duration("s"), dt.timedelta(seconds=3)),
    (pa.list_(pa.string()), ["a", None]),
    (pa.struct([("a", pa.int64()), ("b", pa.list_(pa.timestamp("ms")))]), {"a": 1, "b": [dt.datetime(2020, 1, 1)]}),
    (pa.map_(pa.string(), pa.float32()), {"a": 0.5}),
    (pa.uuid(), UUID(int=7).bytes),
]


@pytest.mark.parametrize(("type_", "value"), VALUES, ids=str)
@pytest.mark.parametrize("made", [False, True])
def test_values_of_any_type_are_kept(bench: Any, type_: pa.DataType, value: Any, made: bool) -> None:
    schema = pa.schema([("key", pa.string()), ("value", type_)])
    stream = StreamType(schema)

    def fold(old: Any, new: Any) -> Any:
        return (old[0], old[1]) if made else old

    def batch(values: list[Any]) -> pa.RecordBatch:
        columns = [pa.array(["a", None, "b"]), pa.array(values, type_)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    operator = RowReduceOperator(fold, ("key",), stream, stream)
    out = bench.open(operator, stream)
    operator.process(0, batch([value, value, None]))
    operator.process(0, batch([None, None, value]))
    again = RowReduceOperator(fold, ("key",), stream, stream)
    restored = bench.open(again, stream, restored=[bench.snapshot(operator)])
    again.process(0, batch([None, None, value]))
    assert out.records() == [("a", value), (None, value), ("b", None)] * 2
    assert restored.records() == [("a", value), (None, value), ("b", None)]
    assert all(to_arrow(data, stream).schema == schema for data in out.data)


def test_what_a_function_changes_inside_of_a_row_is_not_lost(bench: Any) -> None:
    schema = pa.schema([("key", pa.int64()), ("seen", pa.list_(pa.int64()))])
    stream = StreamType(schema)

    def collect(old: Any, new: Any) -> Any:
        new.seen[:0] = old.seen
        return new

    operator = RowReduceOperator(collect, ("key",), stream, stream)
    out = bench.open(operator, stream)
    for number in range(3):
        operator.process(0, pa.record_batch({"key": [1], "seen": [[number]]}, schema=schema))
    assert [row.seen for row in out.records()] == [[0], [0, 1], [0, 1, 2]]


def test_a_result_whose_value_does_not_fit_its_column_is_told(bench: Any) -> None:
    operator = summing(lambda old, new: old._replace(n="many") if new.n == 3 else new)
    bench.open(operator, ROWS)
    with pytest.raises(RecordMismatchError, match=r"(?s)'the operator'.*'n' is 'many' \(str\).*city='Oslo'"):
        operator.process(0, rows(("Rome", 1, 1), ("Oslo", 2, 2), ("Rome", 2, 3), ("Oslo", 3, 4)))


def test_a_result_with_a_null_where_there_must_be_none_is_told(bench: Any) -> None:
    schema = SCHEMA.set(1, pa.field("n", pa.int64(), nullable=False))
    stream = StreamType(schema)
    operator = RowReduceOperator(lambda old, new: old._replace(n=None), ("city",), stream, stream)
    bench.open(operator, stream)
    with pytest.raises(RecordMismatchError, match="not nullable"):
        operator.process(0, rows(("Rome", 1, 1), ("Rome", 2, 2)).cast(schema))


def test_the_key_is_that_of_the_record_whatever_the_function_makes_of_its_column(bench: Any) -> None:
    operator = summing(lambda old, new: ("elsewhere", old.n + new.n, new.at))
    out = bench.open(operator, ROWS)
    operator.process(0, rows(("Rome", 1, 1), ("Rome", 2, 2)))
    again = summing()
    out = bench.open(again, ROWS, restored=[bench.snapshot(operator)])
    again.process(0, rows(("elsewhere", 5, 3), ("Rome", 5, 4)))
    assert out.records() == [("elsewhere", 5, 3), ("elsewhere", 8, 4)]


def test_keys_of_a_function_are_not_among_the_columns(bench: Any) -> None:
    keyed = StreamType(SCHEMA.append(pa.field(HIDDEN_KEY, pa.binary())), EventTime("at"))
    operator = RowReduceOperator(add, (HIDDEN_KEY,), keyed, ROWS)
    out = bench.open(operator, ROWS)
    batch = rows(("Rome", 1, 1), ("Oslo", 2, 2), ("Rome", 3, 3))
    operator.process(0, pa.RecordBatch.from_arrays([*batch.columns, pa.array([b"x", b"x", b"y"])], schema=keyed.schema))
    assert out.records() == [("Rome", 1, 1), ("Rome", 3, 2), ("Rome", 3, 3)]


def test_some_records_of_a_batch_are_folded(bench: Any) -> None:
    batch = rows(("Rome", 1, 1), ("Oslo", 2, 2), ("Rome", 3, 3))
    records = to_records(batch, ROWS)
    operator = summing()
    out = bench.open(operator, ROWS)
    operator.process(0, records.chosen(np.array([0, 2]), [records.values[0], records.values[2]]))
    assert out.records() == [("Rome", 1, 1), ("Rome", 4, 3)]


def test_the_results_go_on_as_rows_and_as_a_batch(bench: Any) -> None:
    operator = summing()
    out = bench.open(operator, ROWS)
    operator.process(0, rows(("Rome", 1, 1), ("Rome", 2, 2)))
    (data,) = out.data
    assert data.values == [("Rome", 1, 1), ("Rome", 3, 2)]
    assert to_arrow(data, ROWS) is data.source[0]


def test_the_size_of_the_state_is_its_keys_and_their_bytes(bench: Any) -> None:
    operator = summing()
    bench.open(operator, ROWS)
    operator.process(0, rows(*[(str(number % 300), 1, 1) for number in range(600)]))
    keys, size = operator.state_size()
    assert keys == 300
    assert 300 * 16 < size < 100_000
