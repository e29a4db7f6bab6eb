"""What a Kafka sink knows as sent, whatever the broker still remembers. The broker here is one that only counts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from snapshot_engine.connectors import kafka_sink
from snapshot_engine.connectors.kafka_sink import KafkaSink
from snapshot_engine.connectors.protocols import Committable, SweptJob, WriterContext
from snapshot_engine.connectors.staged_files import PreparedDataLost

JOB = SweptJob("job", "1a")


class Broker:
    """Stands in for `Transactions`: what was sent to which topic, and the counts by topic, sink and writer."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.counts: dict[tuple[str, str, str], int] = {}
        self.asked = 0

    def __call__(self, servers: str, topic: str, name: str, options: Mapping[str, Any]) -> Connection:
        return Connection(self, topic, name)


class Connection:
    def __init__(self, broker: Broker, topic: str, name: str) -> None:
        self.broker, self.topic, self.name = broker, topic, name

    def not_yet_sent(self, writers: Iterable[str]) -> dict[str, int]:
        self.broker.asked += 1
        return {writer: self.broker.counts.get((self.topic, self.name, writer), 0) for writer in writers}

    def send(self, records: Iterable[tuple[bytes | None, bytes]], sent: Mapping[str, int]) -> None:
        self.broker.sent += [(self.topic, value) for _, value in records]
        self.broker.counts |= {(self.topic, self.name, writer): count for writer, count in sent.items()}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(kafka_sink, "Transactions", made)
    return made


@pytest.fixture
def sink(broker: Broker, tmp_path: Path) -> Callable[..., KafkaSink]:
    """A new one, as a new driver would have it."""
    return lambda topic="totals": KafkaSink("127.0.0.1:9", topic, staging=tmp_path)


def _prepared(sink: KafkaSink, files: int, generation: int = 1) -> list[Committable]:
    """Files 0, 1, 2 … of one writer, with a row each."""
    writer = sink.open(WriterContext("job", "out", 0, generation, 1, "1a"))
    committables: list[Committable] = []
    for number in range(files):
        writer.write(pa.RecordBatch.from_pydict({"n": [number]}))
        committables += writer.prepare(number)
    return committables


def _rows(*numbers: int) -> list[tuple[str, bytes]]:
    return [("totals", b'{"n": %d}' % number) for number in numbers]


def _files(sink: KafkaSink) -> list[Path]:
    return [path for path in sink.folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("topic", ["totals", "totals-v2"])
def test_what_was_sent_is_known_when_the_broker_has_forgotten_it_or_the_topic_is_another(sink, broker, topic) -> None:
    committables = _prepared(sink(), 2)
    sink().commit(committables)
    broker.counts.clear()
    sink(topic).commit(committables)
    assert broker.sent == _rows(0, 1)


def test_a_restore_with_nothing_to_send_needs_no_broker(sink, broker) -> None:
    committables = _prepared(sink(), 1)
    sink().commit(committables)
    asked = broker.asked
    sink().commit(committables)
    assert broker.asked == asked


def test_what_was_sent_before_the_mark_could_be_left_is_told_by_the_broker(sink, broker, monkeypatch) -> None:
    committables = _prepared(sink(), 2)
    with monkeypatch.context() as lost, pytest.raises(RuntimeError):
        lost.setattr(kafka_sink, "mark_as_sent", lambda staged: (_ for _ in ()).throw(RuntimeError("driver lost")))
        sink().commit(committables)
    sink().commit(committables)
    broker.counts.clear()
    sink().commit(committables)
    assert broker.sent == _rows(0, 1)


def test_what_an_earlier_version_sent_and_deleted_is_marked_when_it_is_named_again(sink, broker) -> None:
    committables = _prepared(sink(), 2)
    sink().commit(committables)
    for mark in _files(sink()):
        mark.unlink()
    sink().commit(committables)
    broker.counts.clear()
    sink().commit(committables)
    assert broker.sent == _rows(0, 1)


def test_only_what_is_new_is_sent_when_the_broker_has_forgotten_the_rest(sink, broker) -> None:
    committables = _prepared(sink(), 3)
    sink().commit(committables[:2])
    broker.counts.clear()
    sink().commit(committables)
    assert broker.sent == _rows(0, 1, 2)


def test_an_older_checkpoint_is_known_as_sent_by_the_mark_of_a_newer_one(sink, broker) -> None:
    committables = _prepared(sink(), 3)
    sink().commit(committables)
    broker.counts.clear()
    for named in itertools.permutations(committables):
        sink().commit(named[:1])
        sink().commit(named)
    assert broker.sent == _rows(0, 1, 2)


def test_a_writer_leaves_one_mark_without_content_however_much_it_has_sent(sink) -> None:
    for committable in _prepared(sink(), 20):
        sink().commit([committable])
    (mark,) = _files(sink())
    assert mark.stat().st_size == 0


def test_a_file_that_came_back_beside_its_mark_is_not_sent_again(sink, broker) -> None:
    committables = _prepared(sink(), 1)
    file = sink().folder / committables[0]["staged"]
    content = file.read_bytes()
    sink().commit(committables)
    file.write_bytes(content)
    broker.counts.clear()
    sink().commit(committables)
    assert broker.sent == _rows(0)
    assert not file.exists()


def test_prepared_rows_that_are_gone_without_a_mark_are_an_error(sink, broker) -> None:
    first, second = _prepared(sink(), 2)
    sink().commit([first])
    (sink().folder / second["staged"]).unlink()
    with pytest.raises(PreparedDataLost, match="its rows are lost"):
        sink().commit([first, second])
    assert broker.sent == _rows(0)


def test_the_sweep_leaves_marks_as_long_as_a_file_beside_them_is_named(sink, broker) -> None:
    committables = _prepared(sink(), 2)
    sink().commit(committables)
    broker.counts.clear()
    sink().sweep(JOB, "out", 2, committables[:1])
    sink().commit(committables)
    assert broker.sent == _rows(0, 1)
    sink().sweep(JOB, "out", 2, _prepared(sink(), 1, generation=2))
    assert [file.suffix for file in _files(sink())] == [".arrow"]
