"""Posts Kubernetes Events about jobs. An event that cannot be posted is logged and not missed."""

import logging
from datetime import UTC, datetime

from snapshot_engine.wire.spec import API_VERSION, KIND
from streamingjob_operator.actions import Announcement
from streamingjob_operator.kube import EVENTS, ApiError, Kube
from streamingjob_operator.resource import Job

log = logging.getLogger(__name__)

COMPONENT = "streamingjob-operator"
MAX_EVENT_MESSAGE = 1024


class Announcer:
    def __init__(self, kube: Kube, identity: str) -> None:
        self._kube = kube
        self._identity = identity

    async def announce(self, job: Job, announcement: Announcement) -> None:
        level = logging.WARNING if announcement.warning else logging.INFO
        log.log(level, "%s: %s: %s", job.key, announcement.reason, announcement.message)
        try:
            await self._kube.create(EVENTS, self._event(job, announcement))
        except ApiError as error:
            log.warning("%s: the event %s could not be posted: %s", job.key, announcement.reason, error)

    def _event(self, job: Job, announcement: Announcement) -> dict[str, object]:
        now = datetime.now(UTC)
        stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{job.name}.", "namespace": job.namespace},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": job.name,
                "namespace": job.namespace,
                "uid": job.uid,
            },
            "type": "Warning" if announcement.warning else "Normal",
            "reason": announcement.reason.value,
            "message": announcement.message[:MAX_EVENT_MESSAGE],
            "action": announcement.reason.value,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._identity,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
