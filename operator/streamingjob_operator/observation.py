"""What is known about one job at one moment: everything that `decide` looks at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from snapshot_engine.wire.status import JobStatus, TerminationReport
from streamingjob_operator import naming
from streamingjob_operator.resource import Job, JobSize, Reason

PROBE_AGAIN_SECONDS = 30.0


@dataclass(frozen=True)
class ContainerExit:
    code: int
    reason: str
    report: TerminationReport | None
    """What the driver left behind; None if it could not, as after a kill."""
    message: str


@dataclass(frozen=True)
class PodView:
    """As much of a pod as decisions need."""

    name: str
    uid: str
    component: str
    generation: int | None
    executor_id: str | None
    spec_hash: str | None
    node: str | None
    ip: str | None
    phase: str
    ready: bool
    created_at: datetime
    deleting_since: datetime | None = None
    exit: ContainerExit | None = None
    start_problem: str | None = None
    """Why Kubernetes cannot start it, in Kubernetes' own words."""
    image: str | None = None
    render_version: int | None = None
    size: JobSize | None = None
    status_reason: str | None = None
    """Such as Evicted, Preempted, NodeLost."""
    never_ran: str | None = None
    """Of a pod that has failed and whose main container never ran: why."""
    init_failed: bool = False
    """Of such a pod: an init container of its own ended it, and not Kubernetes."""

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def living(self) -> bool:
        """May still run code: nobody has seen its end."""
        return not self.ended


@dataclass(frozen=True)
class NodeView:
    name: str
    ready: bool
    unreachable: bool
    """Its kubelet has gone silent, so nothing that is said of its pods is known to be true."""


@dataclass(frozen=True)
class Report:
    """The JobMaster's word, and when it came."""

    status: JobStatus
    received_at: datetime


class LossKey(NamedTuple):
    """Names one loss; a repeated report of it does nothing."""

    generation: int
    application_id: str
    executor_id: str
    pod_uid: str | None


@dataclass(frozen=True)
class Refusal:
    """Something that was certainly not done: the API server's no, or a way on that the operator did not find."""

    what: str
    message: str
    reason: Reason = Reason.REFUSED_BY_CLUSTER


@dataclass(frozen=True)
class Observation:
    job: Job
    now: datetime
    pods: tuple[PodView, ...] = ()
    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    report: Report | None = None
    """Of the current driver's generation only."""
    silent_since: datetime | None = None
    """First of the unanswered requests to the current driver."""
    dry_runs: Mapping[str, str | None] = field(default_factory=dict)
    """Spec hash → what the API server said against its pods, None for nothing."""
    executor_probed: bool = False
    """The API server was asked about one more executor less than PROBE_AGAIN_SECONDS ago."""
    executor_refusal: str | None = None
    """What it said against it."""
    refused_launch: Refusal | None = None
    """The last attempt to make the current driver's pod was refused."""
    hindrance: Refusal | None = None
    """What else was refused at the last look."""
    driver_log: str | None = None
    losses_told: frozenset[LossKey] = frozenset()
    """Told a moment ago: no need to say it again yet."""
    nodes_told: frozenset[str] = frozenset()
    stop_accepted: bool = False
    """The current driver has taken the current operation's order to stop."""
    savepoints_accepted: frozenset[str] = frozenset()
    savepoints_dropped: frozenset[str] = frozenset()
    """Deleted from storage."""
    drops_tried: Mapping[str, str | None] = field(default_factory=dict)
    """Savepoints whose deletion was tried a moment ago, in vain → why, if the driver has said it."""
    may_replace_silent_driver: bool = True
    """False when many drivers are silent at once: then it is more likely the operator that is cut off."""

    def driver_pod(self) -> PodView | None:
        record = self.job.status.driver
        if record is None:
            return None
        return next((pod for pod in self.pods if pod.name == record.pod_name), None)

    def pods_of(self, component: str) -> list[PodView]:
        return [pod for pod in self.pods if pod.component == component]

    def executors(self, generation: int) -> list[PodView]:
        return [pod for pod in self.pods_of(naming.EXECUTOR) if pod.generation == generation]

    def node_of(self, pod: PodView) -> NodeView | None:
        return self.nodes.get(pod.node) if pod.node else None
