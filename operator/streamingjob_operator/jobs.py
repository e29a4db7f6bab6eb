"""Reads a StreamingJob, as the API server gives it, into the typed one."""

import logging
from typing import Any

from pydantic import ValidationError

from snapshot_engine.wire.manifest import ManifestError, validate_job
from snapshot_engine.wire.quantities import ACCEPTED_BEFORE
from streamingjob_operator import naming
from streamingjob_operator.pods import read_time
from streamingjob_operator.resource import Job, StreamingJobStatus

log = logging.getLogger(__name__)


def read_job(body: dict[str, Any]) -> Job:
    """Never fails on what a user wrote: a spec that cannot be used is told in `spec_error`."""
    metadata = body["metadata"]
    created = read_time(metadata["creationTimestamp"])
    assert created is not None, "the API server always sets it"
    spec, spec_error, status = None, None, _read_status(body)
    context = ACCEPTED_BEFORE if _runs(body.get("spec") or {}, status) else None
    try:
        spec = validate_job({**body, "status": None}, "", context=context).spec
    except ManifestError as error:
        spec_error = "; ".join(problem.removeprefix(": ") for problem in error.problems)
    return Job(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=metadata["generation"],
        resource_version=metadata["resourceVersion"],
        deleting_since=read_time(metadata.get("deletionTimestamp")),
        finalizers=tuple(metadata.get("finalizers") or ()),
        spec=spec,
        spec_error=spec_error,
        raw_spec=body.get("spec") or {},
        status=status,
        created_at=created,
    )


def _runs(raw_spec: dict[str, Any], status: StreamingJobStatus) -> bool:
    """Whether this very spec runs already, or ran last: then it was accepted, be it by an earlier release."""
    present = status.driver or status.launch
    running = present.spec_hash if present is not None else status.last_good_hash
    return running is not None and running == naming.spec_hash(raw_spec)


def _read_status(body: dict[str, Any]) -> StreamingJobStatus:
    try:
        return StreamingJobStatus.model_validate(body.get("status") or {})
    except ValidationError as error:
        # Losing the record of a driver would mean a second one: better to stand still than to guess.
        key = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
        raise UnreadableStatusError(f"{key}: the status cannot be read, so nothing is done: {error}") from error


class UnreadableStatusError(RuntimeError):
    """The write-ahead log of a job is damaged; somebody has to look at it."""
