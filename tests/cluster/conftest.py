"""The cluster fixtures, for every test below this folder: see docs/developers/cluster.md."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from localcluster.cluster import LocalCluster
from localcluster.locks import one_at_a_time
from localcluster.settings import REPOSITORY, Names, Network, Paths, Ports, Settings
from localcluster.testing.fixtures import *  # noqa: F403  fixtures are found by their names here

COLD_START_SECONDS = 1800
"""The first test of a machine builds Kubernetes and the image."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(COLD_START_SECONDS))


@pytest.fixture
def folder_on_disk():
    """Beside the cluster's own cache, for pytest's folders may lie where nodes cannot see them (/dev/shm)."""
    cache = Settings.from_environment().paths.cache
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="test-", dir=cache, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def command_environment(tmp_path):
    """For the command behind `make cluster`: nothing of this shell's chooses another cluster for it."""
    env = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return {**env, "HOME": str(tmp_path), "PYTHONPATH": str(REPOSITORY / "hack" / "cluster")}


@pytest.fixture
def separate_cluster(cluster):
    """A cluster beside the one that other tests use: other names, addresses, ports, and a cache of its own.

    Not yet up; it shares what was built and downloaded. One test of the machine has it at a time. Its folder is always
    the same, so that what a killed test left is found and ended by the next.
    """
    if cluster.local is None:
        pytest.skip("only our own cluster can be taken down")
    shared = cluster.local.settings.paths
    paths = Paths(shared.cache / "beside")
    settings = Settings(Names("sjbeside"), paths, Network("10.214"), Ports.starting_at(17443), node_grace_seconds=50)
    beside = LocalCluster(settings, print)
    with one_at_a_time(Path(tempfile.gettempdir()) / f"{settings.names.cluster}-lock", print):
        beside.down()
        shutil.rmtree(paths.cache, ignore_errors=True)
        paths.cache.mkdir()
        for folder in (shared.programs, shared.debian):
            (paths.cache / folder.name).symlink_to(folder)
        yield beside
        beside.down()
        shutil.rmtree(paths.cache, ignore_errors=True)
