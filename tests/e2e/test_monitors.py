"""The chart's monitors, as helm renders them, beside the pods that they are to find; and before a real API server.

Neither a node nor an installed operator is needed.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from localcluster import programs
from localcluster.settings import Settings
from localcluster.testing.kubectl import Kubectl
from localcluster.testing.namespace import Namespace
from monitoring.shipped import ROOT, alerts, dashboards

from snapshot_engine.wire.spec import StreamingJobSpec
from streamingjob_operator.manifests.driver_pod import build_cleaner_pod, build_driver_pod, build_planner_pod
from streamingjob_operator.manifests.executor_template import build_executor_template
from streamingjob_operator.manifests.ownership import Owner
from streamingjob_operator.manifests.stored_spec import resolve_spec
from streamingjob_operator.resource import DriverRecord

CHART = ROOT / "charts/streamingjob-operator"
PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
ALL = {"metrics.podMonitor.enabled": "true", "alerts.enabled": "true", "dashboards.enabled": "true"}


@pytest.fixture
def helm(tool: Callable[[str], Path]) -> Path:
    return tool("helm")


def rendered(helm: Path, release: str = "x", **values: str) -> list[dict[str, Any]]:
    settings = [word for name, value in (ALL | values).items() for word in ("--set", f"{name}={value}")]
    command = [str(helm), "template", release, str(CHART), "--namespace", "ops", "--kube-version", "1.35.0", *settings]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [document for document in documents if document["kind"] == kind]


def pods_of_a_job() -> dict[str, dict[str, Any]]:
    owner = Owner("orders", "shop", "uid-1")
    spec = {"pipeline": {"entrypoint": "a:b"}, "checkpoint": {"storage": {"uri": "s3://b/p"}}}
    stored = resolve_spec(StreamingJobSpec.model_validate(spec), "abc0123456", "operator-image:1")
    record = DriverRecord.model_validate(
        {"generation": 1, "pod_name": "d", "spec_hash": "abc0123456", "launched_at": "2026-01-01T00:00:00Z"}
    )
    return {
        "driver": build_driver_pod(owner, stored, record),
        "planner": build_planner_pod(owner, stored),
        "cleaner": build_cleaner_pod(owner, stored),
        "executor": build_executor_template(owner, stored.spec),
    }


def pods_of_the_chart(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = {d["metadata"]["name"]: d for d in of_kind(documents, "Pod")}
    [deployment] = of_kind(documents, "Deployment")
    return found | {"operator": deployment["spec"]["template"]}


def scraped(monitor: dict[str, Any], pods: dict[str, dict[str, Any]]) -> dict[str, int]:
    """The pods that a monitor selects and that have its port, as a Prometheus would find them."""
    wanted = monitor["spec"]["selector"]["matchLabels"]
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint.get("path", "/metrics") == "/metrics"
    found = {}
    for name, pod in pods.items():
        if wanted.items() <= pod["metadata"].get("labels", {}).items():
            ports = [p for container in pod["spec"]["containers"] for p in container.get("ports", ())]
            [found[name]] = [port["containerPort"] for port in ports if port["name"] == endpoint["port"]]
    return found


@pytest.mark.parametrize(
    "release", ["x", "streamingjob-operator", "a-release-with-a-name-that-is-as-long-as-helm-allows"]
)
def test_the_monitors_find_the_operator_and_the_drivers_and_nothing_else(helm: Path, release: str) -> None:
    documents = rendered(helm, release)
    operators, drivers = of_kind(documents, "PodMonitor")
    pods = pods_of_the_chart(documents) | pods_of_a_job()
    assert scraped(operators, pods) == {"operator": 8080}
    assert scraped(drivers, pods) == {"driver": 8081}
    assert "namespaceSelector" not in operators["spec"] and operators["metadata"]["namespace"] == "ops"
    assert drivers["spec"]["namespaceSelector"] == {"any": True}


def test_with_watched_namespaces_only_their_drivers_are_found(helm: Path) -> None:
    _, drivers = of_kind(rendered(helm, watchNamespaces="{a,b}"), "PodMonitor")
    assert drivers["spec"]["namespaceSelector"] == {"matchNames": ["a", "b"]}


def test_annotations_name_the_same_ports(helm: Path) -> None:
    documents = rendered(helm)
    for pod, port in (
        (pods_of_the_chart(documents)["operator"], "8080"),
        (pods_of_a_job()["driver"], "8081"),
    ):
        said = pod["metadata"]["annotations"]
        assert (said["prometheus.io/scrape"], said["prometheus.io/port"]) == ("true", port)


def test_the_rule_object_holds_the_alerts_with_your_links(helm: Path) -> None:
    [rule] = of_kind(rendered(helm, **{"alerts.runbooks": "https://wiki/runbooks"}), "PrometheusRule")
    [group] = rule["spec"]["groups"]
    assert [each["expr"] for each in group["rules"]] == [each["expr"] for each in alerts()]
    assert {each["annotations"]["runbook_url"].partition("#")[0] for each in group["rules"]} == {
        "https://wiki/runbooks"
    }


def test_the_sidecar_finds_both_dashboards_whole(helm: Path) -> None:
    maps = [d for d in of_kind(rendered(helm), "ConfigMap") if d["metadata"]["labels"].get("grafana_dashboard") == "1"]
    contents = [json.loads(text) for each in maps for text in each["data"].values()]
    assert sorted(board["uid"] for board in contents) == sorted(board["uid"] for board in dashboards().values())


@pytest.fixture(scope="module")
def their_crds() -> Path:
    """The Prometheus operator's own definitions of PodMonitor and PrometheusRule, out of its Go module."""
    environment = {**programs.build_environment(Settings.from_environment().paths), "GOFLAGS": "-modcacherw"}
    command = [programs.require_go(), "mod", "download", "-json", PROMETHEUS_OPERATOR]
    fetched = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return Path(json.loads(fetched.stdout)["Dir"]) / "example/prometheus-operator-crd"


def test_the_api_server_takes_monitors_and_rules(
    helm: Path, their_crds: Path, api_server: Kubectl, api_namespace: Namespace
) -> None:
    kinds = {"PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules"}
    for plural in kinds.values():
        crd = str(their_crds / f"monitoring.coreos.com_{plural}.yaml")
        api_server("apply", "--server-side", "-f", crd)
        api_server("wait", "--for=condition=Established", "--timeout=30s", "-f", crd)
    documents = [d for d in rendered(helm) if d["kind"] in kinds]
    assert len(documents) == 3
    for document in documents:
        document["metadata"]["namespace"] = api_namespace.name
        api_server("create", "--validate=strict", "-f", "-", stdin=json.dumps(document))
