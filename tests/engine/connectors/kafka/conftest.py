"""A real broker for all tests of this folder, and a topic of its own for each."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from localkafka import LocalKafka, missing_programs

_numbers = itertools.count()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    missing = missing_programs()
    if missing:
        pytest.skip(f"a Kafka broker needs {' and '.join(missing)}: apt-get install maven openjdk-17-jre-headless")
    root = Path(__file__).parents[4]
    with LocalKafka(root / ".cache" / "kafka", tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka


class Topic:
    def __init__(self, servers: str, name: str, partitions: int) -> None:
        self.servers = servers
        self.name = name
        self._admin = AdminClient({"bootstrap.servers": servers})
        for done in self._admin.create_topics([NewTopic(name, partitions, 1)]).values():
            done.result()

    def write(self, partition: int, *values: Any) -> None:
        producer = ck.Producer({"bootstrap.servers": self.servers})
        for value in values:
            text = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
            producer.produce(self.name, text, partition=partition)
        producer.flush()

    def grow(self, partitions: int) -> None:
        for done in self._admin.create_partitions([NewPartitions(self.name, partitions)]).values():
            done.result()

    def delete_before(self, partition: int, offset: int) -> None:
        for done in self._admin.delete_records([ck.TopicPartition(self.name, partition, offset)]).values():
            done.result()

    def forget_groups(self) -> None:
        """Delete all that groups have committed, in whatever topic."""
        groups = [group.group_id for group in self._admin.list_consumer_groups().result().valid]
        for done in self._admin.delete_consumer_groups(groups).values():
            done.result()

    def read_committed(self) -> list[tuple[bytes | None, Any]]:
        """Every committed record, read to the end by a consumer of its own."""
        settings = {
            "bootstrap.servers": self.servers,
            "group.id": "test",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
        consumer = ck.Consumer(settings)
        count = len(consumer.list_topics(self.name).topics[self.name].partitions)
        consumer.assign([ck.TopicPartition(self.name, p, ck.OFFSET_BEGINNING) for p in range(count)])
        found, ended = [], 0
        while ended < count:
            message = consumer.poll(10)
            assert message is not None, "the broker went silent"
            if message.error() is None:
                found.append((message.key(), json.loads(message.value())))
            else:
                assert message.error().code() == ck.KafkaError._PARTITION_EOF, message.error()
                ended += 1
        consumer.close()
        return found


@pytest.fixture
def topic(broker: LocalKafka) -> Callable[..., Topic]:
    return lambda partitions=1: Topic(broker.servers, f"topic-{next(_numbers)}", partitions)
