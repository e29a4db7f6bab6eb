"""How other commands find a job that runs on this machine: a file with its address and token, for its owner's eyes."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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


def refuse_second(job: StreamingJob, manifest: Path) -> None:
    """The job that runs here already would be fenced, and end, without anybody having said so."""
    file = address_file(job, manifest)
    found = _read(file)
    if found is not None and _is_alive(found):
        raise ManifestError(
            f"{manifest}: ",
            [
                f"job {job.metadata.name!r} is running here already, as process {found['pid']}; end it first with: "
                f"streamingjob stop {manifest}"
            ],
        )


def refuse_taken_port(port: int) -> None:
    """0 is any that is free."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        why = f"--port {port} cannot be used: {error.strerror}; leave it out for a free one"
        raise ManifestError("", [why]) from error


def withdraw(file: Path) -> None:
    """The job has ended. What a successor has announced meanwhile stays."""
    found = _read(file)
    if found is not None and found["pid"] == os.getpid():
        file.unlink(missing_ok=True)


def find(job: StreamingJob, manifest: Path) -> dict[str, Any]:
    file = address_file(job, manifest)
    found = _read(file)
    if found is None or not _is_alive(found):
        raise ManifestError(
            f"{manifest}: ",
            [f"no job {job.metadata.name!r} is running here; start it with: streamingjob run {manifest}"],
        )
    return found


def _read(file: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return found


def _is_alive(found: dict[str, Any]) -> bool:
    """Whether somebody listens there. Numbers of processes say nothing: every container begins with 1."""
    address = urlsplit(found["url"])
    try:
        with socket.create_connection((address.hostname, address.port), timeout=5.0):
            return True
    except OSError:
        return False
