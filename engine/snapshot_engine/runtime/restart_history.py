"""Every restart of a region: why, from which checkpoint, and how long each phase of it took.

The phases follow each other without a gap, on the driver's one monotonic clock: from the last word of the slot that
failed (detect) until its slots are gone (cancel), until the restart is due (wait), until all new slots are there
(schedule), have restored their state (restore), and the first rows leave the region (first_output).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from snapshot_engine.protocol.checkpoints import Completed
from snapshot_engine.protocol.critical_path import CriticalPath
from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.protocol.region_run import RegionRun, RegionState
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.wire.status import RestartEntry

if TYPE_CHECKING:
    from snapshot_engine.runtime.job_result import JobResult

TAKEN_ALONG = "TakenAlong"
"""The region did not fail itself: it restarts with one that did."""
CHECKPOINTS_FAILED = "CheckpointsFailed"
LONGEST_MESSAGE = 500
FIRST_OUTPUT = "first_output"
_BETWEEN = {
    "cancel": (RegionState.CANCELLING, RegionState.WAITING),
    "wait": (RegionState.WAITING, RegionState.SCHEDULING),
    "schedule": (RegionState.SCHEDULING, RegionState.DEPLOYING),
    "restore": (RegionState.DEPLOYING, RegionState.RUNNING),
}
PHASES = ("detect", *_BETWEEN, FIRST_OUTPUT)


class RestartHistory(JobEvents):
    """Tells `begun` of each restart that begins, and `settled` when no more will be learnt about it."""

    def __init__(
        self,
        begun: Iterable[Callable[[RestartEntry], None]],
        settled: Iterable[Callable[[RestartEntry], None]],
    ) -> None:
        self._begun = tuple(begun)
        self._settled = tuple(settled)
        self._open: dict[int, RestartEntry] = {}
        self._runs: dict[int, RegionRun] = {}
        self._why_all: str | None = None

    def region_failed(self, run: RegionRun, cause: str, message: str, traceback: str, silent: float) -> None:
        self._settle(run.region, recovered=False)  # one that fails again on its way up
        entry = self._begin(run.region, cause, message)
        entry.phases["detect"] = silent
        self._runs[run.region] = run

    def all_failed(self, reason: str) -> None:
        self._why_all = reason

    def starting(self, attempts: Mapping[int, Attempt], checkpoint: int | None) -> None:
        for region, attempt in attempts.items():
            if attempt.number > 1:
                entry = self._open.get(region) or self._begin_without_failure(region)
                entry.attempt = attempt.number
                entry.checkpoint_id = checkpoint
        self._why_all = None

    def region_running(self, run: RegionRun) -> None:
        if run.region in self._open:
            self._runs[run.region] = run
            self._fill_in(run)

    def region_delivers(self, run: RegionRun, after: float) -> None:
        if run.region in self._open:
            self._open[run.region].phases[FIRST_OUTPUT] = after
            self._settle(run.region, recovered=True)

    def region_finished(self, run: RegionRun) -> None:
        self._settle(run.region, recovered=True)

    def checkpoint_completed(
        self, manifest: Manifest, outcome: Completed, path: CriticalPath, uri: str, written: int
    ) -> None:
        """A region that was there at the trigger and has put out nothing yet has nothing to put out.

        One that failed while this checkpoint was completing is not there: its restart goes on.
        """
        for region, run in list(self._runs.items()):
            ran_since = run.entered.get(RegionState.RUNNING)
            if ran_since is not None and ran_since <= outcome.triggered_at:
                self._settle(region, recovered=True)

    def ended(self, result: JobResult) -> None:
        for region in list(self._open):
            self._settle(region, recovered=False)

    def _begin(self, region: int, cause: str, message: str) -> RestartEntry:
        entry = RestartEntry(
            region=str(region), cause=cause, message=message[:LONGEST_MESSAGE], failed_at=datetime.now(UTC)
        )
        self._open[region] = entry
        for tell in self._begun:
            tell(entry)
        return entry

    def _begin_without_failure(self, region: int) -> RestartEntry:
        if self._why_all is not None:
            return self._begin(region, CHECKPOINTS_FAILED, self._why_all)
        return self._begin(region, TAKEN_ALONG, "restarts with a region that failed")

    def _fill_in(self, run: RegionRun) -> None:
        entry, entered = self._open[run.region], run.entered
        for phase, (start, end) in _BETWEEN.items():
            if start in entered and end in entered:
                entry.phases[phase] = entered[end] - entered[start]
        entry.seconds = sum(entry.phases.values())

    def _settle(self, region: int, recovered: bool) -> None:
        if region not in self._open:
            return
        if region in self._runs:
            self._fill_in(self._runs.pop(region))
        entry = self._open.pop(region)
        entry.phases = {phase: entry.phases[phase] for phase in PHASES if phase in entry.phases}
        if not recovered:
            entry.seconds = None  # how far it came is in its phases
        for tell in self._settled:
            tell(entry)


def recall_restarts(stored: Iterable[Mapping[str, Any]]) -> list[RestartEntry]:
    """Those of earlier drivers, as storage remembers them."""
    return [RestartEntry.model_validate(entry) for entry in stored]
