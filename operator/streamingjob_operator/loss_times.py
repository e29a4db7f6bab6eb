"""How long each lost pod kept its regions down: from the event that told of it until all of them run again."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from snapshot_engine.wire.control import PodLostRequest
from snapshot_engine.wire.status import JobStatus, RegionState
from streamingjob_operator.observation import PodView

_AT_WORK = (RegionState.RUNNING, RegionState.FINISHED)


@dataclass
class _Loss:
    since: float
    attempts: dict[str, int]
    """Of the regions that had slots there, as last reported before: only newer attempts count."""


class LossTimes:
    """On one monotonic clock. What was seen before this operator started is not measured."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, float] = {}
        self._open: dict[str, list[_Loss]] = {}

    def pod_seen(self, pod: PodView, deleted: bool) -> None:
        """Remembers the first event that says that a pod is going or gone."""
        if deleted or pod.ended or pod.exit is not None or pod.deleting_since is not None:
            self._seen.setdefault(pod.uid, self._clock())

    def told(self, job_uid: str, request: PodLostRequest, status: JobStatus) -> None:
        """The driver knows of the loss. `status` is its report that still had the executor, with its regions."""
        since = self._seen.pop(request.pod_uid or "", self._clock())
        regions = {r for e in status.executors if e.executor_id == request.executor_id for r in e.regions}
        attempts = {region.id: region.attempt for region in status.regions if region.id in regions}
        if attempts:
            self._open.setdefault(job_uid, []).append(_Loss(since, attempts))

    def reported(self, job_uid: str, status: JobStatus) -> list[float]:
        """The seconds of every loss whose regions all run again by this report."""
        at_work = {region.id: region.attempt for region in status.regions if region.state in _AT_WORK}
        losses = self._open.pop(job_uid, [])
        over = [loss for loss in losses if all(at_work.get(r, 0) > before for r, before in loss.attempts.items())]
        if len(over) < len(losses):
            self._open[job_uid] = [loss for loss in losses if loss not in over]
        return [self._clock() - loss.since for loss in over]

    def forget(self, job_uid: str) -> None:
        self._open.pop(job_uid, None)
