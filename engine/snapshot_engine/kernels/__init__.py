"""Compiled loops over Arrow buffers: hashing, partitioning, hash tables, accumulators.

Nothing here keeps state or knows of operators: arrays in, arrays out. Every loop is compiled by numba for the
types it declares, cached on disk, and refuses any other type: a running job never stops to compile something.
"""

from __future__ import annotations

from snapshot_engine.kernels.compiled import preload

__all__ = ["preload"]
