"""What operator and driver say to each other: typed, versioned, and all that the operator may import of the
engine.

`spec` is what users write, `manifest` reads it from a file, `status` is what the JobMaster reports, `control`
how it is asked. Imports nothing else of the engine.
"""

from snapshot_engine.wire.manifest import ManifestError, apply_overrides, load_manifest, parse_manifest
from snapshot_engine.wire.spec import StreamingJob, StreamingJobSpec
from snapshot_engine.wire.status import JobStatus

__all__ = [
    "JobStatus",
    "ManifestError",
    "StreamingJob",
    "StreamingJobSpec",
    "apply_overrides",
    "load_manifest",
    "parse_manifest",
]
