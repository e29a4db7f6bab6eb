"""Spark's Python worker daemon, with everything a slot needs already imported.

Workers are forked from this process, so a slot that has to be started anew after a kill is there in milliseconds
instead of after a second of imports. Nothing is *run* here: the pools of threads that Arrow and Polars work with are
made at the first call, and a pool that was made before a fork has no threads after it.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

# One slot is one core: libraries must not start a pool of threads each.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(variable, "1")


def preload() -> None:
    """Import all, and leave none of it for the garbage collector to look at: going through these hundred thousand
    objects, which are never garbage, took slots a fifth of a second each time, and a sixth of all their time."""
    import contextlib
    import gc
    import importlib

    import pyarrow as pa

    with contextlib.suppress(ImportError):
        import pandas  # noqa: F401 (Arrow imports it at its first conversion, which would be in a slot's first batch)

    import polars  # noqa: F401 (every expression that a job sends along needs it)

    import snapshot_engine.kernels as kernels

    for module in _what_slots_need():
        importlib.import_module(module)
    pa.set_cpu_count(1)
    kernels.preload()
    _touch_what_loads_at_its_first_use()
    gc.collect()
    gc.freeze()


def _touch_what_loads_at_its_first_use() -> None:
    """Signing and naming a host: the first thing each slot does is to prove itself to the JobMaster."""
    import encodings.idna  # noqa: F401
    import hashlib
    import hmac

    hmac.digest(b"", b"", hashlib.sha256)


def _what_slots_need() -> list[str]:
    """The API, the slot, and every operator and connector: which of them a job has is known only when it comes. What
    needs a library that is not installed (`kafka`) imports it when it is used."""
    import pkgutil

    from snapshot_engine import connectors, operators, state

    parts = [
        f"{package.__name__}.{found.name}"
        for package in (state, operators, connectors)
        for found in pkgutil.iter_modules(package.__path__)
    ]
    return ["snapshot_engine.api", "snapshot_engine.runtime.slot", *parts]


def leave_out_archives() -> None:
    """Spark puts `pyspark.zip` and a jar of its own before the package that is installed. Python takes both for
    archives of modules, and every worker would read their tables of contents anew, ten thousand names, which is a third
    of a second of each restart. A reader of one that is there already would do the same."""
    archives = [place for place in sys.path if place.endswith((".zip", ".jar"))]
    folders = [place for place in sys.path if place not in archives]
    if all(PathFinder.find_spec(package, folders) for package in ("pyspark", "py4j")):
        for place in [known for known in sys.path_importer_cache if known.startswith(tuple(archives))]:
            del sys.path_importer_cache[place]
        sys.path[:] = folders


def preload_task() -> None:
    """The module of the task's own function. What it needs of the wire types alone is a tenth of a second."""
    import snapshot_engine.runtime.spark  # noqa: F401


if __name__ == "__main__":
    leave_out_archives()
    import pyspark.worker  # noqa: F401 (the daemon leaves it to each worker)
    from pyspark.daemon import manager

    preload_task()
    preload()
    manager()
