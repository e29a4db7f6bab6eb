"""How other commands find a job that runs on this machine: a file with its address and token, for its owner's eyes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from snapshot_engine.wire.manifest import ManifestError
from snapshot_engine.wire.spec import StreamingJob

FOLDER = ".streamingjob"


def address_file(job: StreamingJob, manifest: Path) -> Path:
    return manifest.resolve().parent / FOLDER / f"{job.metadata.namespace}-{job.metadata.name}.json"


def announce(file: Path, port: int, token: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(mode=0o600)
    file.chmod(0o600)
    file.write_text(json.dumps({"url": f"http://127.0.0.1:{port}", "token": token, "pid": os.getpid()}))


def find(job: StreamingJob, manifest: Path) -> dict[str, Any]:
    file = address_file(job, manifest)
    if not file.exists():
        raise ManifestError(
            f"{manifest}: ",
            [f"no job {job.metadata.name!r} is running here; start it with: streamingjob run {manifest}"],
        )
    found: dict[str, Any] = json.loads(file.read_text())
    return found
