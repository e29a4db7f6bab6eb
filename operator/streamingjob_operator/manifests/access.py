"""The driver's service account and its rights: what Spark's Kubernetes backend needs for executors, and no more."""

from typing import Any

from streamingjob_operator import naming
from streamingjob_operator.manifests.ownership import Owner

# The operator needs each of these itself, since Kubernetes lets nobody give rights that they do not have.
DRIVER_RULES: list[dict[str, Any]] = [
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete", "deletecollection"],
    },
    {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "verbs": ["get", "list", "create", "delete", "deletecollection"],
    },
]


def build_service_account(owner: Owner) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": owner.metadata(naming.service_account_name(owner.name)),
    }


def build_role(owner: Owner) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": owner.metadata(naming.service_account_name(owner.name)),
        "rules": DRIVER_RULES,
    }


def build_role_binding(owner: Owner) -> dict[str, Any]:
    name = naming.service_account_name(owner.name)
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": owner.metadata(name),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": owner.namespace}],
    }
