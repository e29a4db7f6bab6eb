"""The only place that knows where the benchmarks keep their files."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
OUT = REPOSITORY / "benchmarks" / "out"
ENVIRONMENTS = REPOSITORY / "benchmarks" / ".envs"
DATASETS = OUT / "data"
REFERENCES = OUT / "reference"
WORK = OUT / "work"
STORED_RATIOS = REPOSITORY / "benchmarks" / "ratios.json"
