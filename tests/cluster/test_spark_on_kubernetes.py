"""Spark's own Kubernetes backend on this cluster, with the project's image for driver and executors."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

PROGRAM = Path(__file__).with_name("spark_barrier_driver.py")
LABELS = {"app": "driver"}


def service_account(namespace):
    """What a driver in client mode must be allowed: its executors' pods and what goes with them."""
    group = "rbac.authorization.k8s.io"
    resources = ["pods", "services", "configmaps", "persistentvolumeclaims"]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "driver"}},
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": {"name": "driver"},
            "rules": [{"apiGroups": [""], "resources": resources, "verbs": ["*"]}],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "driver"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "driver"},
            "subjects": [{"kind": "ServiceAccount", "name": "driver", "namespace": namespace.name}],
        },
    ]


def headless_service():
    """Executors reach the driver by this name before it is ready."""
    spec = {"clusterIP": "None", "selector": LABELS, "publishNotReadyAddresses": True, "ports": [{"port": 7078}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "driver"}, "spec": spec}


def driver_pod(namespace, image):
    environment = {
        "IMAGE": image,
        "DRIVER_HOST": f"driver.{namespace.name}.svc",
        "POD_NAMESPACE": namespace.name,
        "POD_NAME": "driver",
    }
    container = {
        "name": "driver",
        "image": image,
        "args": ["python", "/program/driver.py"],
        "env": [
            *({"name": name, "value": value} for name, value in environment.items()),
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "volumeMounts": [{"name": "program", "mountPath": "/program"}],
        "resources": {"requests": {"cpu": "100m"}},
    }
    spec = {
        "serviceAccountName": "driver",
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "program", "configMap": {"name": "program"}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "driver", "labels": LABELS}, "spec": spec}


def test_a_driver_pod_gets_executor_pods_and_runs_a_barrier_job_across_them(namespace, project_image):
    program = {"driver.py": PROGRAM.read_text()}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "program"}, "data": program}
    namespace.apply(*service_account(namespace), headless_service(), config_map, driver_pod(namespace, project_image))

    def two_executors():
        pods = namespace.items("pods", "spark-role=executor")
        addresses = {pod["status"].get("podIP") for pod in pods}
        return pods if len(addresses - {None}) == 2 else None

    executors = namespace.wait_for("two executor pods with addresses", two_executors, seconds=300)
    assert {pod["metadata"]["ownerReferences"][0]["name"] for pod in executors} == {"driver"}

    namespace.wait_for_phase("driver", "Succeeded", seconds=300)
    line = next(line for line in namespace.logs("driver").splitlines() if line.startswith("RESULT "))
    result = json.loads(line.removeprefix("RESULT "))
    print(result)
    addresses = {pod["status"]["podIP"] for pod in executors}
    assert len(result["gathered"]) == 2
    for seen_by_one_task in result["gathered"]:
        assert {message.split("@")[0] for message in seen_by_one_task} == {"0", "1"}
        assert {message.split("@")[1] for message in seen_by_one_task} <= addresses
