"""Spark's Python worker daemon, with everything a slot needs already imported.

Workers are forked from this process, so a slot that has to be started anew after a kill is there in milliseconds
instead of after a second of imports. Polars is left out: it starts threads when it is imported, which do not survive a
fork.
"""

from __future__ import annotations

import os

# One slot is one core: libraries must not start a pool of threads each.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(variable, "1")


def preload() -> None:
    """Import all, and leave none of it for the garbage collector to look at: going through these hundred thousand
    objects, which are never garbage, took slots a fifth of a second each time, and a sixth of all their time."""
    import contextlib
    import gc

    import pyarrow as pa

    with contextlib.suppress(ImportError):
        import pandas  # noqa: F401 (Arrow imports it at its first conversion, which would be in a slot's first batch)

    import snapshot_engine.api
    import snapshot_engine.kernels as kernels
    import snapshot_engine.runtime.slot  # noqa: F401 (imported for the workers that are forked from here)

    pa.set_cpu_count(1)
    kernels.preload()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    preload()
    manager()
