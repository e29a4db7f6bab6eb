"""A real DataFrame, written by a real Spark, read by the source."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from snapshot_engine.connectors.dataframe import DataFrameSource

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    yield session
    session.stop()


def test_every_type_comes_back_as_spark_had_it(spark: Any, tmp_path: Path, reading: Any) -> None:
    dataframe = spark.sql(
        """select id, cast(id as int) i, cast(id as string) s, id / 2.0D d, cast(id as decimal(9, 2)) money,
                  timestamp '2024-05-01 10:00:00' at, timestamp_ntz '2024-05-01 10:00:00' local, date '2024-05-01' day,
                  array(id, null) list, named_struct('a', id) struct, map('k', id) map, cast('x' as binary) bytes
           from range(0, 20, 1, 3)"""
    )
    source = DataFrameSource(dataframe)
    source.materialise(str(tmp_path / "staged"), restored=False)
    shipped = pickle.loads(pickle.dumps(source))
    assert len(shipped.splits(2)) == 3
    rows = sorted(reading.source(shipped, 4), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == list(range(20))
    assert rows[3] == {
        "id": 3,
        "i": 3,
        "s": "3",
        "d": 1.5,
        "money": Decimal("3.00"),
        "at": dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC),
        "local": dt.datetime(2024, 5, 1, 10),
        "day": dt.date(2024, 5, 1),
        "list": [3, None],
        "struct": {"a": 3},
        "map": [("k", 3)],
        "bytes": b"x",
    }
    for split in shipped.splits(2):
        reading.every_position(shipped, split, 4)
