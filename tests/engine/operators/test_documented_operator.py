"""The operator of docs/developers/operators.md does what the page says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from snapshot_engine.operators import operator as contract
from snapshot_engine.operators.records import to_arrow
from snapshot_engine.operators.stream_type import StreamType
from snapshot_engine.state.handles import OperatorState

PAGE = Path(__file__).parents[3] / "docs/developers/operators.md"
NUMBERS = StreamType(pa.schema({"n": pa.int64()}))


@pytest.fixture(scope="module")
def every_nth() -> Any:
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert code is not None
    names = {**vars(contract), "dataclass": dataclass, "to_arrow": to_arrow, "OperatorState": OperatorState}
    names |= {"pa": pa, "StreamType": StreamType, "__name__": __name__}
    exec(compile(code.group(1), str(PAGE), "exec", dont_inherit=True), names)
    return names["EveryNth"]


def numbers(start: int, end: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(start, end), pa.int64())})


def test_every_third_row_passes_however_the_batches_are_cut(bench: Any, every_nth: Any) -> None:
    operator = every_nth(3, NUMBERS)
    out = bench.open(operator, NUMBERS)
    for start, end in [(1, 3), (3, 4), (4, 4), (4, 11)]:
        operator.process(0, numbers(start, end))
    assert [row.n for row in out.records()] == [3, 6, 9]


def test_it_counts_on_after_a_restart(bench: Any, every_nth: Any) -> None:
    operator = every_nth(3, NUMBERS)
    bench.open(operator, NUMBERS)
    operator.process(0, numbers(1, 5))
    restarted = every_nth(3, NUMBERS)
    out = bench.open(restarted, NUMBERS, restored=[bench.snapshot(operator)])
    restarted.process(0, numbers(5, 11))
    assert [row.n for row in out.records()] == [6, 9]
