"""`python -m snapshot_engine.kernels`: compile every kernel into numba's cache, at set-up or in an image."""

from __future__ import annotations

import time

from snapshot_engine.kernels.compiled import preload


def main() -> None:
    started = time.perf_counter()
    count = preload()
    print(f"{count} kernels ready in {time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
