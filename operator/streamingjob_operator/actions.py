"""Everything the operator can do about a job. Each may be repeated without harm."""

from dataclasses import dataclass

from snapshot_engine.wire.control import NodeSuspectRequest, PodLostRequest, StopRequest
from streamingjob_operator.resource import DriverRecord, Reason, RestorePoint


@dataclass(frozen=True)
class StoreSpec:
    """Keep the job's present spec in an immutable ConfigMap, with the image resolved."""

    spec_hash: str


@dataclass(frozen=True)
class DryRunPods:
    """Ask the API server whether it would take the pods of a stored spec."""

    spec_hash: str


@dataclass(frozen=True)
class ProbeExecutor:
    """Ask the API server whether it would take one more executor of the job that runs."""

    spec_hash: str


@dataclass(frozen=True)
class LaunchDriver:
    """Make the recorded driver's pod, and all it needs: service, secret, service account, role."""

    driver: DriverRecord


@dataclass(frozen=True)
class LaunchPlanner:
    """Make the pod that plans a stored spec, and compares it with the state that it would start from."""

    spec_hash: str
    restore: RestorePoint | None = None
    """That state; the latest completed checkpoint if not given."""


@dataclass(frozen=True)
class LaunchCleaner:
    """Make the pod that removes a deleted job's checkpoints."""

    spec_hash: str


@dataclass(frozen=True)
class DeletePod:
    name: str
    uid: str
    force: bool = False
    """Remove the object without waiting for its kubelet, which is not there to answer."""


@dataclass(frozen=True)
class ReportLoss:
    request: PodLostRequest


@dataclass(frozen=True)
class HintSuspectNode:
    request: NodeSuspectRequest


@dataclass(frozen=True)
class StopJob:
    request: StopRequest


@dataclass(frozen=True)
class TakeSavepoint:
    name: str


@dataclass(frozen=True)
class DropSavepoint:
    """Delete a savepoint that the operator had taken for a purpose of its own."""

    name: str


@dataclass(frozen=True)
class FetchDriverLog:
    pod_name: str


@dataclass(frozen=True)
class DropStoredSpecs:
    """Remove stored specs that nothing can go back to."""

    keep: frozenset[str]


@dataclass(frozen=True)
class AddFinalizer:
    pass


@dataclass(frozen=True)
class RemoveFinalizer:
    pass


DriverRequest = ReportLoss | HintSuspectNode | StopJob | TakeSavepoint | DropSavepoint
"""What is said to the driver; all else is asked of the API server."""

Action = (
    StoreSpec
    | DryRunPods
    | ProbeExecutor
    | LaunchDriver
    | LaunchPlanner
    | LaunchCleaner
    | DeletePod
    | DriverRequest
    | FetchDriverLog
    | DropStoredSpecs
    | AddFinalizer
    | RemoveFinalizer
)


@dataclass(frozen=True)
class Announcement:
    """A Kubernetes Event to be posted."""

    reason: Reason
    message: str
    warning: bool = False
