"""A blocking result, read by a real Spark."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from snapshot_engine.api import Environment
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.runtime.exchanges.blocking_result import NoSuchResult, result_dataframe
from snapshot_engine.testing import Outcome, run_pipeline

pytestmark = [pytest.mark.spark, pytest.mark.jobs]


def test_a_blocking_result_is_a_dataframe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    sink = CollectSink(tmp_path / "out")

    def pipeline(env: Environment) -> None:
        source = GeneratorSource({"n": lambda offsets: offsets.astype(np.int64)}, count=20_000, splits=4)
        env.from_source(source, uid="numbers").exchange("blocking").rebalance().filter(lambda row: True).uid(
            "through"
        ).sink_to(sink, uid="out")

    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=2)
    assert result.outcome is Outcome.FINISHED, result.message
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        rows = result_dataframe(spark, str(tmp_path / "ck"), "test", "test", "numbers->through.0")
        assert rows.selectExpr("count(*)", "sum(n)", "min(n)", "max(n)").collect()[0][:] == (
            20_000,
            sum(range(20_000)),
            0,
            19_999,
        )
        with pytest.raises(NoSuchResult, match=r"there are: numbers->through\.0"):
            result_dataframe(spark, str(tmp_path / "ck"), "test", "test", "other->through.0")
    finally:
        spark.stop()
