"""What is asked of one measured run, and what came of it."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from benchmarks.nexmark.events import Stream


@dataclass(frozen=True)
class Settings:
    """A cell of the benchmark: all that may change a figure, except the engine. `input`: "files" or "topic"."""

    query: str
    stream: Stream = field(default_factory=Stream)
    slices: int = 1
    parallelism: int = 2
    checkpoint_interval_ms: int = 0
    sink: str = "discard"
    input: str = "files"
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

    short: "Run | None" = None

    @property
    def rows_per_s(self) -> float:
        return self._beyond_short("rows") / self._beyond_short("seconds")

    @property
    def rows_per_core_s(self) -> float:
        return self._beyond_short("rows") / self._beyond_short("cpu_seconds")

    def after(self, short: "Run") -> "Run":
        """This run with a short one of the same cell beside it, whose costs are those of starting and ending a job.

        Rates are then taken from what lies between the two, so that a fixed cost of some seconds (planning, a
        mini-cluster) is not taken for the price of rows. Where the difference is too small to mean anything, they
        stay gross, and are in no ratio.
        """
        clearly_longer = self.seconds > 1.5 * short.seconds and self.cpu_seconds > 1.5 * short.cpu_seconds
        return replace(self, short=short) if clearly_longer and self.rows > short.rows else self

    def _beyond_short(self, name: str) -> float:
        return float(getattr(self, name) - (getattr(self.short, name) if self.short else 0))

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "rows_per_s": self.rows_per_s, "rows_per_core_s": self.rows_per_core_s}
