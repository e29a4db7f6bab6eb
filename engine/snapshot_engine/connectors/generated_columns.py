"""Columns for the generator: pure, vectorised functions of the row number.

Random ones take the row number through a mixing function instead of a random number generator: so a row can
be made again without the rows before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.connectors.generator import Offsets

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)


def mix(offsets: Offsets, seed: int) -> Offsets:
    """64 random-looking bits per row (splitmix64), in a new array."""
    bits = offsets + np.uint64((seed + 1) * _GOLDEN & 0xFFFFFFFFFFFFFFFF)
    shifted = bits >> np.uint64(30)
    np.bitwise_xor(bits, shifted, out=bits)
    np.multiply(bits, _MIX_1, out=bits)
    np.right_shift(bits, np.uint64(27), out=shifted)
    np.bitwise_xor(bits, shifted, out=bits)
    np.multiply(bits, _MIX_2, out=bits)
    np.right_shift(bits, np.uint64(31), out=shifted)
    np.bitwise_xor(bits, shifted, out=bits)
    return bits


def below(bits: Offsets, bound: int) -> npt.NDArray[np.int64]:
    """The upper 32 of `bits` scaled to [0, bound), in place."""
    np.right_shift(bits, _HALF, out=bits)
    np.multiply(bits, np.uint64(bound), out=bits)
    np.right_shift(bits, _HALF, out=bits)
    return bits.view(np.int64)


def milliseconds(values: npt.NDArray[np.int64]) -> pa.Array:
    """Epoch milliseconds as a timestamp column, without a copy."""
    return pa.Array.from_buffers(pa.timestamp("ms"), len(values), [None, pa.py_buffer(values)])


@dataclass(frozen=True, slots=True)
class Sequence64:
    """The row number itself, from `start` on."""

    start: int = 0

    def __call__(self, offsets: Offsets) -> Any:
        return offsets.astype(np.int64) + self.start


@dataclass(frozen=True, slots=True)
class UniformInt:
    """Integers in [low, high); the range must be smaller than 2^32."""

    low: int
    high: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.high - self.low < 2**32:
            raise ValueError(f"expected low < high < low + 2^32, got {self.low} and {self.high}")

    def __call__(self, offsets: Offsets) -> Any:
        return below(mix(offsets, self.seed), self.high - self.low) + self.low


@dataclass(frozen=True, slots=True)
class UniformFloat:
    """Floats in [low, high)."""

    low: float = 0.0
    high: float = 1.0
    seed: int = 0

    def __call__(self, offsets: Offsets) -> Any:
        unit = (mix(offsets, self.seed) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return unit * (self.high - self.low) + self.low


@dataclass(frozen=True, slots=True)
class Choice:
    """One of `values`, all equally likely."""

    values: Sequence[Any]
    seed: int = 0

    def __call__(self, offsets: Offsets) -> Any:
        return pa.array(self.values).take(pa.array(below(mix(offsets, self.seed), len(self.values))))


@dataclass(frozen=True, slots=True)
class EventTimes:
    """Event times that advance evenly: `per_second` rows per second of event time, from `start_ms` on.

    With `jitter_ms`, each is up to that much earlier, so rows are out of order within that bound.
    """

    per_second: float
    start_ms: int = 0
    jitter_ms: int = 0
    seed: int = 0

    def __call__(self, offsets: Offsets) -> Any:
        times = (offsets.astype(np.float64) * (1000.0 / self.per_second)).astype(np.int64)
        times += self.start_ms
        if self.jitter_ms:
            times -= below(mix(offsets, self.seed), self.jitter_ms + 1)
        return milliseconds(times)
