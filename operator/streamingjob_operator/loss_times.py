"""How long each lost pod kept its regions down: from the event that told of it until all of them run again."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from snapshot_engine.wire.control import PodLostRequest
from snapshot_engine.wire.status import JobStatus, RegionState, RegionStatus
from streamingjob_operator.observation import PodView

_AT_WORK = (RegionState.RUNNING, RegionState.FINISHED)
REMEMBERED_SECONDS = 600.0
"""A pod that went, and of which the driver was not told by then, was no loss: it had been asked to go."""


@dataclass
class _Loss:
    since: float
    attempts: dict[str, int]
    """The last ones that ran, of the regions that had slots there: only newer attempts count."""


class LossTimes:
    """On one monotonic clock. What was seen before this operator started is not measured."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._status: dict[str, JobStatus] = {}
        self._seen: dict[str, dict[str, _Loss]] = {}
        """By job and pod: the driver may have noticed, and restarted all, before it is told."""
        self._open: dict[str, list[_Loss]] = {}

    def pod_seen(self, job_uid: str, pod: PodView, deleted: bool) -> None:
        """Remembers the first event that says that an executor's pod is going or gone."""
        gone = deleted or pod.ended or pod.exit is not None or pod.deleting_since is not None
        seen = self._seen.setdefault(job_uid, {})
        if gone and pod.executor_id is not None and pod.uid not in seen:
            seen[pod.uid] = self._loss_now(job_uid, pod.executor_id)

    def told(self, job_uid: str, request: PodLostRequest) -> None:
        """The driver knows of the loss."""
        seen = self._seen.get(job_uid, {}).pop(request.pod_uid or "", None)
        loss = seen or self._loss_now(job_uid, request.executor_id)
        if loss.attempts:
            self._open.setdefault(job_uid, []).append(loss)

    def _loss_now(self, job_uid: str, executor_id: str) -> _Loss:
        status = self._status.get(job_uid)
        if status is None:
            return _Loss(self._clock(), {})
        regions = {r for e in status.executors if e.executor_id == executor_id for r in e.regions}
        attempts = {region.id: _last_run(region) for region in status.regions if region.id in regions}
        return _Loss(self._clock(), attempts)

    def reported(self, job_uid: str, status: JobStatus) -> list[float]:
        """The seconds of every loss whose regions all run again by this report."""
        self._status[job_uid] = status
        self._forget_old(job_uid)
        at_work = {region.id: region.attempt for region in status.regions if region.state in _AT_WORK}
        losses = self._open.pop(job_uid, [])
        over = [loss for loss in losses if all(at_work.get(r, 0) > before for r, before in loss.attempts.items())]
        if len(over) < len(losses):
            self._open[job_uid] = [loss for loss in losses if loss not in over]
        return [self._clock() - loss.since for loss in over]

    def _forget_old(self, job_uid: str) -> None:
        since = self._clock() - REMEMBERED_SECONDS
        seen = self._seen.get(job_uid, {})
        for pod_uid in [pod_uid for pod_uid, loss in seen.items() if loss.since < since]:
            del seen[pod_uid]

    def forget(self, job_uid: str) -> None:
        for known in (self._status, self._seen, self._open):
            known.pop(job_uid, None)


def _last_run(region: RegionStatus) -> int:
    """An attempt that is still being started is the answer to the loss already."""
    return region.attempt if region.state in _AT_WORK else region.attempt - 1
