"""Does what was decided. Every action may be repeated; what was learnt goes into the job's memory."""

import logging
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp

from snapshot_engine.wire.control import LossOutcome, PodLostRequest, PodLostResponse
from streamingjob_operator import actions as a
from streamingjob_operator import naming
from streamingjob_operator.announcing import Announcer
from streamingjob_operator.config import OperatorConfig
from streamingjob_operator.jobmaster import JobMaster, JobMasterError, JobMasterSilentError
from streamingjob_operator.kube import (
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    STREAMING_JOBS,
    ApiError,
    Kube,
)
from streamingjob_operator.loss_times import LossTimes
from streamingjob_operator.manifests.access import build_role, build_role_binding, build_service_account
from streamingjob_operator.manifests.driver_pod import (
    build_cleaner_pod,
    build_driver_pod,
    build_planner_pod,
)
from streamingjob_operator.manifests.executor_template import build_executor_probe
from streamingjob_operator.manifests.ownership import Belonging, Owner
from streamingjob_operator.manifests.secret import build_secret, read_control_token
from streamingjob_operator.manifests.service import build_service
from streamingjob_operator.manifests.stored_spec import StoredSpec
from streamingjob_operator.memory import JobMemory
from streamingjob_operator.metrics import OperatorMetrics
from streamingjob_operator.observation import LossKey, Refusal
from streamingjob_operator.owned import OwnedObjects
from streamingjob_operator.resource import DriverRecord, Job, Reason, StreamingJobStatus
from streamingjob_operator.store import Store
from streamingjob_operator.stored_specs import StoredSpecs, UnusableSpecError

log = logging.getLogger(__name__)

LOG_LINES = 30


@dataclass(frozen=True)
class Performed:
    again: bool
    """What was learnt may change the decision, so that another look is due at once."""
    failures: tuple[Exception, ...]
    """Of actions that were not done, or of which nobody knows; they are due again as long as they are decided on."""


class Actor:
    def __init__(
        self,
        kube: Kube,
        session: aiohttp.ClientSession,
        config: OperatorConfig,
        store: Store,
        announcer: Announcer,
        metrics: OperatorMetrics,
        losses: LossTimes,
    ) -> None:
        self._kube = kube
        self._owned = OwnedObjects(kube)
        self._specs = StoredSpecs(kube, self._owned, config.image)
        self._session = session
        self._config = config
        self._store = store
        self._announcer = announcer
        self._metrics = metrics
        self._losses = losses

    async def perform_all(
        self, job: Job, status: StreamingJobStatus, actions: Sequence[a.Action], memory: JobMemory
    ) -> Performed:
        """Each for itself: what is refused to one of them keeps none of the others from being done."""
        again, failures, refusals = False, list[Exception](), list[Refusal]()
        driver_listens = memory.silent_since is None
        for action in actions:
            if isinstance(action, a.DriverRequest) and not driver_listens:
                continue  # it is told when it answers again; waiting for it here would delay other jobs
            try:
                again = await self._perform(job, status, action, memory) or again
            except JobMasterError as error:
                driver_listens = not isinstance(error, JobMasterSilentError)
                log.info("%s: %s: %s", job.key, type(action).__name__, error)
            except Exception as error:  # told by whoever asked for all of it
                failures.append(error)
                refusals += _hindrances(action, error)
        is_over = memory.hindrance is not None and not refusals
        memory.hindrance = refusals[0] if refusals else None
        return Performed(again or is_over, tuple(failures))

    async def _perform(self, job: Job, status: StreamingJobStatus, action: a.Action, memory: JobMemory) -> bool:
        """True if what was learnt may change the decision, so that another look is due at once."""
        match action:
            case a.StoreSpec(spec_hash):
                await self._specs.store(job, spec_hash)
            case a.DryRunPods(spec_hash):
                memory.dry_runs = {spec_hash: await self._dry_run(job, spec_hash)}
                return True
            case a.ProbeExecutor(spec_hash):
                return await self._probe_executor(job, spec_hash, memory)
            case a.LaunchDriver(driver):
                return await self._launch_driver(job, driver, memory)
            case a.LaunchPlanner(spec_hash, restore):
                stored = await self._read_with_surroundings(job, spec_hash)
                await self._owned.ensure(PODS, _owner(job), build_planner_pod(_owner(job), stored, restore))
            case a.LaunchCleaner(spec_hash):
                stored = await self._read_with_surroundings(job, spec_hash)
                await self._owned.ensure(PODS, _owner(job), build_cleaner_pod(_owner(job), stored))
            case a.DeletePod(name, uid, force):
                await self._kube.delete(PODS, job.namespace, name, uid=uid, grace=0 if force else None)
            case a.FetchDriverLog(pod_name):
                memory.driver_log = (pod_name, await self._read_log(job, pod_name))
                return True
            case a.DropStoredSpecs(keep):
                memory.dry_runs = {known: said for known, said in memory.dry_runs.items() if known in keep}
                await self._specs.drop_others(job, keep)
            case a.AddFinalizer():
                await self._set_finalizer(job, wanted=True)
            case a.RemoveFinalizer():
                await self._set_finalizer(job, wanted=False)
            case _:
                await self._tell_driver(job, status, action, memory)
        return False

    async def _dry_run(self, job: Job, spec_hash: str) -> str | None:
        """What the API server says against the driver's or the executors' pods; None if it would take them."""
        stored = await self._read_with_surroundings(job, spec_hash)
        probe = DriverRecord(generation=0, pod_name=_probe_name(job), spec_hash=spec_hash, launched_at=job.created_at)
        pods = {
            "driver": build_driver_pod(_owner(job), stored, probe),
            "executor": build_executor_probe(_owner(job), stored.spec),
        }
        for part, pod in pods.items():
            try:
                await self._try_pod(job, pod)
            except ApiError as error:
                said = error.message + _advice(part, error)
                message = f"the API server refuses the {part} pod ({_origin(part, error)}): {said}"
                if error.blames_the_object:
                    return message
                # What runs counts against the quota, too, and may go before the new pods come.
                if "exceeded quota" not in error.message:
                    raise ApiError(error.status, error.reason, message) from error
        return None

    async def _probe_executor(self, job: Job, spec_hash: str, memory: JobMemory) -> bool:
        """True if it is refused for another reason than before, or no longer."""
        stored = await self._specs.read(job, spec_hash)
        before = memory.executor_refusal(datetime.now(UTC))
        said = None
        try:
            await self._try_pod(job, build_executor_probe(_owner(job), stored.spec))
        except ApiError as error:
            if not error.is_refusal:
                raise
            said = error.message
        memory.executor_probe = (datetime.now(UTC), said)
        return said != before

    async def _try_pod(self, job: Job, pod: dict[str, Any]) -> None:
        """Raises what the API server says against it; nothing is made."""
        # No name of a real pod can be in the way.
        unnamed = {key: value for key, value in pod["metadata"].items() if key != "name"}
        probed = {**pod, "metadata": {**unnamed, "generateName": f"{_probe_name(job)}-"}}
        try:
            await self._kube.create(PODS, probed, dry_run=True)
        except ApiError as error:
            # The generated name is another one each time, and would make the same message news.
            said = re.sub(f"{_probe_name(job)}-[a-z0-9]+", _probe_name(job), error.message)
            raise ApiError(error.status, error.reason, said) from error

    async def _read_with_surroundings(self, job: Job, spec_hash: str) -> StoredSpec:
        """A stored spec, and all that a pod made of it needs to start: somebody may have deleted it meanwhile."""
        stored = await self._specs.read(job, spec_hash)
        await self._ensure_surroundings(job, stored)
        return stored

    async def _ensure_surroundings(self, job: Job, stored: StoredSpec) -> None:
        owner = _owner(job)
        secret = build_secret(owner, secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        await self._owned.ensure(SECRETS, owner, secret)
        await self._owned.ensure_same(SERVICES, owner, build_service(owner))
        if stored.spec.service_account_name is None and self._config.make_service_accounts:
            await self._owned.ensure_same(SERVICE_ACCOUNTS, owner, build_service_account(owner))
            await self._owned.ensure_same(ROLES, owner, build_role(owner))
            await self._owned.ensure_same(ROLE_BINDINGS, owner, build_role_binding(owner))

    async def _launch_driver(self, job: Job, driver: DriverRecord, memory: JobMemory) -> bool:
        try:
            stored = await self._read_with_surroundings(job, driver.spec_hash)
            body = await self._owned.ensure(PODS, _owner(job), _render_driver(job, stored, driver))
        except ApiError as error:
            if not error.is_refusal:
                raise
            memory.refused_launch = (driver.generation, Refusal(driver.pod_name, error.message))
            log.warning("%s: the driver pod was refused: %s", job.key, error)
            return False
        memory.refused_launch = None
        memory.token = None  # the Secret may have been made anew, for this driver
        self._store.put_pod(body)
        return True

    async def _read_log(self, job: Job, pod_name: str) -> str:
        try:
            return await self._kube.pod_log(job.namespace, pod_name, container=naming.DRIVER_CONTAINER, lines=LOG_LINES)
        except ApiError as error:
            return f"(the log could not be read: {error})"

    async def _set_finalizer(self, job: Job, *, wanted: bool) -> None:
        """Others' finalizers stay as they are now; the resourceVersion keeps it from undoing what is done meanwhile."""
        current = await self._kube.get(STREAMING_JOBS, job.namespace, job.name)
        if current is None or current["metadata"]["uid"] != job.uid:
            return
        others = [each for each in current["metadata"].get("finalizers") or () if each != naming.FINALIZER]
        finalizers = [*others, naming.FINALIZER] if wanted else others
        version = current["metadata"]["resourceVersion"]
        body = {"metadata": {"finalizers": finalizers, "resourceVersion": version}}
        self._store.put_job(await self._kube.merge_patch(STREAMING_JOBS, job.namespace, job.name, body))

    async def _tell_driver(self, job: Job, status: StreamingJobStatus, action: a.Action, memory: JobMemory) -> None:
        """A driver that cannot be reached now is told at the next look, if it is still to be told then."""
        job_master = await self.job_master_of(job, status, memory)
        driver = status.driver
        if job_master is not None and driver is not None:
            await self._say(job, status, job_master, driver, action, memory)

    async def _say(
        self,
        job: Job,
        status: StreamingJobStatus,
        job_master: JobMaster,
        driver: DriverRecord,
        action: a.Action,
        memory: JobMemory,
    ) -> None:
        match action:
            case a.ReportLoss(request):
                answer = await job_master.report_loss(request)
                await self._note_loss(job, request, answer, memory)
            case a.HintSuspectNode(request):
                await job_master.suspect_node(request)
                memory.nodes_told[request.node] = datetime.now(UTC)
            case a.StopJob(request):
                response = await job_master.stop(request)
                if response.accepted and status.operation is not None:
                    memory.stops_accepted.add((driver.generation, status.operation.started_at.isoformat()))
            case a.TakeSavepoint(name):
                await job_master.take_savepoint(name)
                memory.savepoints_accepted.add((driver.generation, name))
            case a.DropSavepoint(name):
                await _drop_savepoint(job_master, name, memory)
            case _:
                raise TypeError(f"no way is known to perform {action}")

    async def _note_loss(self, job: Job, request: PodLostRequest, answer: PodLostResponse, memory: JobMemory) -> None:
        key = LossKey(request.generation, request.application_id, request.executor_id, request.pod_uid)
        is_news = key not in memory.losses_told
        memory.losses_told[key] = datetime.now(UTC)
        if is_news and answer.outcome != LossOutcome.OTHER_GENERATION and memory.report is not None:
            # Also if the driver had noticed by itself, and restarts the regions already.
            self._metrics.pod_losses.labels(job.name, job.namespace, request.reason).inc()
            self._losses.told(job.uid, request)
        if answer.outcome != LossOutcome.ACCEPTED:
            return
        name = request.pod_name or f"executor {request.executor_id}"
        message = f"{name} is lost ({request.reason}); {_what_restarts(answer)}"
        await self._announcer.announce(job, a.Announcement(Reason.EXECUTOR_LOST, message, warning=True))

    async def job_master_of(self, job: Job, status: StreamingJobStatus, memory: JobMemory) -> JobMaster | None:
        """The control API of the recorded driver; None while its pod has no address."""
        driver = status.driver
        pod = next((p for p in self._store.pods_of(job.uid) if driver is not None and p.name == driver.pod_name), None)
        if pod is None or pod.ip is None or pod.ended:
            return None
        if memory.token is None:
            secret = await self._kube.get(SECRETS, job.namespace, naming.secret_name(job.name, job.uid))
            if secret is None or _owner(job).belonging(secret["metadata"]) is not Belonging.OURS:
                return None
            memory.token = read_control_token(secret)
        return JobMaster(self._session, pod.ip, memory.token)


async def _drop_savepoint(job_master: JobMaster, name: str, memory: JobMemory) -> None:
    try:
        await job_master.drop_savepoint(name)
    except JobMasterError as error:
        # One that takes long is deleted all the same, as a rule; the next request finds that out.
        said = None if isinstance(error, JobMasterSilentError) else str(error)
        memory.drops_tried[name] = (datetime.now(UTC), said)
        raise
    memory.savepoints_dropped.add(name)
    memory.drops_tried.pop(name, None)


def _render_driver(job: Job, stored: StoredSpec, driver: DriverRecord) -> dict[str, Any]:
    """What goes wrong here is known to have made no pod, and must not cost a generation each time it is tried."""
    try:
        return build_driver_pod(_owner(job), stored, driver)
    except Exception as error:
        log.exception("%s: the driver pod cannot be rendered", job.key)
        raise UnusableSpecError(f"no pod can be made of the stored spec: {type(error).__name__}: {error}") from error


def _hindrances(action: a.Action, error: Exception) -> list[Refusal]:
    """None if it may have been done, or soon will be: the API server did not answer, or somebody else was quicker."""
    name = type(action).__name__
    if not isinstance(error, ApiError):
        return [Refusal(name, f"{name} failed: {type(error).__name__}: {error}", Reason.OPERATOR_ERROR)]
    return [Refusal(name, error.message)] if error.is_refusal else []


def _what_restarts(answer: PodLostResponse) -> str:
    if not answer.regions:
        return "no region had slots there"
    start = f" from checkpoint {answer.checkpoint_id}" if answer.checkpoint_id is not None else ""
    regions = f"region {answer.regions[0]} restarts" if len(answer.regions) == 1 else None
    return f"{regions or 'regions ' + ', '.join(answer.regions) + ' restart'}{start}"


def _owner(job: Job) -> Owner:
    return Owner(job.name, job.namespace, job.uid)


def _probe_name(job: Job) -> str:
    return f"{job.name}-check"


def _origin(part: str, error: ApiError) -> str:
    """The fields of the spec that can be behind what is said of a pod."""
    if "unknown field" in error.message:
        return f"spec.{part}.podTemplate"  # the operator itself misspells none
    account = "spec.serviceAccountName, " if part == "driver" else ""
    return f"rendered from spec.{part} with its podTemplate, {account}spec.image and spec.checkpoint.storage"


def _advice(part: str, error: ApiError) -> str:
    """The engine's own container always has an image."""
    if not re.search(r"spec[.]containers\[\d+\][.]image: Required value", error.message):
        return ""
    return f". To change the engine's container, name it `{part}`"
