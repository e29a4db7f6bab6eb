"""The cluster's DNS: CoreDNS as a pod behind the address that every kubelet tells its pods."""

from __future__ import annotations

from typing import Any

from localcluster.settings import CLUSTER_DOMAIN, COREDNS_IMAGE, Network

NAMESPACE, NAME = "kube-system", "coredns"
LABELS = {"k8s-app": "kube-dns"}

# Names outside the cluster are refused at once: pods have no way out of it.
COREFILE = f"""\
.:53 {{
    errors
    health
    ready
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
        pods insecure
        ttl 2
    }}
    prometheus :9153
    loadbalance
}}
"""


def manifests(network: Network) -> dict[str, Any]:
    items = [
        service_account(),
        cluster_role(),
        cluster_role_binding(),
        config_map(),
        deployment(),
        service(network),
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def metadata(name: str = NAME, namespace: str | None = NAMESPACE) -> dict[str, Any]:
    return {"name": name, "labels": LABELS, **({"namespace": namespace} if namespace else {})}


def service_account() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata()}


def cluster_role() -> dict[str, Any]:
    watch = ["list", "watch"]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": metadata(f"system:{NAME}", None),
        "rules": [
            {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": watch},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": watch},
        ],
    }


def cluster_role_binding() -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata(f"system:{NAME}", None),
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": f"system:{NAME}"},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    }


def config_map() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(), "data": {"Corefile": COREFILE}}


def deployment() -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": pod_spec()},
        },
    }


def pod_spec() -> dict[str, Any]:
    return {
        "serviceAccountName": NAME,
        "dnsPolicy": "Default",
        "priorityClassName": "system-cluster-critical",
        # The second node is the one that tests take down.
        "nodeSelector": {"kubernetes.io/hostname": "node-1"},
        "volumes": [{"name": "config", "configMap": {"name": NAME}}],
        "containers": [
            {
                "name": NAME,
                "image": COREDNS_IMAGE,
                "imagePullPolicy": "Never",
                "args": ["-conf", "/etc/coredns/Corefile"],
                "ports": [
                    {"name": "dns", "containerPort": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
                ],
                "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
                "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
                "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "initialDelaySeconds": 60},
                "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
            }
        ],
    }


def service(network: Network) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata("kube-dns"),
        "spec": {
            "clusterIP": network.dns_service,
            "selector": LABELS,
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP"},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
            ],
        },
    }
