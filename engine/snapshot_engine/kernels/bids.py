"""Generated bids: one pass over the row numbers fills all columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from snapshot_engine.kernels.compiled import kernel, read, write
from snapshot_engine.kernels.mixing import mix

Words = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]

_HALF = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_SPREAD = np.uint64(0x9E3779B1)


@kernel(
    (
        read(types.uint64),
        types.uint64,
        types.uint64,
        types.uint64,
        types.uint64,
        write(types.int64),
        write(types.int64),
        write(types.int64),
    )
)
def fill_bids(
    offsets: Words,
    seed: int,
    keys: int,
    bidders: int,
    prices: int,
    auction: Integers,
    bidder: Integers,
    price: Integers,
) -> None:
    """Each uniform below its bound (under 2^32):

    the upper half of a row's bits is its key, the lower half the rest.
    """
    for i in range(len(offsets)):
        bits = mix(offsets[i] ^ seed)
        low = bits & _LOW_HALF
        auction[i] = ((bits >> _HALF) * keys) >> _HALF
        bidder[i] = (((low * _SPREAD) & _LOW_HALF) * bidders) >> _HALF
        price[i] = (low * prices) >> _HALF


@kernel((read(types.uint64), types.float64, types.int64, write(types.int64)))
def fill_times(offsets: Words, step_ms: float, start_ms: int, out: Integers) -> None:
    """Event times that advance by `step_ms` per row."""
    for i in range(len(offsets)):
        out[i] = np.int64(offsets[i] * step_ms) + start_ms
