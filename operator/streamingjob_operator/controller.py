"""Observe, decide, record, act: one reconcile of one job, whatever it was that happened."""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp

from streamingjob_operator import naming
from streamingjob_operator.act import Actor
from streamingjob_operator.announcing import Announcer
from streamingjob_operator.config import OperatorConfig
from streamingjob_operator.decide import decide
from streamingjob_operator.draft import Decision
from streamingjob_operator.fleet import Fleet
from streamingjob_operator.following import PROGRESS_SECONDS, Followed, Followers, is_transition
from streamingjob_operator.jobs import read_job
from streamingjob_operator.keyed_queue import KeyedQueue
from streamingjob_operator.kube import PODS, STREAMING_JOBS, ApiError, Kube
from streamingjob_operator.loss_times import LossTimes
from streamingjob_operator.memory import JobMemory
from streamingjob_operator.metrics import OperatorMetrics
from streamingjob_operator.observation import Observation, Report
from streamingjob_operator.observe import Observer, seconds_until_explained
from streamingjob_operator.pods import view_pod
from streamingjob_operator.recording import record
from streamingjob_operator.resource import Job, JobPhase, StreamingJobStatus
from streamingjob_operator.store import Store
from streamingjob_operator.watched_namespaces import WatchedNamespaces, is_refused

log = logging.getLogger(__name__)

RESYNC_SECONDS = 60.0
CONFLICT_PAUSE_SECONDS = 0.1
"""The watch asks for a look as soon as it shows the change; this is for changes that it never shows."""
_NOT_FOLLOWED = (JobPhase.FINISHED, JobPhase.FAILED, JobPhase.SUSPENDED)


class Controller:
    def __init__(
        self, kube: Kube, session: aiohttp.ClientSession, config: OperatorConfig, metrics: OperatorMetrics
    ) -> None:
        self._kube = kube
        self._config = config
        self._metrics = metrics
        self.store = Store()
        self.namespaces = WatchedNamespaces(kube, config.namespaces, metrics)
        self._memories: dict[str, JobMemory] = {}
        self._fleet = Fleet()
        self._announcer = Announcer(kube, config.identity)
        self._observer = Observer(kube, self.store, self._fleet)
        self._losses = LossTimes()
        self._actor = Actor(kube, session, config, self.store, self._announcer, metrics, self._losses)
        self._followers = Followers(self._take_report, self._take_silence)
        self.queue = KeyedQueue(self.reconcile, on_failure=self._note_failure)
        metrics.queue_length.set_function(lambda: len(self.queue))

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.queue.run(self._config.workers))
                group.create_task(self._resync_forever())
        finally:
            await self._followers.close()

    def job_seen(self, body: dict[str, Any], *, deleted: bool) -> None:
        uid = body["metadata"]["uid"]
        if deleted:
            self._forget(uid)
            return
        # What the operator has written itself is no news: or a job that is refused something, in other words each time,
        # would be looked at without a pause.
        if self.store.put_job(body):
            self.queue.add(uid)

    def pod_seen(self, body: dict[str, Any], *, deleted: bool) -> None:
        uid = self.store.drop_pod(body) if deleted else self.store.put_pod(body)
        if uid is not None and uid in self.store.jobs:
            self._losses.pod_seen(uid, view_pod(body), deleted)
            self.queue.add(uid)

    def node_seen(self, body: dict[str, Any], *, deleted: bool) -> None:
        name = body["metadata"]["name"]
        if deleted:
            self.store.drop_node(name)
        elif not self.store.put_node(body):
            return
        for uid in self.store.jobs_on_node(name):
            self.queue.add(uid)

    async def reconcile(self, uid: str) -> float | None:
        body = self.store.jobs.get(uid)
        if body is None:
            return None
        with self._metrics.reconciles.time():
            return await self._reconcile(read_job(body))

    async def _reconcile(self, job: Job) -> float | None:
        now = datetime.now(UTC)
        memory = self._memories.setdefault(job.uid, JobMemory())
        observation = await self._observer.observe(job, memory, now)
        decision = decide(observation)
        # Before anything is waited for: other jobs are looked at meanwhile, and must know of it.
        if observation.silent_since is not None and _replaces_driver(observation, decision):
            self._fleet.note_replacement(observation.now)
        if not await self._record(job, decision.status, memory, now):
            return CONFLICT_PAUSE_SECONDS
        done = await self._actor.perform_all(job, decision.status, decision.actions, memory)
        for announcement in decision.announcements:
            await self._announcer.announce(job, announcement)
        self._measure(observation, decision)
        await self._follow(job, decision.status, memory)
        due = 0.0 if done.again else _earliest(decision.look_again_in, seconds_until_explained(observation.pods, now))
        for further in done.failures[1:]:
            self._note_failure(job.uid, further)
        if done.failures:
            if due is not None:  # what else is due does not wait for what does not work
                self.queue.add_after(job.uid, due)
            raise done.failures[0]  # the queue tries again, with a backoff
        return due

    async def _record(self, job: Job, status: StreamingJobStatus, memory: JobMemory, now: datetime) -> bool:
        """False if the job has changed since it was observed: then nothing may be done on what was decided."""
        try:
            written = await record(self._kube, job, status, memory, now)
        except ApiError as error:
            if error.status == 404:
                self._forget(job.uid)
                return False
            if error.status == 409:
                await self._refresh(job)
                return False
            raise
        if written is not None:
            self._metrics.status_writes.inc()
            self.store.put_job(written)
        return True

    async def _refresh(self, job: Job) -> None:
        body = await self._kube.get(STREAMING_JOBS, job.namespace, job.name)
        if body is None or body["metadata"]["uid"] != job.uid:
            self._forget(job.uid)
        else:
            self.store.put_job(body, known_when_asked=job.resource_version)

    async def _follow(self, job: Job, status: StreamingJobStatus, memory: JobMemory) -> None:
        driver = status.driver
        job_master = None
        if driver is not None and status.phase not in _NOT_FOLLOWED:
            job_master = await self._actor.job_master_of(job, status, memory)
        if driver is None or job_master is None:
            self._followers.unfollow(job.uid)
            memory.silent_since = None
            return
        self._followers.follow(job.uid, Followed(driver.generation, job_master.address), job_master)

    def _take_report(self, uid: str, report: Report) -> None:
        memory = self._memories.get(uid)
        if memory is None:
            return
        for seconds in self._losses.reported(uid, report.status):
            self._metrics.pod_loss_recovery.observe(seconds)
        before, was_silent = memory.report, memory.silent_since is not None
        memory.report, memory.silent_since = report, None
        if was_silent or is_transition(before.status if before is not None else None, report.status):
            self.queue.add(uid)
        else:
            self.queue.add_after(uid, PROGRESS_SECONDS)

    def _take_silence(self, uid: str, since: datetime) -> None:
        memory = self._memories.get(uid)
        if memory is not None and memory.silent_since is None:
            memory.silent_since = since
            self.queue.add(uid)

    def _measure(self, observation: Observation, decision: Decision) -> None:
        for seconds in decision.recoveries:
            self._metrics.recovery_seconds.observe(seconds)
        if _replaces_driver(observation, decision):
            self._metrics.drivers_replaced.labels(observation.job.name, observation.job.namespace).inc()
            self._losses.forget(observation.job.uid)
        if observation.job.uid in self.store.jobs:  # it may have been deleted meanwhile
            self._metrics.show_job(observation.job, decision.status)

    def _note_failure(self, uid: str, error: Exception) -> None:
        self._metrics.reconcile_errors.inc()
        body = self.store.jobs.get(uid)
        name = f"{body['metadata']['namespace']}/{body['metadata']['name']}" if body is not None else uid
        expected = isinstance(error, ApiError)
        log.warning("%s: will be tried again: %s", name, error, exc_info=None if expected else error)

    def _forget(self, uid: str) -> None:
        body = self.store.jobs.get(uid)
        if body is not None:
            self._metrics.forget_job(body["metadata"]["name"], body["metadata"]["namespace"])
        self._losses.forget(uid)
        self.store.drop_job(uid)
        self._memories.pop(uid, None)
        self._followers.unfollow(uid)
        self.queue.forget(uid)

    async def _resync_forever(self) -> None:
        """A watch that broke and was taken up again shows what is there, but not what went meanwhile."""
        while True:
            await asyncio.sleep(RESYNC_SECONDS)
            try:
                await self.resync()
            except ApiError as error:
                log.warning("resync: %s", error)

    async def resync(self) -> None:
        """What the watches show while the lists are on their way is newer than the lists."""
        if None in self.namespaces.left_out:
            return  # the CRD is waited for, or the right to list
        self.namespaces.require_that_jobs_are_watched()
        known = self.store.versions()
        before = self.store.pod_events.copy()
        lists = await self._list_all()
        refusals = {scope: error for scope, error in lists.failures.items() if is_refused(error)}
        # Who has just been refused may only have asked an API server that does not know the Roles yet.
        unknown = set(lists.failures) - (set(refusals) & self.namespaces.left_out)
        await self.namespaces.note(refusals)
        for uid in set(known) - set(lists.jobs):
            if self._namespace_of(uid) not in unknown:
                self._forget(uid)
        if not unknown:
            self._forget_pods_of_gone_jobs(before)
        for uid, job in lists.jobs.items():
            news = self.store.put_job(job, known_when_asked=known.get(uid))
            news = self.store.replace_pods(uid, lists.pods.get(uid, []), asked_after=before[uid]) or news
            if news:
                self.queue.add(uid)

    async def _list_all(self) -> "_Lists":
        """What one namespace answers hides nothing in the others. Raises where all are one list, and it fails."""
        lists = _Lists()
        if not self._config.namespaces:
            await self._list(None, lists)
        for namespace in self._config.namespaces:
            try:
                await self._list(namespace, lists)
            except ApiError as error:
                lists.failures[namespace] = error
                if not is_refused(error):
                    log.warning("resync of namespace %s: %s", namespace, error)
        return lists

    async def _list(self, namespace: str | None, lists: "_Lists") -> None:
        jobs = await self._kube.list(STREAMING_JOBS, namespace)
        pods = await self._kube.list(PODS, namespace, labels=naming.UID_LABEL)
        for job in jobs:
            lists.jobs[job["metadata"]["uid"]] = job
        for pod in pods:
            lists.pods.setdefault(pod["metadata"]["labels"][naming.UID_LABEL], []).append(pod)

    def _namespace_of(self, uid: str) -> str | None:
        body = self.store.jobs.get(uid)
        return body["metadata"]["namespace"] if body is not None else None

    def _forget_pods_of_gone_jobs(self, events_before: Counter[str]) -> None:
        """A job's pods may be seen before the job is, but not for a whole round; and after it, when it is deleted."""
        for uid in self.store.jobs_of_pods() - set(self.store.jobs):
            if self.store.pod_events[uid] == events_before[uid]:
                self.store.drop_job(uid)


@dataclass
class _Lists:
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By uid."""
    pods: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By their job's uid."""
    failures: dict[str | None, ApiError] = field(default_factory=dict)
    """By namespace: why it is not known what is there."""


def _replaces_driver(observation: Observation, decision: Decision) -> bool:
    before, after = observation.job.status, decision.status
    return after.past_restarts > before.past_restarts + before.region_restarts


def _earliest(*seconds: float | None) -> float | None:
    return min((each for each in seconds if each is not None), default=None)
