"""The only place that knows where the benchmarks keep their files."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
OUT = REPOSITORY / "benchmarks" / "out"
ENVIRONMENTS = REPOSITORY / "benchmarks" / ".envs"
DATASETS = OUT / "data"
REFERENCES = OUT / "reference"
WORK = OUT / "work"
PLOTS = (
    "rows-per-core-second.png",
    "growth-with-keys.png",
    "memory-with-keys.png",
    "growth-with-slots.png",
    "growth-with-regions.png",
    "checkpoints-by-keys.png",
    "coordinator.png",
)
"""Files of the report's directory, in the order in which it shows them."""
STORED_RATIOS = REPOSITORY / "benchmarks" / "ratios.json"
