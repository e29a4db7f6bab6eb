"""Debian's Prometheus and promtool: taken from the PATH, or downloaded once into the cluster's cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from localcluster import tools
from localcluster.errors import ClusterError
from localcluster.settings import Settings
from monitoring.local_prometheus import PrometheusServer


def tool(name: str) -> Path:
    try:
        return tools.provide(name, Settings.from_environment().paths, print)
    except ClusterError as error:
        pytest.fail(f"{name} is needed and cannot be had: {error}. On Debian: apt-get install prometheus")


@pytest.fixture(scope="session")
def promtool() -> Path:
    return tool("promtool")


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[PrometheusServer]:
    server = PrometheusServer(tmp_path / "prometheus", tool("prometheus"))
    yield server
    server.stop()
