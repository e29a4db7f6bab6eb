"""The cluster fixtures, for every test below this folder: see docs/developers/cluster.md."""

from pathlib import Path

import pytest
from localcluster.cluster import LocalCluster
from localcluster.settings import Names, Network, Paths, Ports, Settings
from localcluster.testing.fixtures import *  # noqa: F403  fixtures are found by their names here

COLD_START_SECONDS = 1800
"""The first test of a machine builds Kubernetes and the image."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(COLD_START_SECONDS))


@pytest.fixture
def separate_cluster(cluster, tmp_path):
    """A cluster beside the one that other tests use: other names, addresses, ports, and a cache of its own.

    Not yet up; it shares what was built and downloaded.
    """
    if cluster.local is None:
        pytest.skip("only our own cluster can be taken down")
    shared = cluster.local.settings.paths
    paths = Paths(tmp_path / "cache")
    paths.cache.mkdir()
    for folder in (shared.programs, shared.debian):
        (paths.cache / folder.name).symlink_to(folder)
    settings = Settings(Names("sjbeside"), paths, Network("10.214"), Ports.starting_at(17443), node_grace_seconds=50)
    beside = LocalCluster(settings, print)
    yield beside
    beside.down()
