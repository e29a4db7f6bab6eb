from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from snapshot_engine.operators.operator import StateTypeChanged
from snapshot_engine.operators.reduce import ReduceOperator
from snapshot_engine.operators.stream_type import HIDDEN_KEY, RECORDS, EventTime, StreamType
from snapshot_engine.state.handles import OperatorState
from snapshot_engine.state.packing import pack

SCHEMA = pa.schema([("city", pa.string()), ("n", pa.int64()), ("at", pa.int64())])
ROWS = StreamType(SCHEMA, EventTime("at"))
PLAIN_IN = StreamType(RECORDS.append(pa.field(HIDDEN_KEY, pa.binary())))
PLAIN_OUT = StreamType(RECORDS)


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


def test_another_kind_of_state_is_refused(bench: Any) -> None:
    with pytest.raises(StateTypeChanged):
        bench.open(
            ReduceOperator(max, (HIDDEN_KEY,), PLAIN_IN, PLAIN_OUT),
            restored=[OperatorState("op-1", "window-aggregate")],
        )


def test_rows_may_have_keys_that_are_lists(bench: Any) -> None:
    schema = pa.schema([("tags", pa.list_(pa.string())), ("n", pa.int64())])
    stream = StreamType(schema)
    operator = ReduceOperator(lambda old, new: new._replace(n=old.n + new.n), ("tags",), stream, stream)
    out = bench.open(operator, stream)
    operator.process(0, pa.record_batch({"tags": [["a", "b"], ["a"], ["a", "b"]], "n": [1, 2, 3]}, schema=schema))
    assert [row.n for row in out.records()] == [1, 2, 4]

    again = ReduceOperator(lambda old, new: (new.tags, old.n + new.n), ("tags",), stream, stream)
    out = bench.open(again, stream, restored=[bench.snapshot(operator)])
    again.process(0, pa.record_batch({"tags": [["a", "b"]], "n": [5]}, schema=schema))
    assert out.records() == [(["a", "b"], 9)]
