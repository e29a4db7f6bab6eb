"""Python records inside a chain, beside Arrow batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Records:
    """A batch of Python values, with their event times where the stream has them."""

    values: Sequence[Any]
    timestamps: Sequence[int] | None = None
    """Epoch milliseconds, one per value, or None if the stream has no event time."""

    def __len__(self) -> int:
        return len(self.values)
