"""`streamingjob plan`: the graph and its regions, without running anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from snapshot_engine.graph.job_plan import plan
from snapshot_engine.graph.plan_dot import plan_as_dot
from snapshot_engine.graph.plan_svg import plan_as_svg
from snapshot_engine.graph.plan_text import plan_as_text
from snapshot_engine.graph.plan_view import view_of
from snapshot_engine.wire.manifest import load_manifest


def show_plan(manifest: Path, overrides: Sequence[str], output: str) -> None:
    job = load_manifest(manifest, overrides)
    graph = plan(job, folder=manifest.resolve().parent)
    for warning in graph.warnings:
        click.secho(f"warning: {warning}", fg="yellow", err=True)
    view = view_of(graph)
    match output:
        case "json":
            click.echo(json.dumps(view.to_json(), indent=2))
        case "dot":
            click.echo(plan_as_dot(view))
        case "svg":
            click.echo(plan_as_svg(view))
        case _:
            click.echo(plan_as_text(view))
