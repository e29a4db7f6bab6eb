"""What is asked of one measured run, and what came of it."""

from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.nexmark.events import Stream


@dataclass(frozen=True)
class Settings:
    """A cell of the benchmark: all that may change a figure, except the engine."""

    query: str
    stream: Stream = field(default_factory=Stream)
    slices: int = 1
    parallelism: int = 2
    checkpoint_interval_ms: int = 0
    sink: str = "discard"
    timeout_seconds: float = 600.0
    options: dict[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Run:
    """One measured run. Memory is in bytes, times in seconds."""

    engine: str
    query: str
    keys: int
    key_type: str
    rows: int
    parallelism: int
    checkpoint_interval_ms: int
    seconds: float
    cpu_seconds: float
    peak_memory: int
    sink: str
    versions: dict[str, str]
    facts: dict[str, Any]

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def rows_per_core_s(self) -> float:
        return self.rows / self.cpu_seconds

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "rows_per_s": self.rows_per_s, "rows_per_core_s": self.rows_per_core_s}
