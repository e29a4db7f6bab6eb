"""Gathers what is known about a job. Never acts; asks the API server only where a watch may lag behind."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from streamingjob_operator import naming
from streamingjob_operator.fleet import Fleet
from streamingjob_operator.kube import EVENTS, PODS, ApiError, Kube
from streamingjob_operator.memory import JobMemory
from streamingjob_operator.observation import Observation, PodView
from streamingjob_operator.resource import Job, OperationStep
from streamingjob_operator.store import Store

log = logging.getLogger(__name__)

EXPLAIN_AFTER = timedelta(seconds=3)
"""A pod that starts at all has mounted its volumes by then, or Kubernetes has said why not."""
EXPLAIN_AGAIN = timedelta(seconds=10)
MOST_EXPLAINED = 4
"""Pods whose events are asked for at one look; the others of a large job wait for the same, as a rule."""


class Observer:
    def __init__(self, kube: Kube, store: Store, fleet: Fleet) -> None:
        self._kube = kube
        self._store = store
        self._fleet = fleet

    async def observe(self, job: Job, memory: JobMemory, now: datetime) -> Observation:
        if self._absence_matters(job, memory):
            await self.list_pods(job)
        pods = await self._explain_waiting(job, memory, now)
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
            executor_probed=memory.executor_probed(now),
            executor_refusal=memory.executor_refusal(now),
            refused_launch=refused[1] if refused is not None and refused[0] == generation else None,
            hindrance=memory.hindrance,
            driver_log=self._log_of_driver(job, memory),
            losses_told=memory.recent_losses(now),
            nodes_told=memory.recent_nodes(now),
            stop_accepted=stop in memory.stops_accepted,
            savepoints_accepted=frozenset(name for told, name in memory.savepoints_accepted if told == generation),
            savepoints_dropped=frozenset(memory.savepoints_dropped),
            drops_tried=memory.recent_drops(now),
            may_replace_silent_driver=self._fleet.may_replace_silent_driver(now),
        )

    async def list_pods(self, job: Job) -> bool:
        """Ask the API server itself; True if the watch had not shown it yet."""
        asked_after = self._store.pod_events[job.uid]
        bodies = await self._kube.list(PODS, job.namespace, labels=f"{naming.UID_LABEL}={job.uid}")
        return self._store.replace_pods(job.uid, bodies, asked_after=asked_after)

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

    async def _explain_waiting(self, job: Job, memory: JobMemory, now: datetime) -> list[PodView]:
        """A missing Secret or volume shows only in events, so those of pods that wait are read."""
        pods = self._store.pods_of(job.uid)
        waiting = [pod.uid for pod in pods if _waits_unexplained(pod, now)]
        due = [uid for uid in waiting if _is_due(memory.start_problems.get(uid), now)]
        for uid in due[:MOST_EXPLAINED]:
            memory.start_problems[uid] = (now, await self._latest_warning(job, uid))
        known = {uid: memory.start_problems[uid] for uid in waiting if uid in memory.start_problems}
        memory.start_problems = known
        return [replace(pod, start_problem=known[pod.uid][1]) if pod.uid in known else pod for pod in pods]

    async def _latest_warning(self, job: Job, pod_uid: str) -> str | None:
        try:
            fields = f"involvedObject.uid={pod_uid},type=Warning"
            events = await self._kube.list(EVENTS, job.namespace, fields=fields)
        except ApiError as error:  # no reason not to look after the job
            log.warning("%s: why a pod waits cannot be asked: %s", job.key, error)
            return None
        # Said before it had a node; while it has none its own status tells.
        told = [event for event in events if event.get("reason") != "FailedScheduling"]
        if not told:
            return None
        latest = max(told, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
        return f"{latest.get('reason')}: {latest.get('message')}"


def _waits_unexplained(pod: PodView, now: datetime) -> bool:
    return pod.phase == "Pending" and pod.start_problem is None and now - pod.created_at >= EXPLAIN_AFTER


def _is_due(asked: tuple[datetime, str | None] | None, now: datetime) -> bool:
    return asked is None or now - asked[0] >= EXPLAIN_AGAIN


def seconds_until_explained(pods: Iterable[PodView], now: datetime) -> float | None:
    """When pods that wait should be looked at again: no event of theirs tells that they cannot start."""
    pending = [pod for pod in pods if pod.phase == "Pending" and pod.deleting_since is None]
    return min((_until_explained(now - pod.created_at).total_seconds() for pod in pending), default=None)


def _until_explained(age: timedelta) -> timedelta:
    return EXPLAIN_AFTER - age if age < EXPLAIN_AFTER else EXPLAIN_AGAIN
