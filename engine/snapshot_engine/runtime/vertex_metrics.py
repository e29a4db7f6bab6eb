"""The metrics of vertices, from what their subtasks say with their heartbeats, summed up when somebody asks."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from snapshot_engine.runtime.metric_families import PREFIX
from snapshot_engine.runtime.metric_labels import MetricLabels
from snapshot_engine.runtime.vertex_figures import Totals, VertexFigures


class _Family(NamedTuple):
    name: str
    text: str
    figure: str


_COUNTERS = (
    _Family("records_in", "Records that came in", "rows_in"),
    _Family("records_out", "Records that went out", "rows_out"),
    _Family("received_bytes", "Bytes that came in", "bytes_in"),
    _Family("sent_bytes", "Bytes that went out", "bytes_out"),
    _Family("busy_seconds", "Time that subtasks spent at work", "busy"),
    _Family("backpressured_seconds", "Time that subtasks waited for room downstream, or for slower sources", "blocked"),
    _Family("idle_seconds", "Time that subtasks spent waiting for input", "idle"),
    _Family("late_rows", "Rows that came too late, and were dropped or sent to the late output", "late_rows"),
)
_GAUGES = (_Family("source_lag_records", "Records that wait to be read, where the source can tell", "lag"),)
_GAUGES_FROM_ZERO = (  # a vertex that has nothing of the kind has nothing of it
    _Family("state_keys", "Keys in state", "state_keys"),
    _Family("state_bytes", "Bytes of state in memory", "state_bytes"),
    _Family("exchange_kept_bytes", "What exchanges keep for a replay", "kept_bytes"),
    _Family("exchange_budget_bytes", "What exchanges may keep", "kept_budget"),
    _Family("loop_log_bytes", "Records in flight in loops that pending checkpoints log", "loop_log_bytes"),
    _Family("loop_queue_bytes", "Records that have come back to a loop's head and wait", "loop_queue_bytes"),
)
_LABELS = ("streamingjob", "vertex")


class VertexMetrics(Collector):
    def __init__(
        self, job: str, labels: MetricLabels, figures: VertexFigures, clock: Callable[[], float] = time.time
    ) -> None:
        self._job = job
        self._labels = labels
        self._figures = figures
        self._clock = clock

    def describe(self) -> Iterator[Metric]:
        return self._families([])

    def collect(self) -> Iterator[Metric]:
        return self._families(list(self._figures.totals().items()))

    def _families(self, totals: list[tuple[str, Totals]]) -> Iterator[Metric]:
        for family in _COUNTERS:
            counter = CounterMetricFamily(PREFIX + family.name, family.text, labels=_LABELS)
            counted = ((vertex, known.counted[family.figure]) for vertex, known in totals)
            yield self._filled(counter, self._sums(counted))
        for family in _GAUGES:
            gauge = GaugeMetricFamily(PREFIX + family.name, family.text, labels=_LABELS)
            known_ones = ((vertex, known.summed.get(family.figure)) for vertex, known in totals)
            yield self._filled(gauge, self._sums(known_ones))
        for family in _GAUGES_FROM_ZERO:
            gauge = GaugeMetricFamily(PREFIX + family.name, family.text, labels=_LABELS)
            at_least_zero = ((vertex, known.summed.get(family.figure, 0.0)) for vertex, known in totals)
            yield self._filled(gauge, self._sums(at_least_zero))
        yield self._fullest(totals)
        yield self._subtasks(totals)
        yield from self._watermarks(totals)

    def _sums(self, values: Iterable[tuple[str, float | None]]) -> Mapping[str, float]:
        sums: dict[str, float] = defaultdict(float)
        for vertex, value in values:
            if value is not None:
                sums[self._labels.vertex(vertex)] += value
        return sums

    def _fullest(self, totals: list[tuple[str, Totals]]) -> Metric:
        family = GaugeMetricFamily(
            PREFIX + "exchange_fullest_ratio",
            "How much of its budget the subtask with the fullest exchange keeps, from 0 to 1",
            labels=_LABELS,
        )
        fullest: dict[str, float] = {}
        for vertex, known in totals:
            label = self._labels.vertex(vertex)
            fullest[label] = max(fullest.get(label, 0.0), known.fullest)
        return self._filled(family, fullest)

    def _subtasks(self, totals: list[tuple[str, Totals]]) -> Metric:
        family = GaugeMetricFamily(PREFIX + "subtasks", "Parallelism of the vertex", labels=_LABELS)
        vertices = self._figures.graph.vertices
        return self._filled(family, self._sums((uid, vertices[uid].parallelism) for uid, _ in totals))

    def _watermarks(self, totals: list[tuple[str, Totals]]) -> Iterator[Metric]:
        slowest: dict[str, float] = {}
        for vertex, known in totals:
            if known.watermark is not None:
                label = self._labels.vertex(vertex)
                slowest[label] = min(slowest.get(label, float("inf")), known.watermark / 1000)
        timestamp = GaugeMetricFamily(
            PREFIX + "watermark_timestamp_seconds", "Event time of the slowest subtask", labels=_LABELS
        )
        yield self._filled(timestamp, slowest)
        lag = GaugeMetricFamily(
            PREFIX + "watermark_lag_seconds", "How far event time is behind the driver's clock", labels=_LABELS
        )
        now = self._clock()
        yield self._filled(lag, {vertex: now - seconds for vertex, seconds in slowest.items()})

    def _filled(
        self, family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[str, float]
    ) -> CounterMetricFamily | GaugeMetricFamily:
        for label, value in values.items():
            family.add_metric([self._job, label], value)
        return family
