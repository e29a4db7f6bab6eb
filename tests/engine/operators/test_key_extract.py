from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from snapshot_engine.operators.key_extract import KeyExtractOperator
from snapshot_engine.operators.stream_type import HIDDEN_KEY, RECORDS, StreamType
from snapshot_engine.operators.user_errors import UserFunctionError
from snapshot_engine.state.packing import unpack

SCHEMA = pa.schema([("id", pa.int64())])
INPUT = StreamType(SCHEMA)
OUTPUT = StreamType(SCHEMA.append(pa.field(HIDDEN_KEY, pa.binary())))
BATCH = pa.record_batch({"id": [1, 2, 3]}, schema=SCHEMA)


def keys(bench: Any, fn: Callable[[Any], Any]) -> list[bytes]:
    operator = KeyExtractOperator(fn, INPUT, OUTPUT)
    out = bench.open(operator, OUTPUT)
    operator.process(0, BATCH)
    (batch,) = out.data
    assert batch.schema == OUTPUT.schema
    assert batch.column("id").equals(BATCH.column("id"))
    packed: list[bytes] = batch.column(HIDDEN_KEY).to_pylist()
    return packed


@pytest.mark.parametrize("key", [None, True, 3, "x", b"x", (1, "a"), (1, (2, None))])
def test_keys_are_packed_beside_the_rows_and_come_back(bench: Any, key: Any) -> None:
    assert [unpack(packed) for packed in keys(bench, lambda row: key)] == [key] * 3


def test_keys_that_are_equal_have_equal_bytes(bench: Any) -> None:
    for first, second in [(0.0, -0.0), (Decimal("1.0"), Decimal("1.00")), (np.int64(5), 5), ((1, 0.0), (1, -0.0))]:
        one, other, _ = keys(bench, lambda row, pair=(first, second): pair[row.id % 2])
        assert one == other


def test_keys_of_other_types_are_other_keys(bench: Any) -> None:
    assert len(set(keys(bench, lambda row: [1, True, "1"][row.id - 1]))) == 3


@pytest.mark.parametrize("key", [[1], {"a": 1}, {1}, object(), (1, [2])])
def test_what_cannot_be_a_key_is_told_with_the_record(bench: Any, key: Any) -> None:
    with pytest.raises(UserFunctionError, match=r"(?s)key function of operator 'the operator'.*cannot be a key.*id=1"):
        keys(bench, lambda row: key)


def test_an_exception_in_the_key_function_shows_the_record(bench: Any) -> None:
    with pytest.raises(UserFunctionError, match=r"(?s)key function.*ZeroDivisionError.*Row\(id=2\)"):
        keys(bench, lambda row: 1 // (row.id - 2))


def test_plain_records_keep_their_packed_form(bench: Any) -> None:
    schema = RECORDS.append(pa.field(HIDDEN_KEY, pa.binary()))
    batch = pa.RecordBatch.from_arrays([pa.array([b"\x01", b"\xa1x"])], schema=RECORDS)
    operator = KeyExtractOperator(lambda value: value, StreamType(RECORDS), StreamType(schema))
    out = bench.open(operator)
    operator.process(0, batch)
    assert out.data[0].column(HIDDEN_KEY).equals(out.data[0].column("value"))


def test_a_stop_iteration_of_the_function_names_the_record(bench: Any) -> None:
    with pytest.raises(UserFunctionError, match=r"raised StopIteration\n  on the record: Row\(id=2\)"):
        keys(bench, lambda row: next(iter(())) if row.id == 2 else row.id)
