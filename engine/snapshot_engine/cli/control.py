"""`status`, `savepoint` and `stop`: what a running job is asked over its control API."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from datetime import datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

import click

from snapshot_engine.cli import running
from snapshot_engine.cli.errors import ANOTHER_TRY_MAY_HELP
from snapshot_engine.wire import control
from snapshot_engine.wire.manifest import ManifestError, load_manifest
from snapshot_engine.wire.status import SavepointState, SavepointStatus

PAUSE_SECONDS = 0.2


class JobClient:
    def __init__(self, manifest: Path) -> None:
        job = load_manifest(manifest)
        self._manifest = manifest
        self._file = running.address_file(job, manifest)
        self._found = running.find(job, manifest)
        self.url: str = self._found["url"]
        self._token: str = self._found["token"]

    def get(self, path: str) -> Any:
        return self._ask(urllib.request.Request(self.url + path))

    def post(self, path: str, body: Any) -> Any:
        data = json.dumps(body.to_wire()).encode()
        return self._ask(urllib.request.Request(self.url + path, data=data, method="POST"))

    def is_there(self) -> bool:
        """Not whether it answers: that may take long on a busy machine."""
        return running.is_alive(self._found)

    def last_word(self) -> dict[str, Any] | None:
        return running.last_word(self._file, self._token)

    def savepoint(self, name: str) -> SavepointStatus:
        return SavepointStatus.model_validate(self.get(control.savepoint_path(name)))

    def refuse_failed_stop(self, name: str) -> None:
        """Nobody is to wait for the end of a job that goes on. One that has ended meanwhile does not answer."""
        try:
            known = self.savepoint(name)
        except ManifestError:
            return
        if known.state is SavepointState.FAILED:
            raise self.error(f"savepoint {name!r} failed, and the job goes on: {known.error}")

    def error(self, message: str) -> ManifestError:
        return ManifestError(f"{self._manifest}: ", [message])

    def _ask(self, request: urllib.request.Request) -> Any:
        request.add_header("Authorization", f"Bearer {self._token}")
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise self.error(f"the job answered: {error.read().decode()}") from error
        except (OSError, HTTPException, ValueError) as error:
            raise self.error(f"the job does not answer at {self.url}: {error}") from error


def take_savepoint(manifest: Path, name: str | None) -> None:
    client = JobClient(manifest)
    chosen = name or f"manual-{datetime.now():%Y%m%d-%H%M%S}"
    answer = client.post(control.SAVEPOINTS_PATH, control.SavepointRequest(name=chosen))
    asked = SavepointStatus.model_validate(answer)
    if asked.state is not SavepointState.PENDING:
        happened = asked.path or asked.error
        raise client.error(f"a savepoint {chosen!r} was asked for before ({happened}): choose another name")
    while True:
        known = client.savepoint(chosen)
        if known.state is SavepointState.COMPLETED:
            click.echo(known.path)
            return
        if known.state is SavepointState.FAILED:
            raise client.error(f"savepoint {chosen!r} failed: {known.error}")
        time.sleep(PAUSE_SECONDS)


def stop_job(manifest: Path, name: str | None, cancel: bool) -> None:
    client = JobClient(manifest)
    mode = control.StopMode.CHECKPOINT
    if cancel:
        mode = control.StopMode.CANCEL
    elif name is not None:
        mode = control.StopMode.SAVEPOINT
    answer = client.post(control.STOP_PATH, control.StopRequest(mode=mode, name=name))
    if name is not None and control.StopResponse.model_validate(answer).savepoint is None:
        raise client.error(f"the job is stopping already, since another stop was first: there will be no {name!r}")
    while client.is_there():
        if name is not None:
            client.refuse_failed_stop(name)
        time.sleep(PAUSE_SECONDS)
    _tell_end(client.last_word(), cancel)


def _tell_end(word: dict[str, Any] | None, cancel: bool) -> None:
    """A stop is done well only if the job ended as it was asked to; else the exit code is that of `run`."""
    if word is None:
        why = "the job is gone without a word, probably killed: it may lack its last checkpoint"
        click.secho(f"error: {why}; run it again, it goes on from the latest one", fg="red", err=True)
        raise SystemExit(ANOTHER_TRY_MAY_HELP)
    if word["code"] and not (cancel and word["cutShort"]):
        click.secho(f"error: the job was not stopped as asked, it {word['said']}", fg="red", err=True)
        raise SystemExit(word["code"])
    click.echo(word["said"])
