"""The example on an embedded Spark, scraped by a real Prometheus: every query of its dashboard finds data."""

from __future__ import annotations

import asyncio
import importlib.util
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from monitoring.local_prometheus import PrometheusServer
from monitoring.shipped import (
    ROOT,
    alerts,
    annotation_queries,
    dashboards,
    metrics_in,
    panel_queries,
    showing_every_comparison,
)

from snapshot_engine.runtime.spark import SparkLauncher, embedded_context, ship_by_value
from snapshot_engine.testing import Outcome, RunningJob, kill_a_slot, run_pipeline

pytestmark = pytest.mark.spark

MORE_THAN_THE_TEST_NEEDS = 1_000_000_000
PATIENCE_SECONDS = 120.0
NO_RESTART = "streamingjob_region_restarts_total == 0"
"""An increase is seen only by who has seen what was there before."""
VALUES = {"$namespace": "test", "$streamingjob": "first-job", "$__rate_interval": "1m"}


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("first_job", ROOT / "examples/first_job.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["first_job"] = module
    spec.loader.exec_module(module)
    ship_by_value(module)
    return module


@pytest.fixture(scope="module")
def spark(example: ModuleType) -> Iterator[SparkLauncher]:
    launcher = SparkLauncher(embedded_context("test", 2, {}))
    yield launcher
    launcher.close()


def filled_in(expr: str) -> str:
    for variable, value in VALUES.items():
        expr = expr.replace(variable, value)
    return expr


def without_data(prometheus: PrometheusServer, queries: dict[str, str]) -> dict[str, str]:
    return {what: expr for what, expr in queries.items() if not prometheus.query(filled_in(expr))}


def what_must_have_data() -> dict[str, str]:
    board = dashboards()["streamingjob"]
    queries = {
        f"panel {title!r}, query {number}": expr
        for title, exprs in panel_queries(board).items()
        for number, expr in enumerate(exprs)
    }
    happened = {name: expr for name, expr in annotation_queries(board).items() if name != "Failed checkpoints"}
    queries |= {f"annotation {name!r}": expr for name, expr in happened.items()}
    for rule in alerts():
        if not any(metric.startswith("streamingjob_operator_") for metric in metrics_in(rule["expr"])):
            queries[f"alert {rule['alert']}"] = showing_every_comparison(rule["expr"])
    return queries


def test_every_query_of_the_jobs_dashboard_and_of_alerts_about_drivers_has_data(
    tmp_path: Path, example: ModuleType, spark: SparkLauncher, prometheus: PrometheusServer
) -> None:
    empty: dict[str, str] = {"nothing was asked": ""}

    async def watch(job: RunningJob) -> None:
        prometheus.start({f"127.0.0.1:{job.api.port}": {"namespace": "test"}})
        deadline = time.monotonic() + PATIENCE_SECONDS
        while job.board.status.checkpoint.completed < 3 or not await asyncio.to_thread(prometheus.query, NO_RESTART):
            assert time.monotonic() < deadline, "Prometheus has not seen the job before its first restart"
            await asyncio.sleep(0.1)
        kill_a_slot(job, random.Random(1))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while empty and time.monotonic() < deadline:
            await asyncio.sleep(2.0)
            found = await asyncio.to_thread(without_data, prometheus, what_must_have_data())
            empty.clear()
            empty.update(found)
        assert {rule["name"] for rule in prometheus.alerts()} == {rule["alert"] for rule in alerts()}
        assert [rule for rule in prometheus.alerts() if rule["health"] == "err"] == []
        job.master.stop()

    result = run_pipeline(
        example.pipeline,
        job="first-job",
        args={"out": str(tmp_path / "out"), "rows": MORE_THAN_THE_TEST_NEEDS},
        storage=tmp_path / "ck",
        parallelism=2,
        interval=0.5,
        launcher=spark,
        meanwhile=watch,
    )
    assert result.outcome is Outcome.STOPPED
    assert empty == {}
