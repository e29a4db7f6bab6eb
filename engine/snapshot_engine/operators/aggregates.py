"""Aggregates that are computed column-wise. The API re-exports them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Count:
    """Rows in the group; int64."""


@dataclass(frozen=True)
class Sum:
    """int64 for integers, uint64 for uint64, float64 for floats. An integer sum that is too large is an error."""

    column: str


@dataclass(frozen=True)
class Min:
    column: str


@dataclass(frozen=True)
class Max:
    column: str


@dataclass(frozen=True)
class Avg:
    """float64."""

    column: str


@dataclass(frozen=True)
class CountDistinct:
    column: str


Aggregate = Count | Sum | Min | Max | Avg | CountDistinct
