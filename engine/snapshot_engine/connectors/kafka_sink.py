"""A Kafka topic as a sink: exactly-once by staged records and a transaction per checkpoint, or at-least-once.

Kafka has transactions, but one that a process has prepared dies with that process: nobody else can commit it. So rows
are staged in files, as for any file sink, and the commit sends them in one Kafka transaction. That transaction also
commits an offset that says how many files of the writer have been sent. Whoever is asked to commit again reads that
offset and sends only what is missing. All committers of a sink share one transactional id: of two that are at it at
the same time, Kafka stops the older one.

The offset is there for whoever comes right behind: brokers forget it. Once it is committed, a mark in the staging
folder says the same for as long as a checkpoint asks. Rows are sent twice if the driver is lost between the two and the
job is then away for longer than the brokers keep offsets (`offsets.retention.minutes`).
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from snapshot_engine.connectors.collect_sink import ArrowFormat
from snapshot_engine.connectors.kafka_client import client_library, client_settings, produce
from snapshot_engine.connectors.kafka_staging import StagedRecords, first_not_marked, mark_as_sent, marks_in
from snapshot_engine.connectors.kafka_transactions import Transactions
from snapshot_engine.connectors.protocols import Committable, DirectSink, SinkWriter, WriterContext
from snapshot_engine.connectors.staged_files import StagedFileSink
from snapshot_engine.connectors.text_rows import json_lines

_STAGED = pa.schema({"key": pa.binary(), "value": pa.binary()})


class KafkaSink(StagedFileSink):
    """Every row becomes a record: its value a JSON object, its key the text of column `key`.

    `staging`: a folder that the driver and all executors see under the same path. Readers of the topic must read
    committed records only (`isolation.level=read_committed`, the default of this engine's own source).
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        staging: str | Path,
        key: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(staging, ArrowFormat())
        self.servers = servers
        self.topic = topic
        self.key = key
        self.options = dict(options or {})
        client_settings(servers, self.options, {})
        self._transactions: dict[str, Transactions] = {}

    def __repr__(self) -> str:
        return f"KafkaSink({self.topic!r} at {self.servers})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_transactions": {}}

    def check(self, schema: pa.Schema) -> None:
        require_key(schema, self.key)

    def open(self, context: WriterContext) -> SinkWriter:
        return _EncodingWriter(super().open(context), self.key)

    def commit(self, committables: Sequence[Committable]) -> None:
        """One transaction for all that one sink staged in one folder; after an error the next call begins anew."""
        by_sink: dict[tuple[str, Path], list[StagedRecords]] = defaultdict(list)
        for committable in committables:
            place = self.place_of(committable)
            staged = StagedRecords(place, committable)
            by_sink[staged.sink, place].append(staged)
        for (sink, place), staged_there in by_sink.items():
            self._send(self._transactions_of(sink, place), staged_there)

    def kept_for(self, committable: Committable) -> set[Path]:
        """With the mark, which tells this file from a lost one if it has been sent."""
        (file,) = super().kept_for(committable)
        return {file, *marks_in(file.parent)}

    def _send(self, transactions: Transactions, staged: Sequence[StagedRecords]) -> None:
        by_folder: dict[Path, list[StagedRecords]] = defaultdict(list)
        for each in staged:
            by_folder[each.file.parent].append(each)
        marked = {folder: first_not_marked(folder) for folder in by_folder}
        self._send_missing(transactions, [each for each in staged if each.number >= marked[each.file.parent]])
        for of_one_writer in by_folder.values():
            mark_as_sent(of_one_writer)

    def _send_missing(self, transactions: Transactions, staged: Sequence[StagedRecords]) -> None:
        """Of `staged`, which have no mark, what Kafka does not know as sent either."""
        if not staged:
            return
        missing = transactions.not_yet_sent({each.writer for each in staged})
        unsent = [each for each in staged if each.number >= missing[each.writer]]
        if unsent:
            transactions.send(
                (record for each in unsent for record in each.records()),
                {each.writer: each.number + 1 for each in sorted(unsent, key=lambda each: each.number)},
            )

    def _transactions_of(self, sink: str, place: Path) -> Transactions:
        name = f"streamingjob.{sink}.{uuid.uuid5(uuid.NAMESPACE_URL, place.as_uri()).hex[:8]}"
        if name not in self._transactions:
            self._transactions[name] = Transactions(self.servers, self.topic, name, self.options)
        return self._transactions[name]


class KafkaDirectSink(DirectSink):
    """The same without staging: records are visible at once, and after a failure some of them twice."""

    def __init__(
        self, servers: str, topic: str, *, key: str | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        self.servers = servers
        self.topic = topic
        self.key = key
        self.options = dict(options or {})

    def __repr__(self) -> str:
        return f"KafkaDirectSink({self.topic!r} at {self.servers})"

    def check(self, schema: pa.Schema) -> None:
        require_key(schema, self.key)

    def open(self, context: WriterContext) -> SinkWriter:
        return _DirectWriter(self)


class _EncodingWriter:
    """Rows are encoded in the slots, so that the driver only has to send them."""

    def __init__(self, staged: SinkWriter, key: str | None) -> None:
        self._staged = staged
        self._key = key

    def write(self, batch: pa.RecordBatch) -> None:
        self._staged.write(encoded(batch, self._key))

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        return self._staged.prepare(checkpoint)

    def close(self) -> None:
        self._staged.close()


class _DirectWriter:
    def __init__(self, sink: KafkaDirectSink) -> None:
        own = {"enable.idempotence": True}
        self._sink = sink
        self._failed: list[Any] = []
        self._producer = client_library().Producer(client_settings(sink.servers, sink.options, own))

    def write(self, batch: pa.RecordBatch) -> None:
        rows = encoded(batch, self._sink.key)
        for key, value in zip(rows.column("key").to_pylist(), rows.column("value").to_pylist(), strict=True):
            produce(self._producer, self._sink.topic, key, value, self._delivered)

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        """At the barrier everything before it has arrived, or this fails and the rows come again."""
        self._producer.flush()
        if self._failed:
            raise ConnectionError(f"{self._sink!r}: {len(self._failed)} records were not taken: {self._failed[0]}")
        return []

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(1.0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error)


def encoded(batch: pa.RecordBatch, key: str | None) -> pa.RecordBatch:
    values = [line.encode() for line in json_lines(batch)]
    keys = [None] * len(values) if key is None else [_key_bytes(each) for each in batch.column(key).to_pylist()]
    return pa.RecordBatch.from_pydict({"key": keys, "value": values}, _STAGED)


def require_key(schema: pa.Schema, key: str | None) -> None:
    if key is not None and key not in schema.names:
        raise ValueError(f"the key of the records is column {key!r}, but the columns are {', '.join(schema.names)}")


def _key_bytes(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else str(value).encode()
