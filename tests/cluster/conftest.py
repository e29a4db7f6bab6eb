"""The cluster fixtures, for every test below this folder: see docs/developers/cluster.md."""

from pathlib import Path

import pytest
from localcluster.testing.fixtures import *  # noqa: F403  fixtures are found by their names here

COLD_START_SECONDS = 1800
"""The first test of a machine builds Kubernetes and the image."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(COLD_START_SECONDS))
