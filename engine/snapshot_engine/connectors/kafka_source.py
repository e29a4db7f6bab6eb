"""A Kafka topic as a source. A split is a partition, a position is the offset of the next record.

Where reading begins (and, for a bounded source, ends) is asked once, when the source is made in the user's pipeline, so
that all subtasks agree. Partitions that come later begin where their records do. Offsets are kept in the job's
checkpoints only; no consumer group is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa

from snapshot_engine.connectors.kafka_client import (
    ASK_SECONDS,
    KafkaUnavailable,
    client_library,
    client_settings,
    count_partitions,
)
from snapshot_engine.connectors.kafka_rows import RAW_SCHEMA, RowFormat, row_format
from snapshot_engine.connectors.protocols import EndOfSplit, Position
from snapshot_engine.state.changed_state import UnfitState

Start = Literal["earliest", "latest"]

BEGINNING = -2
"""The position before the first record that the broker still has, whichever that is: librdkafka's OFFSET_BEGINNING."""

_OWN: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
}


class RecordsGone(Exception):
    """The topic no longer has records that the job has not read. Trying again cannot help."""


class OtherTopic(UnfitState):
    """The checkpoint has positions in another topic than the source reads. Offsets mean nothing there."""


class KafkaSource:
    """Rows from JSON values by `schema`; without one, the records as they are (`RAW_SCHEMA`).

    `start`: where a job without a checkpoint begins; partitions that come later are read from their beginning.
    `bounded`: the job ends where the topic ends now. `options` go to librdkafka as they are (`security.protocol`,
    `sasl.username`, `fetch.min.bytes`, …). Records of open and aborted transactions are not read, unless
    `isolation.level` says so.
    """

    grows = True
    """Partitions are only ever added, and number n stays number n."""

    def __init__(
        self,
        servers: str,
        topic: str,
        schema: pa.Schema | None = None,
        *,
        start: Start = "earliest",
        bounded: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if start not in ("earliest", "latest"):
            raise ValueError(f"start={start!r}: expected 'earliest' or 'latest'")
        self.servers = servers
        self.topic = topic
        self.bounded = bounded
        self.schema = RAW_SCHEMA if schema is None else schema
        self.rows: RowFormat = row_format(topic, schema)
        self.options = dict(options or {})
        self._first: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._ask_where_it_begins_and_ends(start)

    def __repr__(self) -> str:
        return f"KafkaSource({self.topic!r} at {self.servers})"

    def splits(self, parallelism: int) -> Sequence[str]:
        """All partitions of an unbounded source as they are now; of a bounded one those that it began with."""
        if self.bounded:
            return [split_name(self.topic, partition) for partition in self._ends]
        consumer = self.consumer()
        try:
            count = count_partitions(consumer, self.servers, self.topic)
        finally:
            consumer.close()
        return [split_name(self.topic, partition) for partition in range(count)]

    def beginning(self, split: str) -> Position:
        return BEGINNING

    def open(self, split: str, position: Position) -> KafkaReader:
        partition = self._partition(split)
        begin = position if position is not None else self._first.get(partition, BEGINNING)
        return KafkaReader(self, partition, begin, self._ends.get(partition) if self.bounded else None)

    def consumer(self) -> Any:
        settings = {"isolation.level": "read_committed", **self.options}
        # librdkafka wants a group's name even where partitions are assigned by hand; nothing is committed to it.
        own = {**_OWN, "group.id": f"streamingjob-{self.topic}"}
        return client_library().Consumer(client_settings(self.servers, settings, own))

    def _partition(self, split: str) -> int:
        topic, _, number = split.rpartition("/")
        if topic != self.topic:
            raise OtherTopic(
                f"{self!r}: the checkpoint has a position in {split!r}, but the source reads topic {self.topic!r} now. "
                f"Name the former topic again; or, to leave it and begin with {self.topic!r}, give the source a new "
                "uid and set allowNonRestoredState"
            )
        return int(number)

    def _ask_where_it_begins_and_ends(self, start: Start) -> None:
        kafka = client_library()
        consumer = self.consumer()
        try:
            for partition in range(count_partitions(consumer, self.servers, self.topic)):
                asked = kafka.TopicPartition(self.topic, partition)
                first, end = consumer.get_watermark_offsets(asked, timeout=ASK_SECONDS)
                self._first[partition] = first if start == "earliest" else end
                self._ends[partition] = end
        except kafka.KafkaException as error:
            raise KafkaUnavailable(f"{self!r}: its offsets cannot be asked for: {error}") from error
        finally:
            consumer.close()


class KafkaReader:
    """Records are fetched by the client's own threads; `read` takes what has arrived."""

    def __init__(self, source: KafkaSource, partition: int, begin: int, end: int | None) -> None:
        kafka = client_library()
        self._source = source
        self._partition = partition
        self._next = begin
        self._end = end
        self._eof_code = kafka.KafkaError._PARTITION_EOF
        self._gone_code = kafka.KafkaError._AUTO_OFFSET_RESET
        self._consumer = source.consumer()
        self._place = kafka.TopicPartition(source.topic, partition, begin)
        self._consumer.assign([self._place])

    def read(self, max_rows: int) -> pa.RecordBatch | None:
        if self._has_ended():
            raise EndOfSplit
        records = []
        for message in self._consumer.consume(max_rows, 0):
            if message.error() is not None:
                self._heed(message)
            elif self._end is None or message.offset() < self._end:
                records.append(message)
        if not records:
            return None
        batch = self._source.rows(records)
        self._next = max(self._next, records[-1].offset() + 1)
        return batch

    def position(self) -> Position:
        return self._next

    def lag(self) -> int | None:
        if self._next == BEGINNING:
            return None
        _, end = self._consumer.get_watermark_offsets(self._place, cached=True)
        return max(0, end - self._next) if end >= 0 else None

    def close(self) -> None:
        self._consumer.close()

    def _has_ended(self) -> bool:
        return self._end is not None and self._next >= self._end

    def _heed(self, message: Any) -> None:
        """The last offsets of a partition may hold no record (ends of transactions): its end is told apart."""
        code = message.error().code()
        if code == self._eof_code:
            self._next = max(self._next, message.offset())
        elif code == self._gone_code:
            raise RecordsGone(
                f"{self._source!r}: partition {self._partition} has no record {self._next} any more: the topic's "
                "retention deleted records that this job has not read. Start from another checkpoint or without one, "
                "and make retention longer than the job may be away"
            )
        elif message.error().fatal():
            raise KafkaUnavailable(f"{self._source!r}: {message.error()}")


def split_name(topic: str, partition: int) -> str:
    """Sorted by number, so that partitions which come later change nothing for the others."""
    return f"{topic}/{partition:06d}"
