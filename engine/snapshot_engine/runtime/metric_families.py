"""How the driver's metrics are made: with one prefix, the label `streamingjob`, and one set of buckets.

Labels besides: `vertex` or `region` where it helps; both are bounded (see `metric_labels`). Never `job` or `namespace`,
which the scraper sets. What is counted is there from the start, with zero: Prometheus sees no increase in a series that
begins with one. Counters start anew with each driver, as Prometheus expects.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800)
"""From a synchronous part of a millisecond to a checkpoint that takes its half hour."""
PREFIX = "streamingjob_"

# When each counter began would be as many series again, and Prometheus makes nothing of it.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Families:
    def __init__(self, job: str, registry: CollectorRegistry) -> None:
        self.job = job
        self._registry = registry

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, text, ["streamingjob", *labels], registry=self._registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(PREFIX + name, text, ["streamingjob", *labels], registry=self._registry)

    def histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(PREFIX + name, text, ["streamingjob", *labels], buckets=SECONDS, registry=self._registry)
