"""Pytest fixtures: import them into a conftest.py (`from localcluster.testing.fixtures import *`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from localcluster.api_server import FOLDER_PREFIX, api_server_in
from localcluster.cluster import LocalCluster
from localcluster.node import Node
from localcluster.settings import REPOSITORY, Settings
from localcluster.testing.chosen_cluster import ChosenCluster, chosen_cluster
from localcluster.testing.evidence import folder_name, keep_evidence
from localcluster.testing.kubectl import Kubectl, find_kubectl
from localcluster.testing.namespace import Namespace, name_for

__all__ = [
    "api_namespace",
    "api_server",
    "cluster",
    "namespace",
    "project_image",
    "pytest_runtest_makereport",
    "second_node",
    "tool",
]

EVIDENCE = REPOSITORY / "out" / "cluster-failures"


@pytest.fixture(scope="session")
def cluster() -> Iterator[ChosenCluster]:
    """A real Kubernetes: KUBECONFIG's, a kind or minikube context's, or one that is brought up for the tests."""
    with chosen_cluster(Settings.from_environment(), print) as chosen:
        yield chosen


@pytest.fixture(scope="session")
def project_image(cluster: ChosenCluster) -> str:
    """The name of the project's image, built from the tree as it is and present on every node."""
    return cluster.image()


@pytest.fixture
def namespace(cluster: ChosenCluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace for this test alone. If the test fails, its logs and events are kept as files."""
    created = Namespace(cluster.kubectl, name_for(request.node.name), cluster.shared_folders)
    created.create()
    yield created
    created.leave()


@pytest.fixture
def second_node(cluster: ChosenCluster) -> Iterator[Node]:
    """Another node, ready: `.kill()`, `.cut_link()`, `.mend_link()`; pods get there by `kubernetes.io/hostname`.

    One test has it at a time, of whichever run, and leaves it as it was.
    """
    if cluster.local is None:
        pytest.skip("a node can be killed only in the cluster of `make cluster`")
    with cluster.local.lock("second-node-lock"):
        was_there = cluster.local.node(2).is_started()
        cluster.local.add_node(2)
        yield cluster.local.node(2)
        cluster.local.remove_node(2)
        if was_there:
            cluster.local.add_node(2)


@pytest.fixture(scope="session")
def tool() -> Callable[[str], Path]:
    """Where a program is that a test wants beside the cluster, provided if need be: `tool("helm")`."""
    return LocalCluster(Settings.from_environment(), print).tool


@pytest.fixture(scope="session")
def api_server() -> Iterator[Kubectl]:
    """etcd and the API server alone, as a kubectl: `.kubeconfig` for other clients. Nobody runs pods there."""
    settings = Settings.from_environment()
    server = api_server_in(settings.paths.cache / f"{FOLDER_PREFIX}{os.getpid()}", settings, print)
    try:
        server.start()
        yield Kubectl(find_kubectl(settings.paths), server.kubeconfig)
    finally:
        server.stop()


@pytest.fixture
def api_namespace(api_server: Kubectl, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace in the API server that stands alone."""
    created = Namespace(api_server, name_for(request.node.name))
    created.create()
    yield created
    created.leave()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    used = getattr(item, "funcargs", {}).get("namespace")
    if report.failed and report.when in ("setup", "call") and isinstance(used, Namespace):
        report.sections.append(("evidence", keep_evidence(used, EVIDENCE / folder_name(item.nodeid))))
    return report
