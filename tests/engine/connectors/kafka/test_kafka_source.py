from __future__ import annotations

import pickle
import time
from typing import Any

import confluent_kafka as ck
import pyarrow as pa
import pytest

from snapshot_engine.connectors.kafka_source import KafkaSource, RecordsGone
from snapshot_engine.connectors.protocols import EndOfSplit
from snapshot_engine.connectors.text_files import BadRow

pytestmark = pytest.mark.kafka

NUMBERS = pa.schema({"n": pa.int64()})


def rows(*numbers: int) -> list[dict[str, int]]:
    return [{"n": number} for number in numbers]


def take(reader: Any, count: int, seconds: float = 20.0) -> list[Any]:
    """The next `count` rows, however long the broker takes over them."""
    found: list[Any] = []
    deadline = time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} rows came: {found}"
        batch = reader.read(count - len(found))
        found += batch.to_pylist() if batch is not None else []
    return found


def drain(reader: Any) -> list[Any]:
    found: list[Any] = []
    while True:
        try:
            batch = reader.read(100)
        except EndOfSplit:
            return found
        found += batch.to_pylist() if batch is not None else []


def test_a_bounded_source_ends_where_the_topic_ended_when_it_was_made(topic) -> None:
    numbers = topic(2)
    numbers.write(0, *rows(1, 2))
    numbers.write(1, *rows(10))
    source = pickle.loads(pickle.dumps(KafkaSource(numbers.servers, numbers.name, NUMBERS, bounded=True)))
    numbers.write(0, *rows(3))
    assert [drain(source.open(split, None)) for split in source.splits(4)] == [rows(1, 2), rows(10)]


def test_a_reader_goes_on_from_every_position(topic) -> None:
    numbers = topic()
    numbers.write(0, *rows(*range(10)))
    source = KafkaSource(numbers.servers, numbers.name, NUMBERS, bounded=True)
    (split,) = source.splits(1)
    reader = source.open(split, None)
    for seen in range(10):
        assert drain(source.open(split, reader.position())) == rows(*range(seen, 10))
        take(reader, 1)
    with pytest.raises(EndOfSplit):
        reader.read(1)


def test_an_unbounded_source_waits_for_more_and_tells_its_lag(topic) -> None:
    numbers = topic()
    source = KafkaSource(numbers.servers, numbers.name, NUMBERS)
    reader = source.open(source.splits(1)[0], None)
    assert reader.read(10) is None
    numbers.write(0, *rows(1, 2, 3))
    assert take(reader, 1) == rows(1)
    assert reader.lag() == 2
    assert take(reader, 2) == rows(2, 3)


def test_latest_begins_behind_what_is_there_when_the_source_is_made(topic) -> None:
    numbers = topic()
    numbers.write(0, *rows(1, 2))
    source = KafkaSource(numbers.servers, numbers.name, NUMBERS, start="latest")
    numbers.write(0, *rows(3))
    reader = source.open(source.splits(1)[0], None)
    assert reader.position() == 2
    assert take(reader, 1) == rows(3)


def test_without_a_schema_records_come_as_they_are(topic) -> None:
    anything = topic()
    anything.write(0, b"\x00\xff", None)
    source = KafkaSource(anything.servers, anything.name, bounded=True)
    first, second = drain(source.open(source.splits(1)[0], None))
    assert (first["value"], first["key"], first["offset"]) == (b"\x00\xff", None, 0)
    assert second["value"] is None


def test_aborted_transactions_are_not_read_and_their_marks_do_not_hide_the_end(topic) -> None:
    numbers = topic()
    producer = ck.Producer({"bootstrap.servers": numbers.servers, "transactional.id": numbers.name})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(numbers.name, b'{"n": 1}')
    producer.commit_transaction()
    producer.begin_transaction()
    producer.produce(numbers.name, b'{"n": 2}')
    producer.flush()
    producer.abort_transaction()
    source = KafkaSource(numbers.servers, numbers.name, NUMBERS, bounded=True)
    assert drain(source.open(source.splits(1)[0], None)) == rows(1)


def test_new_partitions_are_named_behind_the_old_ones(topic) -> None:
    numbers = topic(2)
    source = KafkaSource(numbers.servers, numbers.name, NUMBERS)
    before = source.splits(1)
    numbers.grow(12)
    deadline = time.monotonic() + 20
    while len(source.splits(1)) < 12 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert sorted(source.splits(1))[:2] == before
    numbers.write(11, *rows(7))
    assert take(source.open(source.splits(1)[11], None), 1) == rows(7)


def test_latest_leaves_out_nothing_of_a_partition_that_came_later(topic) -> None:
    numbers = topic(1)
    numbers.write(0, *rows(1))
    numbers.grow(2)
    numbers.write(1, *rows(7, 8))
    source = KafkaSource(numbers.servers, numbers.name, NUMBERS, start="latest")
    came_later = source.splits(1)[1]
    reader = source.open(came_later, source.beginning(came_later))
    assert reader.lag() is None
    assert take(reader, 1) == rows(7)
    assert take(source.open(came_later, reader.position()), 1) == rows(8)


def test_what_has_come_to_a_new_partition_and_gone_again_is_not_asked_for(topic) -> None:
    numbers = topic(1)
    numbers.write(0, *rows(1, 2))
    numbers.delete_before(0, 1)
    source = KafkaSource(numbers.servers, numbers.name, NUMBERS, bounded=True)
    (split,) = source.splits(1)
    assert drain(source.open(split, source.beginning(split))) == rows(2)


@pytest.mark.parametrize("bad", [b"no json", b'{"n": "text"}', b"", b'{"n": 1} {"n": 2}', None])
def test_a_bad_record_is_named_by_partition_and_offset(topic, bad) -> None:
    numbers = topic()
    numbers.write(0, {"n": 1}, bad, {"n": 3})
    source = KafkaSource(numbers.servers, numbers.name, NUMBERS, bounded=True)
    with pytest.raises(BadRow, match=f"{numbers.name}/0:1: "):
        drain(source.open(source.splits(1)[0], None))


def test_json_over_several_lines_is_one_row(topic) -> None:
    numbers = topic()
    numbers.write(0, b'{\n  "n": 1\n}\n')
    source = KafkaSource(numbers.servers, numbers.name, NUMBERS, bounded=True)
    assert drain(source.open(source.splits(1)[0], None)) == rows(1)


def test_records_that_retention_deleted_are_an_error_and_not_skipped(topic) -> None:
    numbers = topic()
    numbers.write(0, *rows(*range(10)))
    source = KafkaSource(numbers.servers, numbers.name, NUMBERS)
    numbers.delete_before(0, 5)
    with pytest.raises(RecordsGone, match="retention"):
        take(source.open(source.splits(1)[0], 3), 1)


def test_a_topic_that_is_not_there_is_told_while_planning(broker) -> None:
    with pytest.raises(LookupError, match="no-such-topic"):
        KafkaSource(broker.servers, "no-such-topic", NUMBERS)


def test_options_that_exactly_once_rests_on_are_refused(topic) -> None:
    numbers = topic()
    with pytest.raises(ValueError, match=r"enable\.auto\.commit"):
        KafkaSource(numbers.servers, numbers.name, options={"enable.auto.commit": True})
