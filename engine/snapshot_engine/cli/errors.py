"""Errors as people should see them: what is wrong and what to do, without a traceback; and the exit code of each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

USAGE = 2
ANOTHER_TRY_MAY_HELP = 1


def told_to_the_user(command: Callable[..., None]) -> Callable[..., None]:
    """Turn the errors that a user can act on into a message and an exit code. Others keep their traceback."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except Exception as error:
            code = exit_code_of(error)
            if code is None:
                raise
            click.secho(f"error: {error}", fg="red", err=True)
            raise SystemExit(code) from error

    return run


def exit_code_of(error: BaseException) -> int | None:
    from snapshot_engine.graph.loading import LoadError
    from snapshot_engine.graph.problems import PlanError
    from snapshot_engine.runtime.commits import CommitFailed
    from snapshot_engine.runtime.executor_count import TooFewSlots
    from snapshot_engine.runtime.job_settings import Unsupported
    from snapshot_engine.runtime.restore import UnmatchedState
    from snapshot_engine.storage import errors as storage
    from snapshot_engine.wire.manifest import ManifestError
    from snapshot_engine.wire.status import ExitCode

    table: list[tuple[type[BaseException], int]] = [
        (ManifestError, USAGE),
        (click.UsageError, USAGE),
        (LoadError, ExitCode.INVALID_PIPELINE),
        (Unsupported, ExitCode.INVALID_PIPELINE),
        (PlanError, ExitCode.INVALID_PIPELINE),
        (TooFewSlots, ExitCode.INVALID_PIPELINE),
        (storage.BelongsToAnotherJob, ExitCode.FOREIGN_STATE),
        (storage.OwnershipLost, ExitCode.FENCED),
        (CommitFailed, ExitCode.UNREADABLE_STATE),
        (UnmatchedState, ExitCode.UNREADABLE_STATE),
        (storage.StorageUnavailable, ANOTHER_TRY_MAY_HELP),
        (storage.StorageError, ExitCode.UNREADABLE_STATE),
    ]
    return next((int(code) for kind, code in table if isinstance(error, kind)), None)
