"""How far apart repeated runs lie."""

from statistics import median


def spread(values: list[float]) -> float:
    """The distance between the smallest and the largest, as a share of the median."""
    return (max(values) - min(values)) / median(values) if values else 0.0
