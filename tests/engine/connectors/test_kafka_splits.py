"""Where a Kafka source goes on from a checkpoint. No broker is asked: each partition has ten records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from snapshot_engine.connectors import kafka_source
from snapshot_engine.connectors.kafka_source import BEGINNING, KafkaSource, OtherTopic, Start, split_name
from snapshot_engine.operators.operator import OperatorContext, Origin
from snapshot_engine.operators.source import SourceReaderOperator
from snapshot_engine.runtime.failure_report import state_is_unreadable
from snapshot_engine.state.handles import OperatorState


class Topic(KafkaSource):
    def __init__(self, topic: str, partitions: int, start: Start = "earliest") -> None:
        self.partitions = partitions
        super().__init__("127.0.0.1:9", topic, start=start)

    def _ask_where_it_begins_and_ends(self, start: Start) -> None:
        self._first = dict.fromkeys(range(self.partitions), 0 if start == "earliest" else 10)
        self._ends = dict.fromkeys(range(self.partitions), 10)

    def splits(self, parallelism: int) -> Sequence[str]:
        return [split_name(self.topic, partition) for partition in range(self.partitions)]


class Reader:
    """Stays where it begins."""

    def __init__(self, source: KafkaSource, partition: int, begin: Any, end: int | None) -> None:
        self.begin = begin

    def position(self) -> Any:
        return self.begin


@pytest.fixture(autouse=True)
def readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_source, "KafkaReader", Reader)


def _opened(source: KafkaSource, *restored: OperatorState) -> OperatorState:
    """What the snapshot of a subtask says that reads all of `source`."""
    operator = SourceReaderOperator(source)
    operator.open(
        OperatorContext(
            uid="in",
            name="in",
            subtask=0,
            parallelism=1,
            key_groups=128,
            attempt=(1, 1),
            restored=restored,
            rescaled=False,
            reader=None,  # type: ignore[arg-type]
            clock=lambda: 0,
            origin=Origin(),
        )
    )
    return operator.snapshot(1).write(None)  # type: ignore[arg-type]


def _positions(state: OperatorState) -> dict[str, Any]:
    return {name: entry["position"] for name, entry in state.meta["splits"].items()}


@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("latest", 10)])
def test_a_partition_that_came_since_the_checkpoint_is_read_from_its_beginning(start: Start, first: int) -> None:
    before = _opened(Topic("orders", 1, start))
    after = _opened(Topic("orders", 2, start), before)
    assert _positions(after) == {"orders/000000": first, "orders/000001": BEGINNING}
    assert _positions(_opened(Topic("orders", 2, start), after)) == _positions(after)


def test_a_partition_that_came_after_planning_keeps_its_beginning_also_over_a_restart() -> None:
    grown = Topic("orders", 1, "latest")
    grown.partitions = 2
    state = _opened(grown)
    assert _positions(_opened(Topic("orders", 2, "latest"), state)) == {"orders/000000": 10, "orders/000001": BEGINNING}


def test_positions_in_another_topic_are_refused_with_what_to_do() -> None:
    state = _opened(Topic("orders", 1))
    expected = r"position in 'orders/000000', but the source reads topic 'orders-v2' now.*new uid"
    with pytest.raises(OtherTopic, match=expected) as refused:
        _opened(Topic("orders-v2", 1), state)
    assert state_is_unreadable(refused.value)
