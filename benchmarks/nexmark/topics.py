"""The same events as a Kafka topic: a broker on this machine, started when the first topic is asked for.

A topic has as many partitions as there are readers, and the rows in the same order and partition as the files of the
layout `partitions` have them, as JSON. It is filled before anything is measured, and gone with the broker.
"""

import atexit
import functools
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.nexmark.datasets import Dataset
from benchmarks.paths import REPOSITORY

_PRODUCER = {"linger.ms": 50, "batch.num.messages": 10_000, "queue.buffering.max.messages": 1_000_000}


def fill_topic(dataset: Dataset, table: str, partitions: int) -> tuple[str, str]:
    """(servers, topic). Filled the first time it is asked for."""
    name = f"{dataset.directory.name}-{table}-{dataset.slices}x{partitions}"
    return _broker().servers, _filled(dataset, table, partitions, name)


@functools.cache
def _filled(dataset: Dataset, table: str, partitions: int, name: str) -> str:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    servers = _broker().servers
    admin = AdminClient({"bootstrap.servers": servers})  # kept until it has answered
    (created,) = admin.create_topics([NewTopic(name, partitions, 1)]).values()
    created.result()
    producer = Producer({"bootstrap.servers": servers, **_PRODUCER})
    for partition, file in enumerate(dataset.partition_files(table, partitions)):
        for value in _json_rows(file):
            _produce(producer, name, value, partition)
    if producer.flush(60):
        raise RuntimeError(f"the topic {name} could not be filled")
    return name


def _produce(producer: Any, topic: str, value: str, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition)
            return
        except BufferError:
            producer.poll(0.1)


def _json_rows(file: Path) -> Iterator[str]:
    import duckdb

    rows = duckdb.connect().execute(f"SELECT to_json(t)::VARCHAR FROM read_parquet('{file}') t")
    while chunk := rows.fetchmany(100_000):
        yield from (value for (value,) in chunk)


@functools.cache
def _broker() -> Any:
    sys.path.insert(0, str(REPOSITORY / "hack" / "kafka"))
    from localkafka import LocalKafka

    folder = Path(tempfile.mkdtemp(prefix="benchmark-kafka-"))
    broker = LocalKafka(REPOSITORY / ".cache" / "kafka", folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    broker.start()
    atexit.register(broker.stop)
    return broker
