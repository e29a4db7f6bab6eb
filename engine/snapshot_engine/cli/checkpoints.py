"""`streamingjob checkpoints` and `inspect`: what lies in a job's storage. Reads only; the job need not run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from snapshot_engine.cli.console import console
from snapshot_engine.cli.status_table import human_bytes
from snapshot_engine.runtime.embedded import open_job_store, storage_uri_of
from snapshot_engine.runtime.job_settings import JobSettings, savepoint_path, settings_of
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.wire.manifest import load_manifest


def _settings(manifest: Path, overrides: Sequence[str]) -> JobSettings:
    job = load_manifest(manifest, overrides)
    return settings_of(job, storage_uri_of(job, manifest.resolve().parent))


def list_checkpoints(manifest: Path, overrides: Sequence[str], output: str) -> None:
    store = open_job_store(_settings(manifest, overrides))
    retained = {entry.checkpoint for entry in store.list()}
    history = list(store.history())
    if output == "json":
        rows = [{**entry, "retained": entry["id"] in retained} for entry in history]
        click.echo(json.dumps({"checkpoints": rows, "savepoints": list(store.savepoints())}, indent=2))
        return
    if not history:
        click.echo("no checkpoint has been completed yet")
        return
    table = Table("Id", "Outcome", "Completed", "Duration", "Size", "Kept", box=None, header_style="bold")
    for entry in reversed(history):
        table.add_row(*_row(entry, retained))
    out = console()
    out.print(table)
    for path in store.savepoints():
        out.print(f"savepoint {path}")


def _row(entry: Any, retained: set[int]) -> list[str]:
    completed = entry.get("completedAt")
    took = "" if entry.get("triggeredAt") is None else f"{1000 * (completed - entry['triggeredAt']):.0f} ms"
    what = f"savepoint {entry['savepoint']}" if entry.get("savepoint") else entry["outcome"]
    size = "" if entry.get("fullSizeBytes") is None else human_bytes(entry["fullSizeBytes"])
    when = datetime.fromtimestamp(completed).strftime("%Y-%m-%d %H:%M:%S")
    return [str(entry["id"]), entry.get("reason") or what, when, took, size, "yes" if entry["id"] in retained else ""]


def inspect_checkpoint(manifest: Path, which: str | None, overrides: Sequence[str], output: str, verify: bool) -> None:
    settings = _settings(manifest, overrides)
    store = open_job_store(settings)
    found = store.load(None if which is None else savepoint_path(which))
    if verify:
        reader = settings.storage.reader(store.blobs)
        for handle in found.handles():
            reader.read_bytes(handle)
    if output == "json":
        click.echo(json.dumps(found.to_json(), indent=2))
        return
    _show(found, verify)


def _show(found: Manifest, verified: bool) -> None:
    out = console()
    took, size = 1000 * (found.completed_at - found.triggered_at), human_bytes(found.size())
    out.print(f"[bold]{found.title}[/bold] of {found.job}, generation {found.generation}, {took:.0f} ms, {size}")
    if verified:
        out.print("every piece matches its checksum")
    table = Table(
        "Vertex", "Subtasks", "Operator", "State", "Pieces", "Size", "To commit", box=None, header_style="bold"
    )
    for uid, vertex in found.vertices.items():
        for operator, states in _by_operator(vertex.subtasks.values()).items():
            pieces = [piece for state in states for piece in state.pieces]
            table.add_row(
                uid,
                str(vertex.parallelism),
                operator,
                states[0].kind,
                str(len(pieces)),
                human_bytes(sum(piece.size for piece in pieces)),
                str(sum(len(state.committables) for state in states)),
            )
    out.print(table)
    if found.critical_path:
        out.print("[bold]critical path[/bold]")
        for step in found.critical_path:
            times = step.timings
            out.print(
                f"  {step.subtask}: waited {1000 * times.start_delay:.1f} ms, "
                f"synchronous {1000 * times.sync:.1f} ms, asynchronous {1000 * times.async_:.1f} ms",
                highlight=False,
            )


def _by_operator(subtasks: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for subtask in subtasks:
        for state in subtask.operators:
            found.setdefault(state.uid, []).append(state)
    return found
