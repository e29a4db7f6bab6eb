"""Gathers what is known about a job. Never acts; asks the API server only where a watch may lag behind."""

from dataclasses import replace
from datetime import datetime, timedelta

from streamingjob_operator import naming
from streamingjob_operator.fleet import Fleet
from streamingjob_operator.kube import EVENTS, PODS, Kube
from streamingjob_operator.memory import JobMemory
from streamingjob_operator.observation import Observation, PodView
from streamingjob_operator.resource import Job, OperationStep
from streamingjob_operator.store import Store

PENDING_LONG = timedelta(seconds=10)
ASK_EVENTS_AGAIN = timedelta(seconds=30)


class Observer:
    def __init__(self, kube: Kube, store: Store, fleet: Fleet) -> None:
        self._kube = kube
        self._store = store
        self._fleet = fleet

    async def observe(self, job: Job, memory: JobMemory, now: datetime) -> Observation:
        if self._absence_matters(job, memory):
            await self.list_pods(job)
        pods = [await self._explain_waiting(job, pod, memory, now) for pod in self._store.pods_of(job.uid)]
        driver = job.status.driver
        generation = driver.generation if driver is not None else None
        refused = memory.refused_launch
        operation = job.status.operation
        stop = (generation, operation.started_at.isoformat()) if operation is not None else None
        report = memory.report
        return Observation(
            job=job,
            now=now,
            pods=tuple(pods),
            nodes=self._store.nodes,
            report=report if report is not None and report.status.generation == generation else None,
            silent_since=memory.silent_since if driver is not None else None,
            dry_runs=dict(memory.dry_runs),
            refused_launch=refused[1] if refused is not None and refused[0] == generation else None,
            hindrance=memory.hindrance,
            driver_log=self._log_of_driver(job, memory),
            losses_told=memory.recent_losses(now),
            nodes_told=memory.recent_nodes(now),
            stop_accepted=stop in memory.stops_accepted,
            savepoints_accepted=frozenset(name for told, name in memory.savepoints_accepted if told == generation),
            may_replace_silent_driver=self._fleet.may_replace_silent_driver(now),
        )

    async def list_pods(self, job: Job) -> bool:
        """Ask the API server itself; True if the watch had not shown it yet."""
        while True:
            before = self._store.pod_events[job.uid]
            bodies = await self._kube.list(PODS, job.namespace, labels=f"{naming.UID_LABEL}={job.uid}")
            if self._store.pod_events[job.uid] == before:
                return self._store.replace_pods(job.uid, bodies)

    def _absence_matters(self, job: Job, memory: JobMemory) -> bool:
        """Whether something would be done because a pod is missing: then it must really be missing."""
        pods = self._store.pods_of(job.uid)
        driver, operation = job.status.driver, job.status.operation
        if job.status.launch is not None or job.deleting_since is not None:
            return True
        if driver is not None and driver.pod_name not in {pod.name for pod in pods}:
            return True
        if operation is not None and operation.step in (OperationStep.PLAN, OperationStep.CLEAN):
            return True
        if driver is None or memory.report is None:
            return False
        present = {pod.executor_id for pod in pods if pod.generation == driver.generation}
        return any(executor.executor_id not in present for executor in memory.report.status.executors)

    def _log_of_driver(self, job: Job, memory: JobMemory) -> str | None:
        if memory.driver_log is None or job.status.driver is None:
            return None
        name, text = memory.driver_log
        return text if name == job.status.driver.pod_name else None

    async def _explain_waiting(self, job: Job, pod: PodView, memory: JobMemory, now: datetime) -> PodView:
        """A missing Secret or volume shows only in events, so those of a pod that waits for long are read."""
        waits = pod.phase == "Pending" and pod.start_problem is None and now - pod.created_at > PENDING_LONG
        if not waits:
            return pod
        asked = memory.start_problems.get(pod.uid)
        if asked is None or now - asked[0] > ASK_EVENTS_AGAIN:
            asked = (now, await self._latest_warning(job.namespace, pod.uid))
            memory.start_problems[pod.uid] = asked
        return replace(pod, start_problem=asked[1])

    async def _latest_warning(self, namespace: str, pod_uid: str) -> str | None:
        events = await self._kube.list(EVENTS, namespace, fields=f"involvedObject.uid={pod_uid},type=Warning")
        if not events:
            return None
        latest = max(events, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
        return f"{latest.get('reason')}: {latest.get('message')}"
