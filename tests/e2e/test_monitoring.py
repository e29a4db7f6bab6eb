"""A real Prometheus scrapes operator and drivers as the pods' annotations say: every query of dashboards and
alerts finds data.

Debian's Prometheus does not know Kubernetes, so the test reads the annotations as one with discovery would, and gives
it the targets with the labels that discovery would set.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from localcluster.errors import ClusterError
from monitoring.local_prometheus import PrometheusServer
from monitoring.shipped import alerts, annotation_queries, dashboards, panel_queries, showing_every_comparison
from pipelines import KEYED

PATIENCE_SECONDS = 120
DID_NOT_HAPPEN = ("Failed checkpoints", "Drivers replaced")
"""Of what dashboards mark: they answer that it did not."""


@pytest.fixture
def prometheus(tmp_path: Path, tool: Callable[[str], Any]) -> Iterator[PrometheusServer]:
    server = PrometheusServer(tmp_path / "prometheus", Path(tool("prometheus")))
    yield server
    server.stop()


def annotated_targets(pods: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    found = {}
    for pod in pods:
        said = pod["metadata"].get("annotations", {})
        if said.get("prometheus.io/scrape") == "true" and pod["status"]["phase"] == "Running":
            assert said.get("prometheus.io/path", "/metrics") == "/metrics"
            address = f"{pod['status']['podIP']}:{said['prometheus.io/port']}"
            found[address] = {"namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"]}
    return found


def all_queries(namespace: str) -> dict[str, str]:
    values = {"$namespace": namespace, "$streamingjob": "orders", "$__rate_interval": "1m"}
    queries = {
        f"{board}: {title}: {number}": expr
        for board, content in dashboards().items()
        for title, exprs in panel_queries(content).items()
        for number, expr in enumerate(exprs)
    }
    queries |= {
        f"{board}: annotation {name}": showing_every_comparison(expr) if name in DID_NOT_HAPPEN else expr
        for board, content in dashboards().items()
        for name, expr in annotation_queries(content).items()
    }
    queries |= {rule["alert"]: showing_every_comparison(rule["expr"]) for rule in alerts()}
    pattern = re.compile("|".join(re.escape(variable) for variable in values))
    return {what: pattern.sub(lambda found: values[found.group()], expr) for what, expr in queries.items()}


def test_every_query_of_dashboards_and_alerts_finds_data_on_the_cluster(job, make_job, prometheus, delete_now):
    broken = make_job("broken")
    broken.apply("import nothing_of_that_name\n", count=1, rate=1, parallelism=1)
    broken.until("its failure", lambda s: s["phase"] == "Failed")
    job.apply(KEYED, count=10_000_000, rate=2_000, parallelism=2, executor={"instances": 2, "standby": 1})
    job.until_ready()
    job.until_checkpoint(3)
    targets = annotated_targets(job.namespace.items("pods"))
    assert len(targets) == 2, f"one operator and one driver say that they want to be scraped, not {targets}"
    prometheus.start(targets)
    job.namespace.wait_for("both targets to be scraped", lambda: prometheus.targets_up() == 2 or None, seconds=60)

    before = job.attempts()
    for pod in job.running("executor"):
        delete_now(pod)
        with contextlib.suppress(ClusterError):  # that was the standby
            job.until("a restart", lambda s: job.attempts() != before, seconds=20)
            break
    assert job.attempts() != before
    job.until_running()

    queries = all_queries(job.namespace.name)

    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := {what: expr for what, expr in queries.items() if not prometheus.query(expr)}:
        assert time.monotonic() < deadline, left
        time.sleep(2.0)
    print(f"{len(queries)} queries find data")
    rules = prometheus.alerts()
    assert {rule["name"] for rule in rules} == {rule["alert"] for rule in alerts()}
    assert all(rule["health"] == "ok" for rule in rules), rules
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == ["StreamingJobFailed"]
    print(prometheus.query("streamingjob_operator_pod_loss_recovery_seconds_sum"))
