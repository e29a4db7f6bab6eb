"""docs/metrics.md: the tables are made from the code, so that they cannot drift."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_graph import JobGraph
from snapshot_engine.runtime.job_metrics import JobMetrics
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.runtime.metric_labels import MetricLabels
from snapshot_engine.runtime.vertex_figures import VertexFigures
from snapshot_engine.runtime.vertex_metrics import VertexMetrics
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.pieces import StorageConfig
from streamingjob_operator.metrics import OperatorMetrics

BEGIN, END = "<!-- begin {} -->", "<!-- end {} -->"


def driver_registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    graph = ExecutionGraph(JobGraph("job", {}, ()))
    settings = JobSettings("job", "default", "uid", StorageConfig("unused", Layout("default", "job"), {}))
    JobMetrics(settings, graph, registry, generation=1)
    registry.register(VertexMetrics("job", MetricLabels(graph), VertexFigures(graph.graph)))
    return registry


def operator_registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    OperatorMetrics(registry)
    return registry


def table(registry: CollectorRegistry) -> str:
    rows = sorted(_row(metric, labels) for metric, labels in families(registry))
    return "\n".join(["| metric | type | labels | what it is |", "|---|---|---|---|", *rows])


def families(registry: CollectorRegistry) -> list[tuple[Metric, list[str]]]:
    """Every family with its labels, whether it has samples yet or not."""
    found = []
    for collector in registry._collector_to_names:
        for metric in collector.describe():  # type: ignore[attr-defined]
            labels = getattr(collector, "_labelnames", None) or getattr(metric, "_labelnames", ())
            found.append((metric, list(labels)))
    return found


def _row(metric: Metric, labels: list[str]) -> str:
    name = metric.name + ("_total" if metric.type == "counter" else "")
    return f"| `{name}` | {metric.type} | {', '.join(f'`{label}`' for label in labels)} | {metric.documentation} |"


def filled_in(page: str) -> str:
    """The page with its tables made anew."""
    for name, registry in (("driver", driver_registry()), ("operator", operator_registry())):
        begin, end = BEGIN.format(name), END.format(name)
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n{table(registry)}\n{end}{after}"
    return page


def write(path: Path) -> None:
    path.write_text(filled_in(path.read_text()))
