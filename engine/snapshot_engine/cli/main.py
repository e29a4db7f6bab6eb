"""The commands and their options; what they do is in the other files of this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from snapshot_engine.cli.errors import told_to_the_user

MANIFEST = click.argument("manifest", type=click.Path(dir_okay=False, path_type=Path))
SET = click.option(
    "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Override a field, such as spec.parallelism=4."
)
OUTPUT = click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)


class Duration(click.ParamType[float]):
    """Seconds, from a number with its unit."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from snapshot_engine.wire.quantities import parse_duration

        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class SavepointName(click.ParamType[str]):
    """A name that the job will take: asked for before anything is sent to it."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        import re

        from snapshot_engine.wire.control import SAVEPOINT_NAME_PATTERN

        if not re.match(SAVEPOINT_NAME_PATTERN, value):
            self.fail(f"{value!r} is no savepoint's name: use lower-case letters, digits, '-' and '.'", param, ctx)
        return str(value)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="streamingjob")
@click.option("-v", "--verbose", is_flag=True, help="Log what the engine does.")
def main(verbose: bool) -> None:
    """Checkpointed streaming jobs on Spark.

    Exit codes: 0 finished or stopped as asked, 2 wrong usage or manifest, 64 restarts used up, 65 the pipeline cannot
    be planned, 66 the storage belongs to another job, 67 another driver has taken over, 68 the state cannot be read,
    130 interrupted before the job had begun.
    """
    import logging

    logging.basicConfig(
        level=logging.INFO if verbose else logging.ERROR, format="%(asctime)s %(levelname)s %(message)s"
    )
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


@main.command()
@MANIFEST
@SET
@click.option("--restore", metavar="WHICH", help="A checkpoint's id, a savepoint's name, or a path, to start from.")
@click.option(
    "--for", "seconds", type=Duration(), metavar="TIME", help="Stop after this time, with a last checkpoint: 30s, 5m."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Of the control API and /metrics; a free one if not given."
)
@click.option("--plain", is_flag=True, help="Lines instead of a live table, as when the output is no terminal.")
@OUTPUT
@told_to_the_user
def run(
    manifest: Path,
    overrides: tuple[str, ...],
    restore: str | None,
    seconds: float | None,
    port: int,
    plain: bool,
    output: str,
) -> None:
    """Run a job on an embedded Spark until it ends; Ctrl-C stops it with a last checkpoint.

    On a terminal a live table shows how it goes, elsewhere a line for each event; with -o json a JSON object.
    """
    from snapshot_engine.cli.leaving import leaving_when_signalled

    with leaving_when_signalled():
        from snapshot_engine.cli.run import run_manifest
        from snapshot_engine.cli.view import view_for

        raise SystemExit(run_manifest(manifest, overrides, restore, seconds, port, view_for(output, plain)))


@main.command(hidden=True)
@click.option("--plan", is_flag=True, help="Only say whether the job could run.")
@click.option("--delete-state", is_flag=True, help="Remove the job's checkpoints, not its savepoints.")
def driver(plan: bool, delete_state: bool) -> None:
    """Run the job of this pod, as the operator launched it."""
    import logging

    from snapshot_engine.cli.driver import check, clean, drive

    logging.getLogger().setLevel(logging.INFO)
    if plan:
        raise SystemExit(check())
    raise SystemExit(clean() if delete_state else drive())


@main.command()
@MANIFEST
@SET
@click.option("-o", "--output", type=click.Choice(["text", "json", "dot", "svg"]), default="text", show_default=True)
@told_to_the_user
def plan(manifest: Path, overrides: tuple[str, ...], output: str) -> None:
    """Show the job's graph and its regions without running it."""
    from snapshot_engine.cli.plan import show_plan

    show_plan(manifest, overrides, output)


@main.command()
@MANIFEST
@SET
@OUTPUT
@told_to_the_user
def checkpoints(manifest: Path, overrides: tuple[str, ...], output: str) -> None:
    """List the checkpoints and savepoints in the job's storage."""
    from snapshot_engine.cli.checkpoints import list_checkpoints

    list_checkpoints(manifest, overrides, output)


@main.command()
@MANIFEST
@click.argument("which", required=False)
@SET
@OUTPUT
@click.option("--verify", is_flag=True, help="Read every piece and compare it with its checksum.")
@told_to_the_user
def inspect(manifest: Path, which: str | None, overrides: tuple[str, ...], output: str, verify: bool) -> None:
    """Show what is in a checkpoint (the latest if none is named): state, positions, its critical path."""
    from snapshot_engine.cli.checkpoints import inspect_checkpoint

    inspect_checkpoint(manifest, which, overrides, output, verify)


@main.command()
@MANIFEST
@OUTPUT
@click.option("-w", "--watch", is_flag=True, help="Go on until the job has ended: a live table, lines, or JSON lines.")
@told_to_the_user
def status(manifest: Path, output: str, watch: bool) -> None:
    """Show how a running job is."""
    from snapshot_engine.cli.control import JobClient
    from snapshot_engine.cli.watch import show_status, watch_status

    client = JobClient(manifest)
    if watch:
        watch_status(client, output)
    else:
        show_status(client, output)


@main.command()
@MANIFEST
@click.option("--name", type=SavepointName(), help="The savepoint's name; one from the time if not given.")
@told_to_the_user
def savepoint(manifest: Path, name: str | None) -> None:
    """Take a savepoint of a running job and print where it is."""
    from snapshot_engine.cli.control import take_savepoint

    take_savepoint(manifest, name)


@main.command()
@MANIFEST
@click.option(
    "--savepoint",
    "name",
    type=SavepointName(),
    metavar="NAME",
    help="Take a savepoint of this name and stop with it.",
)
@click.option("--cancel", is_flag=True, help="Stop at once, without a last checkpoint.")
@told_to_the_user
def stop(manifest: Path, name: str | None, cancel: bool) -> None:
    """Stop a running job, with a last checkpoint."""
    from snapshot_engine.cli.control import stop_job

    if name is not None and cancel:
        raise click.UsageError("--cancel takes no savepoint: leave out either --cancel or --savepoint")
    stop_job(manifest, name, cancel)
