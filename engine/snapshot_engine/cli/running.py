"""How other commands find a job that runs on this machine: a file with its address and token, for its owner's eyes.

When the job has ended, its last word stands there instead of the address, for whoever has waited for that.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from snapshot_engine.cli.leaving import INTERRUPTED
from snapshot_engine.runtime.job_result import JobResult
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
    if found is not None and is_alive(found):
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
    """The job is over. Its last word stays, and what a successor has announced meanwhile."""
    found = _read(file)
    if found is not None and "url" in found and found["pid"] == os.getpid():
        file.unlink(missing_ok=True)


def code_of(result: JobResult) -> int:
    return INTERRUPTED if result.cut_short else int(result.exit_code)


def leave_word(file: Path, token: str, result: JobResult) -> None:
    """How the job has ended. Written over what is there: on a full disk, which may be what it failed of, a new file
    would find no room."""
    found = _read(file)
    if found is None or found["token"] != token:
        return
    said = "\n  ".join([result.sentence, *result.history])
    word = {"token": token, "pid": os.getpid(), "code": code_of(result), "cutShort": result.cut_short, "said": said}
    with contextlib.suppress(OSError), file.open("r+") as place:
        place.write(json.dumps(word))
        place.truncate()


def last_word(file: Path, token: str) -> dict[str, Any] | None:
    """None if the job has left none: it still runs, or was killed."""
    found = _read(file)
    return found if found is not None and found["token"] == token and "said" in found else None


def find(job: StreamingJob, manifest: Path) -> dict[str, Any]:
    file = address_file(job, manifest)
    found = _read(file)
    if found is None or not is_alive(found):
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


def is_alive(found: dict[str, Any]) -> bool:
    """Whether somebody listens there. Numbers of processes say nothing: every container begins with 1."""
    if "url" not in found:
        return False
    address = urlsplit(found["url"])
    try:
        with socket.create_connection((address.hostname, address.port), timeout=5.0):
            return True
    except OSError:
        return False
