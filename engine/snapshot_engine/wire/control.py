"""The control API between operator (or command line) and JobMaster: paths and bodies.

Every request but the probes and the metrics carries ``Authorization: Bearer <token>``. Every POST may be
repeated with the same body without doing a thing twice.
"""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import AwareDatetime, Field, model_validator

from snapshot_engine.wire.model import TolerantModel
from snapshot_engine.wire.status import JobStatus, SavepointStatus

CONTROL_PORT = 8081
CONTROL_PORT_NAME = "control"
SPARK_DRIVER_PORT = 7078
SPARK_BLOCK_MANAGER_PORT = 7079
SLOT_PORT = 7080
"""Where slots reach the JobMaster."""

MANIFEST_PATH = "/etc/streamingjob/job.yaml"
SECRETS_DIRECTORY = "/etc/streamingjob/secrets"
CONTROL_TOKEN_FILE = "control-token"
SPARK_SECRET_FILE = "spark-secret"
DRIVER_CONTAINER_NAME = "driver"
EXECUTOR_CONTAINER_NAME = "executor"
EXECUTOR_TEMPLATE_PATH = "/etc/streamingjob/executor.yaml"
"""The executors' pod template, for spark.kubernetes.executor.podTemplateFile."""
PIPELINE_DIRECTORY = "/etc/streamingjob/pipeline"
"""Where the ConfigMap of ``spec.pipeline.configMap`` is mounted: one file per key."""

STATUS_PATH = "/status"
SAVEPOINTS_PATH = "/savepoints"
LOST_PODS_PATH = "/pods/lost"
SUSPECT_NODES_PATH = "/nodes/suspect"
STOP_PATH = "/stop"
HEALTH_PATH = "/healthz"
READY_PATH = "/readyz"
METRICS_PATH = "/metrics"

MAX_LONG_POLL_SECONDS = 30.0

GENERATION_LABEL = "streamingjob.dev/generation"
"""Which driver an executor pod belongs to: the driver has Spark put it there, the operator finds it by it."""

# A name is a directory in storage and part of an object's name.
SAVEPOINT_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9.]{0,126}[a-z0-9])?$"
SavepointName = Annotated[str, Field(pattern=SAVEPOINT_NAME_PATTERN)]


def savepoint_path(name: str) -> str:
    return f"{SAVEPOINTS_PATH}/{name}"


FIRST_LINE = "first"
"""What the checkpoints from before any restore are a line of; `current.json` has it too."""


class Environment(StrEnum):
    """Environment variables that the operator gives the driver."""

    GENERATION = "STREAMINGJOB_GENERATION"
    UID = "STREAMINGJOB_UID"
    NAMESPACE = "STREAMINGJOB_NAMESPACE"
    NAME = "STREAMINGJOB_NAME"
    RESTORE_ID = "STREAMINGJOB_RESTORE_ID"
    """Names the restore that RESTORE_FROM or IGNORE_STATE asks for.

    The driver keeps the id of the one it applied in ``current.json``, with the first checkpoint that it
    completes. A driver that finds its id there takes the latest checkpoint instead, so that a restart does not
    go back again. If another restore came between, which is rolled back now, it takes the last checkpoint from
    before that: no id is given to two restores. ``FIRST_LINE`` names what the job was before it was ever restored.
    """
    RESTORE_FROM = "STREAMINGJOB_RESTORE_FROM"
    """A savepoint's name, or the path of a checkpoint or savepoint, to start from."""
    IGNORE_STATE = "STREAMINGJOB_IGNORE_STATE"
    """"true": start with no state although the storage may hold some (upgradeMode Stateless). A planner is also told
    "false"."""
    EXPECTED_CHECKPOINT = "STREAMINGJOB_EXPECTED_CHECKPOINT"
    """Where a checkpoint was that earlier drivers with the same RESTORE_ID have completed: a driver that finds no
    completed checkpoint at all must not start. Not given if none is known of."""
    POD_NAME = "POD_NAME"
    POD_UID = "POD_UID"
    POD_IP = "POD_IP"


class StatusResponse(TolerantModel):
    """Answer of GET /status.

    ``?since=<revision>&wait=<seconds>`` holds the answer until the revision is another than ``since`` or the
    wait is over. With ``&progress=<seconds>`` a change of mere progress (a checkpoint completed, a counter
    grew) is held back until that long after the request came; a transition (phase, region, executor,
    savepoint, error) is answered at once. Revisions only grow within one generation; a new generation starts
    anew.
    """

    revision: int
    status: JobStatus


class SavepointRequest(TolerantModel):
    """POST /savepoints. A name that exists is answered with its state and triggers nothing."""

    name: SavepointName


SavepointResponse = SavepointStatus
"""Answer of POST /savepoints (202, or 200 when it exists) and of GET /savepoints/{name} (404 when unknown).

DELETE /savepoints/{name} removes one from storage (204, also when there is none): the operator does so only
with those that it asked for itself.
"""


class LossReason(StrEnum):
    POD_GONE = "PodGone"
    POD_FAILED = "PodFailed"
    POD_DELETING = "PodDeleting"
    OOM_KILLED = "OOMKilled"
    EVICTED = "Evicted"
    NODE_LOST = "NodeLost"


class PodLostRequest(TolerantModel):
    """POST /pods/lost.

    (generation, application, executor, pod UID) names the loss; a repeated report does nothing.
    """

    generation: int
    application_id: str
    executor_id: str
    pod_uid: str | None = None
    pod_name: str | None = None
    reason: str
    """A LossReason, or a newer one."""
    message: str = ""
    observed_at: AwareDatetime | None = None


class LossOutcome(StrEnum):
    ACCEPTED = "Accepted"
    ALREADY_KNOWN = "AlreadyKnown"
    UNKNOWN_EXECUTOR = "UnknownExecutor"
    OTHER_GENERATION = "OtherGeneration"


class PodLostResponse(TolerantModel):
    outcome: str
    """A LossOutcome, or a newer one."""
    regions: list[str] = Field(default_factory=list)
    """Regions that restart because of this loss."""
    checkpoint_id: int | None = None
    """The checkpoint they restart from."""


class NodeSuspectRequest(TolerantModel):
    """POST /nodes/suspect. A hint: the JobMaster acts only if these executors' heartbeats are missing too."""

    generation: int
    node: str
    executor_ids: list[str]
    reason: str
    message: str = ""


class NodeSuspectResponse(TolerantModel):
    fenced_executor_ids: list[str] = Field(default_factory=list)


class StopMode(StrEnum):
    SAVEPOINT = "savepoint"
    """Take a savepoint, commit, exit."""
    CHECKPOINT = "checkpoint"
    """Take a last checkpoint, commit, exit."""
    CANCEL = "cancel"
    """Exit at once; the latest completed checkpoint stays."""


class StopRequest(TolerantModel):
    """POST /stop. Answered 202 at once; the driver's exit is the end of it."""

    mode: StopMode
    name: SavepointName | None = None
    """Of the savepoint; required for mode savepoint."""

    @model_validator(mode="after")
    def _savepoint_has_a_name(self) -> Self:
        if self.mode is StopMode.SAVEPOINT and self.name is None:
            raise ValueError("mode savepoint needs a name")
        return self


class StopResponse(TolerantModel):
    accepted: bool
    savepoint: SavepointStatus | None = None
    message: str = ""


class ErrorResponse(TolerantModel):
    """Body of every answer from 400 on."""

    error: str
