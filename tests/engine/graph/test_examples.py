"""Every example's manifest is valid and its pipeline can be planned."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from snapshot_engine.graph.job_plan import plan
from snapshot_engine.graph.plan_text import plan_as_text
from snapshot_engine.graph.plan_view import view_of
from snapshot_engine.wire import load_manifest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
MANIFESTS = sorted(EXAMPLES.glob("*.yaml"))


@pytest.fixture(autouse=True)
def forget_the_examples(monkeypatch, tmp_path):
    """Their sinks would make their folders where the test runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)
    yield
    for name in set(sys.modules) - known:
        if str(EXAMPLES) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]


def planned(name):
    manifest = EXAMPLES / f"{name}.yaml"
    return plan(load_manifest(manifest), folder=manifest.parent)


def test_there_are_examples():
    assert {"first_job", "orders_by_city", "unpaid_orders"} <= {manifest.stem for manifest in MANIFESTS}


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_an_example_is_planned_without_warnings(manifest):
    graph = plan(load_manifest(manifest), folder=manifest.parent)
    assert graph.warnings == ()
    assert str(EXAMPLES.name) in str(next(iter(graph.vertices.values())).operators[0].location)
    assert plan_as_text(view_of(graph)).startswith(f"job {graph.name}:")


def test_the_first_job_is_short():
    lines = (EXAMPLES / "first_job.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 20


def test_the_join_brings_both_sources_into_one_region():
    view = view_of(planned("unpaid_orders"))
    assert [group.vertices for group in view.groups] == [
        ("orders", "payments", "orders-with-payments", "unpaid-by-city")
    ]
