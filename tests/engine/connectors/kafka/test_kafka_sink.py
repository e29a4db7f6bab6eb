from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from snapshot_engine.connectors.kafka_client import KafkaUnavailable
from snapshot_engine.connectors.kafka_sink import KafkaDirectSink, KafkaSink
from snapshot_engine.connectors.protocols import SweptJob, WriterContext
from snapshot_engine.connectors.staged_files import PreparedDataLost

pytestmark = pytest.mark.kafka


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers)}, pa.schema({"n": pa.int64()}))


def writer(sink: Any, **changes: Any) -> Any:
    values = {"job": "job", "vertex": "out", "subtask": 0, "generation": 1, "attempt": 1, **changes}
    return sink.open(WriterContext(**values))


def prepared(sink: Any, *numbers: int, **changes: Any) -> list[Any]:
    one = writer(sink, **changes)
    one.write(batch(*numbers))
    return list(one.prepare(1))


def numbers_in(topic: Any) -> list[int]:
    return sorted(value["n"] for _, value in topic.read_committed())


@pytest.fixture
def out(topic, tmp_path: Path):
    made = topic(2)
    return made, KafkaSink(made.servers, made.name, staging=tmp_path / "staging", key="n")


def test_nothing_is_visible_before_the_commit(out) -> None:
    topic, sink = out
    committables = prepared(sink, 1, 2)
    assert numbers_in(topic) == []
    sink.commit(committables)
    assert sorted(topic.read_committed()) == [(b"1", {"n": 1}), (b"2", {"n": 2})]


def test_a_commit_can_be_repeated_by_anyone_in_any_process(out) -> None:
    topic, sink = out
    committables = prepared(sink, 1)
    other = pickle.loads(pickle.dumps(sink))
    for committer in (sink, sink, other, pickle.loads(pickle.dumps(sink))):
        try:
            committer.commit(committables)
        except KafkaUnavailable:  # stopped by the younger one: the engine asks again
            committer.commit(committables)
    assert numbers_in(topic) == [1]


def test_several_writers_and_checkpoints_in_one_commit(out) -> None:
    topic, sink = out
    one, two = writer(sink), writer(sink, subtask=1)
    committables = []
    for number in range(3):
        one.write(batch(number))
        two.write(batch(10 + number))
        committables += [*one.prepare(number), *two.prepare(number)]
    sink.commit(committables[:2])
    sink.commit(committables)
    assert numbers_in(topic) == [0, 1, 2, 10, 11, 12]


def test_a_commit_cut_short_leaves_nothing_and_is_made_whole(out, monkeypatch) -> None:
    topic, sink = out
    committables = prepared(sink, 1, 2)
    interrupted = pickle.loads(pickle.dumps(sink))
    transactions = interrupted._transactions_of("job.out", sink.folder)
    transactions.not_yet_sent(set())
    monkeypatch.setattr(transactions, "_group", lambda writer: (_ for _ in ()).throw(RuntimeError("cut short")))
    with pytest.raises(RuntimeError, match="cut short"):
        transactions.send([(None, b'{"n": 1}')], {"writer": 1})
    sink.commit(committables)
    assert numbers_in(topic) == [1, 2]


def test_what_two_committers_do_at_the_same_time_is_done_once(out) -> None:
    topic, sink = out
    committables = prepared(sink, 1)
    stopped = pickle.loads(pickle.dumps(sink))
    transactions = stopped._transactions_of("job.out", sink.folder)
    (name,) = {Path(each["staged"]).parts[-2] for each in committables}
    assert transactions.not_yet_sent({name}) == {name: 0}
    sink.commit(committables)
    with pytest.raises(KafkaUnavailable):
        transactions.send([(None, b'{"n": 1}')], {name: 1})
    assert numbers_in(topic) == [1]


def test_a_job_is_restored_after_the_broker_has_forgotten_what_was_sent(out, topic) -> None:
    """As it does a week after the last commit."""
    made, sink = out
    committables = prepared(sink, 1, 2)
    sink.commit(committables)
    made.forget_groups()
    pickle.loads(pickle.dumps(sink)).commit(committables)
    assert numbers_in(made) == [1, 2]
    other = topic(1)
    KafkaSink(other.servers, other.name, staging=sink.folder, key="n").commit(committables)
    assert numbers_in(other) == []


def test_staged_records_that_somebody_deleted_are_told_as_lost(out) -> None:
    _, sink = out
    committables = prepared(sink, 1)
    (sink.folder / committables[0]["staged"]).unlink()
    with pytest.raises(PreparedDataLost, match="its rows are lost"):
        sink.commit(committables)


def test_the_sweep_removes_what_older_drivers_left_except_what_is_kept(out) -> None:
    topic, sink = out
    kept, left = prepared(sink, 1), prepared(sink, 2)
    sink.sweep(SweptJob("job", ""), "out", 2, kept)
    assert not (sink.folder / left[0]["staged"]).exists()
    sink.commit(kept)
    assert numbers_in(topic) == [1]


def test_what_an_earlier_version_staged_is_sent_once_also_together_with_newer(out) -> None:
    topic, sink = out
    earlier, newer = prepared(sink, 1), prepared(sink, 2, lineage="1a", subtask=1)
    sink.commit(earlier)
    sink.commit([*newer, *earlier])
    sink.commit([*earlier, *newer])
    assert numbers_in(topic) == [1, 2]


def test_a_key_that_is_no_column_is_told_while_planning(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'city'"):
        KafkaSink("127.0.0.1:9", "t", staging=tmp_path, key="city").check(pa.schema({"n": pa.int64()}))


def test_the_direct_sink_has_sent_everything_at_the_barrier(topic) -> None:
    made = topic()
    direct = writer(KafkaDirectSink(made.servers, made.name))
    direct.write(batch(*range(100)))
    assert direct.prepare(1) == []
    assert numbers_in(made) == list(range(100))
