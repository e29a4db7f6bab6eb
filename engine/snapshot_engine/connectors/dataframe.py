"""A Spark DataFrame as a bounded source: written to Parquet once, by Spark, then read as files.

A DataFrame lives in the driver's Spark session and has no positions. So the driver calls `materialise` before the first
slot starts; from then on this is a source of Parquet files. Nothing of pyspark is needed here: an object that has
`write.parquet` and `schema.json` will do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from snapshot_engine.connectors.files import list_files
from snapshot_engine.connectors.parquet_files import ParquetReader
from snapshot_engine.connectors.protocols import Position

_PLAIN_TYPES = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


class DataFrameSource:
    bounded = True
    sequential = True

    def __init__(self, dataframe: Any) -> None:
        if not hasattr(dataframe, "write") or not hasattr(dataframe, "schema"):
            raise TypeError(f"expected a Spark DataFrame, got {type(dataframe).__name__}")
        self.schema = arrow_schema(json.loads(dataframe.schema.json()))
        self._dataframe = dataframe
        self._folder: str | None = None

    def __repr__(self) -> str:
        return f"DataFrameSource({', '.join(self.schema.names)})"

    def materialise(self, folder: str, restored: bool) -> None:
        """Have Spark write the rows to `folder`, which the executors can read.

        When the job is `restored` from a checkpoint, what the first start wrote is used again: the positions in the
        checkpoint belong to those very files.
        """
        if restored:
            self._refuse_incomplete(folder)
        else:
            self._dataframe.write.mode("overwrite").parquet(folder)
        self._folder = folder

    def splits(self, parallelism: int) -> Sequence[str]:
        return [file.rsplit("/", 1)[-1] for file in list_files(self._staged(), "*.parquet")]

    def open(self, split: str, position: Position) -> ParquetReader:
        return ParquetReader(f"{self._staged()}/{split}", self.schema, position)

    def __getstate__(self) -> dict[str, Any]:
        """Shipped without the DataFrame, which cannot leave the driver."""
        return {"schema": self.schema, "_folder": self._staged(), "_dataframe": None}

    def _staged(self) -> str:
        if self._folder is None:
            raise RuntimeError(f"{self!r} has not been materialised: the driver does that before the job starts")
        return self._folder

    def _refuse_incomplete(self, folder: str) -> None:
        try:
            list_files(f"{folder}/_SUCCESS", "*")
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"the checkpoint was taken over the rows of a DataFrame in {folder}, but they are no longer there; "
                "start the job without the checkpoint to write them again"
            ) from error


def arrow_schema(struct: Mapping[str, Any]) -> pa.Schema:
    """From Spark's own JSON form of a schema."""
    return pa.schema([_field(field) for field in struct["fields"]])


def _field(field: Mapping[str, Any]) -> pa.Field:
    return pa.field(field["name"], _arrow_type(field["type"], field["name"]), field["nullable"])


def _arrow_type(spark: Any, column: str) -> pa.DataType:
    if isinstance(spark, str):
        if spark.startswith("decimal("):
            precision, scale = spark[len("decimal(") : -1].split(",")
            return pa.decimal128(int(precision), int(scale))
        if spark.startswith(("varchar(", "char(")):
            return pa.string()
        if spark in _PLAIN_TYPES:
            return _PLAIN_TYPES[spark]
    elif spark["type"] == "array":
        return pa.list_(pa.field("element", _arrow_type(spark["elementType"], column), spark["containsNull"]))
    elif spark["type"] == "struct":
        return pa.struct([_field(field) for field in spark["fields"]])
    elif spark["type"] == "map":
        value = pa.field("value", _arrow_type(spark["valueType"], column), spark["valueContainsNull"])
        return pa.map_(_arrow_type(spark["keyType"], column), value)
    raise TypeError(f"column {column!r} has the Spark type {spark}, which has no Arrow form here: cast it before")
