"""For all tests: temporary folders in memory where there is one, and marks for what takes long."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings

settings.register_profile(
    "engine", deadline=None
)  # how long an example takes says more of the machine than of the code
settings.load_profile("engine")

MEMORY = Path("/dev/shm")
NEEDED_BYTES = 1 << 30


def _has_room(folder: Path) -> bool:
    """Checkpoints are fsynced, which on a disk is most of what their tests would do."""
    if not os.access(folder, os.W_OK):
        return False
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize >= NEEDED_BYTES


if _has_room(MEMORY):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen: Counter[str] = Counter()
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if hasattr(item.module, "run_pipeline"):
            item.add_marker("jobs")
        if is_hypothesis_test(item.function):
            test = item.nodeid.partition("[")[0]
            seen[test] += 1
            if seen[test] > 1:
                item.add_marker("thorough")
