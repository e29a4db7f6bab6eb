"""Rows combined before they are sent give the windows that the rows themselves give."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from snapshot_engine.operators import row_combiner
from snapshot_engine.operators.aggregates import Aggregate, Avg, Count, CountDistinct, Max, Min, Sum
from snapshot_engine.operators.combining import Combining, combining_for
from snapshot_engine.operators.combining_pace import MOST_SKIPPED, CombiningPace
from snapshot_engine.operators.operator import OperatorContext
from snapshot_engine.operators.row_combiner import RowCombiner
from snapshot_engine.operators.stream_type import HIDDEN_WEIGHT, EventTime, StreamType
from snapshot_engine.operators.weights import rows_counted
from snapshot_engine.operators.window_aggregate import WindowAggregateOperator, output_type
from snapshot_engine.operators.windows import SlidingWindow, TumblingWindow

SCHEMA = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("shard", pa.int32()),
        pa.field("time", pa.timestamp("us")),
        pa.field("price", pa.int64()),
        pa.field("small", pa.int16()),
        pa.field("big", pa.uint64()),
        pa.field("ratio", pa.float32()),
        pa.field("seen", pa.date32()),
    ]
)
INPUT = StreamType(SCHEMA, EventTime("time"))
AGGREGATES: dict[str, Aggregate] = {
    "rows": Count(),
    "total": Sum("price"),
    "mean": Avg("price"),
    "least": Min("price"),
    "greatest": Max("price"),
    "smalls": Sum("small"),
    "bigs": Sum("big"),
    "biggest": Max("big"),
    "ratios": Sum("ratio"),
    "lowest": Min("ratio"),
    "last": Max("seen"),
    "latest": Max("time"),
}


class Taken:
    """What an operator puts out."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def emit(self, batch: pa.RecordBatch) -> None:
        batch.validate(full=True)
        self.rows += [tuple(row.values()) for row in batch.to_pylist()]

    def watermark(self, timestamp: int) -> None:
        pass


def combiner(window: Any, keys: tuple[str, ...] = ("key",), aggregates: Any = AGGREGATES) -> RowCombiner:
    combining = combining_for(keys, window, aggregates, INPUT)
    assert combining is not None
    return RowCombiner(combining)


def opened(window: Any, keys: tuple[str, ...], lateness: int) -> WindowAggregateOperator:
    operator = WindowAggregateOperator(
        keys=keys,
        window=window,
        aggregates=AGGREGATES,
        input=INPUT,
        output=output_type(keys, AGGREGATES, INPUT),
        allowed_lateness_ms=lateness,
    )
    operator.output = Taken()
    operator.open(
        OperatorContext(
            uid="op",
            name="the operator",
            subtask=0,
            parallelism=1,
            key_groups=16,
            attempt=(1, 1),
            restored=[],
            rescaled=False,
            reader=None,  # type: ignore[arg-type]
            clock=lambda: 0,
            incremental=True,
        )
    )
    return operator


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def row(time: int = 5, **values: Any) -> dict[str, Any]:
    at = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=time)
    given = {"key": "a", "shard": 1, "price": 1, "small": 1, "big": 1, "ratio": 1.0, "seen": dt.date(2020, 1, 1)}
    return {**given, "time": at, **values}


def sent(combiner: RowCombiner, *batches: pa.RecordBatch) -> pa.RecordBatch:
    """All that goes out up to a control element behind the batches."""
    parts = [part for batch in batches for part in combiner.combine(batch)] + combiner.take()
    assert not combiner.holds_rows
    weighed = [combiner.weighed(part) for part in parts]
    out = weighed[0] if len(weighed) == 1 else pa.concat_batches(weighed)
    out.validate(full=True)
    assert out.schema == combiner.schema
    assert rows_counted(out) == sum(batch.num_rows for batch in batches)
    return out


def comparable(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted((tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in row) for row in rows), key=str)


VALUES = st.fixed_dictionaries(
    {
        "key": st.sampled_from([None, "", "a", "a key of more than sixteen bytes"]),
        "shard": st.sampled_from([None, 0, -5]),
        "price": st.sampled_from([None, 0, 7, -(2**57), 2**57]),
        "small": st.sampled_from([None, -(2**15), 2**15 - 1]),
        "big": st.sampled_from([None, 0, 3, 2**58]),
        "ratio": st.sampled_from([None, 0.5, -0.0, -1.25, float("nan")]),
        "seen": st.sampled_from([None, dt.date(1960, 1, 1), dt.date(2020, 1, 1)]),
    }
)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a few rows are combined too, whether that makes them fewer or not."""
    monkeypatch.setattr(CombiningPace, "is_due", lambda self, rows: True)
    monkeypatch.setattr(row_combiner, "is_worth_it", lambda rows, groups: True)


@pytest.mark.parametrize(
    ("keys", "window", "lateness"),
    [
        (("key",), TumblingWindow(10), 0),
        (("shard",), SlidingWindow(15, 10, offset_ms=-4), 15),
        (("key", "shard"), SlidingWindow(5, 12), 0),
        (("shard", "price"), TumblingWindow(10), 15),
        (("time",), TumblingWindow(10), 0),
    ],
)
@pytest.mark.usefixtures("always")
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_combined_rows_give_the_same_windows(
    window: Any, keys: tuple[str, ...], lateness: int, data: st.DataObject
) -> None:
    plain, combined = (opened(window, keys, lateness) for _ in range(2))
    combiner_ = combiner(window, keys)
    now = 0
    for _ in range(data.draw(st.integers(1, 3))):
        spread = data.draw(st.sampled_from([0, 4, 40]))
        times = st.integers(now - spread, now + spread)
        rows = st.lists(st.builds(lambda time, given: row(time, **given), times, VALUES), min_size=1, max_size=12)
        batches = [batch_of(data.draw(rows)) for _ in range(data.draw(st.integers(1, 4)))]
        plain.process(0, pa.concat_batches(batches))
        combined.process(0, sent(combiner_, *batches))
        now += data.draw(st.integers(0, 30))
        for operator in (plain, combined):
            operator.on_watermark(now)
        assert combined.late_rows == plain.late_rows
    for operator in (plain, combined):
        operator.on_watermark(1 << 40)
    assert comparable(combined.output.rows) == comparable(plain.output.rows)


def many(keys: int, rows: int = 4096, time: int = 5, **values: Any) -> pa.RecordBatch:
    return batch_of([row(time, shard=n % keys, **values) for n in range(rows)])


def test_few_keys_become_few_rows_and_a_group_knows_how_many_it_was() -> None:
    out = sent(combiner(TumblingWindow(10), ("shard",)), many(8))
    assert out.num_rows == 8
    assert set(out.column(HIDDEN_WEIGHT).to_pylist()) == {512}


def test_small_batches_go_as_they_are() -> None:
    assert sent(combiner(TumblingWindow(10), ("shard",)), many(8, rows=100)).num_rows == 100


def test_what_does_not_become_less_is_tried_ever_more_rarely_and_not_given_up() -> None:
    combiner_ = combiner(TumblingWindow(10), ("shard",))
    different = many(4096)
    for _ in range(200):
        assert sent(combiner_, different).num_rows == 4096
    alike = many(8)
    sizes = [sent(combiner_, alike).num_rows for _ in range(MOST_SKIPPED + 2)]
    assert 4096 in sizes
    assert sizes[-1] == 8


def test_keys_of_batches_long_ago_are_forgotten() -> None:
    combiner_ = combiner(TumblingWindow(10), ("shard",))
    for turn in range(20):
        batch = batch_of([row(shard=1000 * turn + n % 1000) for n in range(4096)])
        assert sent(combiner_, batch).num_rows == 1000


@pytest.mark.parametrize("values", [{"price": 2**61}, {"price": -(2**61)}, {"big": 2**62}])
def test_a_sum_that_does_not_fit_is_left_to_the_rows(values: dict[str, int]) -> None:
    """The window may still have it: an average does, and so do sums whose other rows take it back."""
    assert sent(combiner(TumblingWindow(10), ("shard",)), many(8, **values)).num_rows == 4096


def test_sums_of_earlier_batches_do_not_count() -> None:
    combiner_ = combiner(TumblingWindow(10), ("shard",))
    for _ in range(20):
        assert sent(combiner_, many(8, price=2**49)).num_rows == 8


def test_batches_of_one_pane_are_gathered_and_share_their_groups() -> None:
    combiner_ = combiner(TumblingWindow(10), ("shard",))
    assert sent(combiner_, *[many(8)] * 4, *[many(16)] * 2, many(8)).num_rows == 16


def test_a_batch_of_another_pane_sends_what_was_gathered() -> None:
    combiner_ = combiner(TumblingWindow(10), ("shard",))
    assert combiner_.combine(many(8)) == []
    (first,) = combiner_.combine(many(8, time=15))
    assert (first.num_rows, rows_counted(first)) == (8, 4096)
    assert [rows_counted(part) for part in combiner_.take()] == [4096]


def test_gathered_sums_go_before_they_are_too_large() -> None:
    combiner_ = combiner(TumblingWindow(10), ("shard",))
    batch = many(8, price=2**50)
    assert combiner_.combine(batch) == []
    assert [part.num_rows for part in combiner_.combine(batch)] == [8]
    combiner_.take()


def test_gathering_ends_with_so_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_combiner, "MOST_GATHERED", 8000)
    combiner_ = combiner(TumblingWindow(10), ("shard",))
    assert combiner_.combine(many(8)) == []
    assert [rows_counted(part) for part in combiner_.combine(many(8))] == [8192]


def test_weights_are_always_the_same_memory() -> None:
    combiner_ = combiner(TumblingWindow(10), ("shard",))
    first, second = (sent(combiner_, many(8, rows=10)).column(HIDDEN_WEIGHT).buffers()[1].address for _ in range(2))
    assert first == second


def planned(aggregates: dict[str, Aggregate], schema: pa.Schema = SCHEMA) -> Combining | None:
    return combining_for(("key",), TumblingWindow(10), aggregates, StreamType(schema, EventTime("time")))


def test_distinct_values_and_encoded_columns_are_not_combined() -> None:
    assert planned({"rows": Count()}) is not None
    assert planned({"rows": Count(), "prices": CountDistinct("price")}) is None
    encoded = SCHEMA.set(0, pa.field("key", pa.dictionary(pa.int32(), pa.string())))
    assert planned({"rows": Count()}, encoded) is None


def test_rows_without_a_time_are_left_to_the_aggregate() -> None:
    batch = many(8).set_column(2, SCHEMA.field("time"), pa.nulls(4096, pa.timestamp("us")))
    assert sent(combiner(TumblingWindow(10), ("shard",)), batch).num_rows == 4096


def test_a_batch_without_weights_counts_its_rows() -> None:
    assert rows_counted(many(8)) == 4096
    assert rows_counted(pa.record_batch({HIDDEN_WEIGHT: pa.array(np.array([3, 4], np.int32))})) == 7
