"""A blocking result as a Spark DataFrame: the batch part of a job is Spark's own work.

Nothing of pyspark is imported here: the session that is handed in does it all. The parts of the result are read by the
executors, from checkpoint storage. The other way round is `Environment.from_dataframe`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from snapshot_engine.runtime.exchanges.stored_segments import WRITTEN
from snapshot_engine.state.handles import PieceHandle
from snapshot_engine.storage.checkpoint_catalog import CheckpointCatalog
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.storage.open_store import open_store
from snapshot_engine.storage.pieces import StorageConfig


class NoSuchResult(Exception):
    """The job's latest checkpoint names no such blocking result."""


def result_dataframe(
    spark: Any,
    storage: str,
    namespace: str,
    job: str,
    edge: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """The rows that a job handed over along a blocking edge, as its latest checkpoint names them.

    `edge` is `<producer's uid>-><consumer's uid>.<input>`; it may be left out if the job has one. Raises NoSuchResult.
    """
    config = StorageConfig(storage, Layout(namespace, job), options or {})
    manifest = CheckpointCatalog(open_store(storage, options), namespace, job).load()
    parts = _parts_of(manifest, edge)
    if not parts:
        return spark.createDataFrame([], "value string").limit(0)
    schema = _as_spark_takes_it(config.reader(config.open()).read_table(parts[0])).schema
    names = pa.table({"part": [json.dumps(part.to_json()) for part in parts]})
    like = spark.createDataFrame(pa.Table.from_batches([], schema))
    return spark.createDataFrame(names).repartition(len(parts)).mapInArrow(_ReadParts(config), like.schema)


def _parts_of(manifest: Manifest, edge: str | None) -> list[PieceHandle]:
    results: dict[str, list[PieceHandle]] = {}
    for _, _, snapshot in manifest.subtasks():
        for state in snapshot.operators:
            if state.kind == WRITTEN and snapshot.finished and state.meta["sealed"]:
                results.setdefault(state.uid.removesuffix("/written"), []).extend(state.pieces)
    if edge is None and len(results) == 1:
        return next(iter(results.values()))
    if edge not in results:
        known = ", ".join(sorted(results)) or "none"
        raise NoSuchResult(
            f"checkpoint {manifest.checkpoint} of job {manifest.job!r} names no blocking result {edge!r}; "
            f"there are: {known}"
        )
    return results[edge]


class _ReadParts:
    def __init__(self, config: StorageConfig) -> None:
        self._config = config

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = self._config.reader(self._config.open())
        for batch in batches:
            for part in batch.column("part").to_pylist():
                handle = PieceHandle.from_json(json.loads(part))
                yield from _as_spark_takes_it(reader.read_table(handle)).to_batches()


def _as_spark_takes_it(table: pa.Table) -> pa.Table:
    """Spark's timestamps are in microseconds."""
    fields = [
        field.with_type(pa.timestamp("us", field.type.tz)) if pa.types.is_timestamp(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))
