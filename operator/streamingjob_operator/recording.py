"""Writes a job's status before anything is done about it: the write-ahead log."""

from datetime import datetime, timedelta
from typing import Any

from snapshot_engine.wire.spec import API_VERSION, KIND
from streamingjob_operator.kube import STREAMING_JOBS, Kube
from streamingjob_operator.memory import JobMemory
from streamingjob_operator.resource import Job, StreamingJobStatus

PROGRESS_INTERVAL = timedelta(seconds=15)

# What grows while a job runs well. It is worth a write now and then, but not at every checkpoint.
_PROGRESS_FIELDS = ("checkpoint", "reportedAt")


async def record(
    kube: Kube, job: Job, status: StreamingJobStatus, memory: JobMemory, now: datetime
) -> dict[str, Any] | None:
    """The job as it is after the write, None if nothing was worth writing. Raises ApiError 409 if it has changed."""
    if not is_worth_writing(job.status, status, memory.written_at, now):
        return None
    body = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": job.name, "namespace": job.namespace, "resourceVersion": job.resource_version},
        "spec": job.raw_spec,
        "status": status.to_wire(),
    }
    written = await kube.replace(STREAMING_JOBS, body, "status")
    memory.written_at = now
    return written


def is_worth_writing(
    before: StreamingJobStatus, after: StreamingJobStatus, written_at: datetime | None, now: datetime
) -> bool:
    old, new = before.to_wire(), after.to_wire()
    if _without_progress(old) != _without_progress(new):
        return True
    due = written_at is None or now - written_at >= PROGRESS_INTERVAL
    return due and old.get("checkpoint") != new.get("checkpoint")


def _without_progress(status: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in status.items() if key not in _PROGRESS_FIELDS}
    # The first completed checkpoint is news; the ten thousandth is not.
    kept["hasCheckpoint"] = status.get("checkpoint", {}).get("lastCompletedId") is not None
    return kept
