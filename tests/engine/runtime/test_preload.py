"""What slots are forked from."""

import subprocess
import sys

_COUNT = """
import gc
from snapshot_engine.runtime.spark_daemon import preload
preload()
print(gc.get_freeze_count(), len(gc.get_objects()))
"""


def test_nothing_that_is_preloaded_is_looked_at_by_the_garbage_collector() -> None:
    """In a process of its own: everything that this one has imported would be frozen with it."""
    answer = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, text=True, check=True)
    frozen, watched = map(int, answer.stdout.split())
    assert frozen > 50_000
    assert watched < 5_000
