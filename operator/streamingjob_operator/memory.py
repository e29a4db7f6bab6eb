"""What the operator remembers about a job between two looks. All of it can be found again by asking once more."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from streamingjob_operator.observation import PROBE_AGAIN_SECONDS, LossKey, Refusal, Report

# After that a report is repeated, in case the answer was lost.
SAY_AGAIN_AFTER = timedelta(seconds=5)
DROP_AGAIN_AFTER = timedelta(seconds=60)
PROBE_AGAIN_AFTER = timedelta(seconds=PROBE_AGAIN_SECONDS)


@dataclass
class JobMemory:
    report: Report | None = None
    silent_since: datetime | None = None
    dry_runs: dict[str, str | None] = field(default_factory=dict)
    executor_probe: tuple[datetime, str | None] | None = None
    """When the API server was last asked about one more executor, and what it said against it."""
    refused_launch: tuple[int, Refusal] | None = None
    """Of the driver of that generation."""
    hindrance: Refusal | None = None
    """What was refused at the last look, and is asked for again as long as it is wanted."""
    driver_log: tuple[str, str] | None = None
    """Pod name and its last lines."""
    losses_told: dict[LossKey, datetime] = field(default_factory=dict)
    nodes_told: dict[str, datetime] = field(default_factory=dict)
    stops_accepted: set[tuple[int, str]] = field(default_factory=set)
    """Driver generation and the operation's start."""
    savepoints_accepted: set[tuple[int, str]] = field(default_factory=set)
    savepoints_dropped: set[str] = field(default_factory=set)
    drops_tried: dict[str, tuple[datetime, str | None]] = field(default_factory=dict)
    """Savepoint → when its deletion failed, and why, if the driver has said it."""
    token: str | None = None
    start_problems: dict[str, tuple[datetime, str | None]] = field(default_factory=dict)
    """Pod uid → when Kubernetes' events were last asked, and what they said."""
    written_at: datetime | None = None

    def executor_probed(self, now: datetime) -> bool:
        return self.executor_probe is not None and now - self.executor_probe[0] < PROBE_AGAIN_AFTER

    def executor_refusal(self, now: datetime) -> str | None:
        """Kept until it has been asked again, and no longer: another shortage may have another cause."""
        if self.executor_probe is None or now - self.executor_probe[0] > 2 * PROBE_AGAIN_AFTER:
            return None
        return self.executor_probe[1]

    def recent_losses(self, now: datetime) -> frozenset[LossKey]:
        return frozenset(key for key, told in self.losses_told.items() if now - told < SAY_AGAIN_AFTER)

    def recent_drops(self, now: datetime) -> dict[str, str | None]:
        return {name: why for name, (at, why) in self.drops_tried.items() if now - at < DROP_AGAIN_AFTER}

    def recent_nodes(self, now: datetime) -> frozenset[str]:
        return frozenset(node for node, told in self.nodes_told.items() if now - told < SAY_AGAIN_AFTER)
