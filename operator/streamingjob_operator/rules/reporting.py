"""Takes over what the JobMaster reports into the job's status."""

from snapshot_engine.wire.status import JobStatus, Phase, RegionState, RegionStatus
from streamingjob_operator.draft import Draft, fit
from streamingjob_operator.resource import MAX_STATUS_REGIONS, CheckpointSummary, Reason

_AT_WORK = (RegionState.RUNNING, RegionState.FINISHED)


def absorb_report(draft: Draft) -> None:
    report, driver = draft.observation.report, draft.status.driver
    draft.status.silent_since = draft.observation.silent_since if driver is not None else None
    if report is None or driver is None or report.status.generation != driver.generation or draft.is_terminal:
        return
    _announce_recovered_regions(draft, report.status)
    _take_over_regions(draft, report.status)
    _take_over_checkpoint(draft, report.status)
    draft.status.reported_at = report.received_at
    draft.status.region_restarts = report.status.restarts
    draft.status.error = report.status.error
    if driver.ready_at is None and all_at_work(report.status):
        driver.ready_at = draft.now
        draft.status.last_good_hash = driver.spec_hash
        draft.status.last_good_restore = driver.restore
        draft.status.left_good_state = False
        count = len(report.status.regions)
        regions = f"All {count} regions run" if count > 1 else "The job's one region runs"
        draft.announce(Reason.RUNNING, f"{regions} under {driver.pod_name}")


def all_at_work(status: JobStatus) -> bool:
    regions = status.regions
    return status.phase is Phase.RUNNING and bool(regions) and all(r.state in _AT_WORK for r in regions)


def _take_over_regions(draft: Draft, report: JobStatus) -> None:
    at_work = sum(region.state in _AT_WORK for region in report.regions)
    draft.status.regions_ready = f"{at_work}/{len(report.regions)}"
    in_trouble_first = sorted(report.regions, key=lambda region: (region.state in _AT_WORK, -region.restarts))
    shown = {region.id for region in in_trouble_first[:MAX_STATUS_REGIONS]}
    draft.status.regions = [_shortened(region) for region in report.regions if region.id in shown]


def _shortened(region: RegionStatus) -> RegionStatus:
    """A driver of another release may not know how much the API server takes."""
    failure = region.last_failure
    if failure is None:
        return region
    return region.model_copy(update={"last_failure": failure.model_copy(update={"message": fit(failure.message)})})


def _take_over_checkpoint(draft: Draft, report: JobStatus) -> None:
    reported = report.checkpoint
    draft.note_completed(reported.path)
    last_failure = fit(reported.last_failure) if reported.last_failure else None
    if reported.last_completed_id is None:
        # A driver that has completed none yet does not undo what its predecessor completed.
        draft.status.checkpoint.failed = reported.failed
        draft.status.checkpoint.last_failure = last_failure
        return
    draft.status.checkpoint = CheckpointSummary.model_validate(reported.to_wire())
    draft.status.checkpoint.last_failure = last_failure


def _announce_recovered_regions(draft: Draft, report: JobStatus) -> None:
    before = {region.id: region for region in draft.status.regions}
    for region in report.regions:
        if _has_recovered(before.get(region.id), region):
            away = _seconds_away(region)
            draft.announce(Reason.REGION_RECOVERED, _recovery_message(report, region, away))
            if away is not None:
                draft.recoveries.append(away)


def _has_recovered(before: RegionStatus | None, now: RegionStatus) -> bool:
    if now.state is not RegionState.RUNNING or now.last_failure is None or before is None:
        return False
    return before.state is not RegionState.RUNNING or before.attempt < now.attempt


def _seconds_away(region: RegionStatus) -> float | None:
    if region.running_since is None or region.last_failure is None:
        return None
    return (region.running_since - region.last_failure.at).total_seconds()


def _recovery_message(report: JobStatus, region: RegionStatus, away: float | None) -> str:
    came_from = region.last_restored_checkpoint
    start = "with no checkpoint" if came_from is None else f"from checkpoint {came_from}"
    took = f" {away:.2f} s after its failure was noticed{_phases(report, region)}" if away is not None else ""
    cause = region.last_failure.cause if region.last_failure is not None else "unknown"
    return f"Region {region.id} runs again{took}, attempt {region.attempt} {start} (cause: {cause})"


def _phases(report: JobStatus, region: RegionStatus) -> str:
    """Where the time went, as far as the driver knows."""
    history = report.restart_history
    entry = next((each for each in history if (each.region, each.attempt) == (region.id, region.attempt)), None)
    if entry is None or not entry.phases:
        return ""
    told = {phase: f"{phase} {seconds:.2f}" for phase, seconds in entry.phases.items()}
    detect = told.pop("detect", None)
    parts = [f"{detect} before" if detect is not None else "", ", ".join(told.values())]
    return f" ({'; '.join(part for part in parts if part)})"
