from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from snapshot_engine.operators.connect import CoProcessOperator
from snapshot_engine.operators.functions import CoProcessFunction
from snapshot_engine.operators.records import Records
from snapshot_engine.operators.stream_type import HIDDEN_TIME, RECORDS, EventTime, StreamType
from snapshot_engine.operators.user_errors import UserFunctionError
from snapshot_engine.state.changed_state import RecordStateChanged
from snapshot_engine.state.descriptors import ListState, ValueState

ORDERS = StreamType(pa.schema([("id", pa.int64()), ("item", pa.string()), ("at", pa.int64())]), EventTime("at"))
PAYMENTS = StreamType(pa.schema([("amount", pa.float64()), ("order", pa.int64()), ("at", pa.int64())]), EventTime("at"))
OUTPUT = StreamType(RECORDS.append(pa.field(HIDDEN_TIME, pa.int64())), EventTime(HIDDEN_TIME))


class Match(CoProcessFunction):
    """Pairs each order with its payment, whichever comes first; reports orders that stay unpaid."""

    def open(self, context: Any) -> None:
        self.order = context.state(ValueState("order"))
        self.payments = context.state(ListState("payments"))

    def process_left(self, record: Any, context: Any) -> Any:
        for amount in self.payments.get():
            yield "paid", record.item, amount
        if not self.payments.get():
            self.order.update(record)
            context.timers.register_event_time(record.at + 100)
        self.payments.clear()

    def process_right(self, record: Any, context: Any) -> Any:
        order = self.order.value()
        if order is None:
            self.payments.add(record.amount)
        else:
            self.order.clear()
            yield "paid", order.item, record.amount

    def on_timer(self, timestamp: int, context: Any) -> Any:
        if self.order.value() is not None:
            context.emit_side("unpaid", (context.current_key, timestamp))


def opened(bench: Any, **kwargs: Any) -> Any:
    operator = CoProcessOperator(Match(), ("id",), ("order",), ORDERS, PAYMENTS, OUTPUT)
    return operator, bench.open(operator, OUTPUT, **kwargs)


def orders(*values: tuple[int, str, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(("id", "item", "at"), value, strict=True)) for value in values], schema=ORDERS.schema
    )


def payments(*values: tuple[float, int, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(("amount", "order", "at"), value, strict=True)) for value in values], schema=PAYMENTS.schema
    )


def test_both_inputs_share_the_state_of_their_key_over_a_restore(bench: Any) -> None:
    operator, out = opened(bench)
    operator.process(0, orders((1, "book", 10), (2, "pen", 11)))
    operator.process(1, payments((5.0, 1, 20), (7.5, 3, 21)))
    assert out.records() == [("paid", "book", 5.0)]
    assert out.times() == [20]
    operator, out = opened(bench, restored=[bench.snapshot(operator)])
    operator.process(0, Records([(3, "ink", 30)]))
    operator.on_watermark(200)
    assert out.records() == [("paid", "ink", 7.5)]
    assert out.side("unpaid") == [(2, 111)]


def test_another_key_column_of_the_same_type_is_told_at_either_side(bench: Any) -> None:
    operator, _ = opened(bench)
    state = bench.snapshot(operator)
    again = CoProcessOperator(Match(), ("id",), ("at",), ORDERS, PAYMENTS, OUTPUT)
    with pytest.raises(RecordStateChanged, match="keyed by id, order in the checkpoint, but by id, at now"):
        bench.open(again, OUTPUT, restored=[state])


def test_keys_of_different_types_are_refused() -> None:
    with pytest.raises(TypeError, match="the left key is int64, the right one double"):
        CoProcessOperator(Match(), ("id",), ("amount",), ORDERS, PAYMENTS, OUTPUT)


def test_an_exception_names_the_side(bench: Any) -> None:
    class Broken(Match):
        def process_right(self, record: Any, context: Any) -> Any:
            raise RuntimeError("no")

    operator = CoProcessOperator(Broken(), ("id",), ("order",), ORDERS, PAYMENTS, OUTPUT)
    bench.open(operator)
    with pytest.raises(UserFunctionError, match=r"process_right\(\) for key 1"):
        operator.process(1, payments((5.0, 1, 20)))
