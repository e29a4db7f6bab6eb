"""The examples with loops, run to their end and checked against a library or against themselves."""

from __future__ import annotations

import asyncio
import importlib
import random
import sys
from pathlib import Path

import networkx
import numpy as np
import pyarrow.parquet as pq
import pytest

from snapshot_engine.testing import Outcome, RunningJob, kill_a_slot, run_pipeline

pytestmark = pytest.mark.jobs
EXAMPLES = Path(__file__).resolve().parents[4] / "examples"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    loaded = []

    def load(name: str):
        loaded.append(name)
        return importlib.import_module(name)

    yield load
    for name in loaded:
        del sys.modules[name]


def killing(times: int):
    """A job loses a slot now and then; what comes out must not show it."""
    choose = random.Random(3)

    async def kill(job: RunningJob) -> None:
        for _ in range(times):
            await asyncio.sleep(choose.uniform(0.3, 0.8))
            kill_a_slot(job, choose)

    return kill


def test_connected_components_are_those_that_networkx_finds(tmp_path: Path, example) -> None:
    components = example("connected_components")
    out = str(tmp_path / "out")
    result = run_pipeline(
        components.pipeline,
        storage=tmp_path / "ck",
        parallelism=2,
        args={"out": out, "count": 3_000, "vertices": 4_000},
        meanwhile=killing(2),
    )
    assert result.outcome is Outcome.FINISHED
    edges = pq.read_table(f"{out}/edges")
    assert edges.num_rows == 3_000
    graph = networkx.Graph(zip(edges["a"].to_pylist(), edges["b"].to_pylist(), strict=True))
    expected = {vertex: min(group) for group in networkx.connected_components(graph) for vertex in group}
    assert components.components(out) == expected
    assert len(set(expected.values())) > 100  # many components, and one that takes many turns
    assert components.draw(out).stat().st_size > 10_000


def test_online_training_learns_the_line_and_counts_every_gradient_once(tmp_path: Path, example) -> None:
    training = example("online_training")
    out = str(tmp_path / "out")
    result = run_pipeline(
        training.pipeline,
        storage=tmp_path / "ck",
        parallelism=2,
        args={"out": out, "count": 32_000, "rate": 10_000},
        meanwhile=killing(2),
    )
    assert result.outcome is Outcome.FINISHED
    steps = pq.read_table(out).sort_by("step")
    assert steps["step"].to_pylist() == list(range(1, 32_000 // training.BATCH + 1))
    loss = steps["loss"].to_numpy()
    assert np.mean(loss[-50:]) < 0.3 * np.mean(loss[:5])
    learned = np.array(steps["weights"][-1].as_py())
    points = np.column_stack([np.ones(2_000), np.random.default_rng(5).uniform(-2, 2, (2_000, 2))])
    right = np.mean((points @ learned > 0) == (points @ training.TRUTH > 0))
    assert right > 0.97
    assert training.draw(out).stat().st_size > 10_000
