"""Looks after the driver pod: confirms it, and answers its loss, its end and its silence."""

from snapshot_engine.wire.status import ExitCode, Phase
from streamingjob_operator import naming
from streamingjob_operator.actions import DeletePod, FetchDriverLog, LaunchDriver
from streamingjob_operator.draft import Draft, Note
from streamingjob_operator.observation import PodView
from streamingjob_operator.resource import MAX_MESSAGE_LENGTH, JobPhase, OperationStep, Reason
from streamingjob_operator.rules.launching import ask_to_go
from streamingjob_operator.rules.restarts import restart_driver
from streamingjob_operator.rules.rollback import can_roll_back, roll_back

SILENT_AFTER_SECONDS = 20.0
RETRY_REFUSED_LAUNCH_SECONDS = 10.0
SIGNALLED = 128
"""Exit codes above are the signal's number plus this."""
LOG_MARK = "\nLast log lines:\n"

# Exit codes that a new driver would only repeat.
FATAL_EXITS = {
    ExitCode.RESTARTS_EXHAUSTED: Reason.RESTARTS_EXHAUSTED,
    ExitCode.INVALID_PIPELINE: Reason.INVALID_PIPELINE,
    ExitCode.FOREIGN_STATE: Reason.FOREIGN_STATE,
    ExitCode.UNREADABLE_STATE: Reason.UNREADABLE_STATE,
}
_ENDS_BY_KUBERNETES = ("Evicted", "Preempting", "Preempted", "NodeLost", "NodeShutdown", "Terminated")
_LOST_SIGHT_OF = "ContainerStatusUnknown"
_STEPS_THAT_END_THE_DRIVER = (OperationStep.STOP, OperationStep.KILL, OperationStep.CLEAN)


def watch_driver(draft: Draft) -> None:
    if draft.status.driver is None:
        return
    if draft.is_terminal:
        _let_no_driver_live(draft)
        _keep_log_of_failure(draft)
        return
    operation = draft.status.operation
    if operation is not None and operation.step in _STEPS_THAT_END_THE_DRIVER:
        return
    pod = draft.observation.driver_pod()
    known_uid = draft.status.driver.pod_uid
    if pod is None or (known_uid is not None and pod.uid != known_uid):
        _answer_missing_pod(draft)
        return
    _confirm(draft, pod)
    if pod.ended:
        _answer_end(draft, pod)
    elif pod.deleting_since is not None:
        restart_driver(draft, "is being deleted", costs=False)
    elif pod.start_problem is not None:
        draft.waiting = Note(Reason.DRIVER_CANNOT_START, f"{pod.name}: {pod.start_problem}")
    else:
        _watch_silence(draft, pod)


def _let_no_driver_live(draft: Draft) -> None:
    """Of a job that is recorded to have ended: the operator may have died before it deleted the one that it gave up."""
    for pod in draft.observation.pods_of(naming.DRIVER):
        if pod.living:
            ask_to_go(draft, pod)


def _confirm(draft: Draft, pod: PodView) -> None:
    assert draft.status.driver is not None
    draft.status.driver.pod_uid = pod.uid
    draft.status.driver.image = pod.image
    draft.status.driver.render_version = pod.render_version
    draft.status.driver.size = pod.size


def _answer_missing_pod(draft: Draft) -> None:
    driver = draft.status.driver
    assert driver is not None
    if driver.pod_uid is not None:
        restart_driver(draft, "is gone", costs=False)
    elif draft.observation.refused_launch is not None:
        message = f"{driver.pod_name} cannot be made: {draft.observation.refused_launch.message}"
        draft.waiting = Note(Reason.DRIVER_CANNOT_START, message)
        draft.degraded.append(draft.waiting)  # what is wrong with the live spec would hide it elsewhere
        draft.act(LaunchDriver(driver))
        draft.look_again(RETRY_REFUSED_LAUNCH_SECONDS)
    else:
        # Recorded, but nobody knows whether its pod ever was: one that was made and lost may still run
        # somewhere.
        # A generation is cheap, two drivers of the same one are not.
        draft.intend_launch(driver.spec_hash, driver.restore)


def _answer_end(draft: Draft, pod: PodView) -> None:
    end = pod.exit
    if pod.phase == "Succeeded" or (end is not None and end.code == ExitCode.FINISHED):
        _answer_success(draft, pod)
    elif end is not None and end.code in FATAL_EXITS:
        _answer_fatal_end(draft, FATAL_EXITS[ExitCode(end.code)], f"{pod.name} {describe_end(pod)}")
    else:
        restart_driver(draft, describe_end(pod), costs=not _was_ended_by_kubernetes(pod))


def _was_ended_by_kubernetes(pod: PodView) -> bool:
    """Also if the kubelet did not let it run at all, or has lost sight of it."""
    if pod.exit is not None and pod.exit.reason == _LOST_SIGHT_OF:
        return True
    never_let_run = pod.exit is None and not pod.init_failed
    return never_let_run or pod.status_reason in _ENDS_BY_KUBERNETES


def _answer_success(draft: Draft, pod: PodView) -> None:
    report = pod.exit.report if pod.exit is not None else None
    if report is None:
        # One that was told to stop exits as well. If this one had finished, its successor finds that out.
        restart_driver(draft, "ended without saying whether the job has finished", costs=True)
        return
    if report.phase is Phase.STOPPED:
        # Stopped, and not by an operation of ours that is still under way: the spec says that it should run.
        restart_driver(draft, "was stopped", costs=False)
        return
    draft.note_completed(report.checkpoint_path)
    draft.finish()
    if report.last_completed_checkpoint is not None:
        draft.status.checkpoint.last_completed_id = report.last_completed_checkpoint


def _answer_fatal_end(draft: Draft, reason: Reason, why: str) -> None:
    if can_roll_back(draft):
        roll_back(draft, f"cannot run: {why}")
    else:
        draft.fail(reason, why)


def describe_end(pod: PodView) -> str:
    end = pod.exit
    if end is None:
        what = "failed" if pod.status_reason is None else f"was ended by Kubernetes ({pod.status_reason})"
        return f"{what}: {pod.never_ran}" if pod.never_ran else what
    if end.reason == "OOMKilled":
        return f"was killed because it took more memory than it may have (spec.{pod.component}.memory)"
    if end.report is None and end.code > SIGNALLED:
        return f"was killed by signal {end.code - SIGNALLED}"  # the log's last lines know nothing of that
    error = end.report.error if end.report is not None and end.report.error else end.message
    detail = f": {error}" if error else ""
    return f"exited with code {end.code} ({end.reason}){detail}"


def is_cut_off(draft: Draft, pod: PodView) -> bool:
    """It is silent, and nobody can say that it still runs."""
    since = draft.observation.silent_since
    return _is_out_of_reach(draft, pod) and since is not None and draft.has_passed(since, SILENT_AFTER_SECONDS)


def _is_out_of_reach(draft: Draft, pod: PodView) -> bool:
    node = draft.observation.node_of(pod)
    return node is not None and node.unreachable


def _watch_silence(draft: Draft, pod: PodView) -> None:
    """Silence alone replaces nobody: the operator may be the one who is cut off."""
    cut_off = _is_out_of_reach(draft, pod)
    since = draft.observation.silent_since
    if since is None or not draft.has_passed(since, SILENT_AFTER_SECONDS):
        return
    has_spoken = _has_spoken(draft)
    probe_fails = not pod.ready and _was_ready(draft)
    silence = f"has not answered on its control API since {since:%H:%M:%S} UTC"
    if not (cut_off or probe_fails):
        if has_spoken:
            note = f"{pod.name} {silence}, but Kubernetes finds it healthy"
            draft.degraded.append(Note(Reason.DRIVER_SILENT, note))
        return
    if not draft.observation.may_replace_silent_driver:
        note = f"{pod.name} {silence}; not replaced yet, because many drivers are silent at once"
        draft.degraded.append(Note(Reason.DRIVER_SILENT, note))
        draft.look_again(SILENT_AFTER_SECONDS)
        return
    draft.act(DeletePod(pod.name, pod.uid, force=cut_off))
    why = f"and its node {pod.node} is unreachable" if cut_off else "and fails its probe"
    restart_driver(draft, f"{silence} {why}", costs=not cut_off)


def _was_ready(draft: Draft) -> bool:
    """By its last word. A driver whose regions are recovering is not ready, however well it is."""
    report = draft.observation.report
    return report.status.phase is Phase.RUNNING if report is not None else _has_spoken(draft)


def _has_spoken(draft: Draft) -> bool:
    """A driver that has never answered is starting, and its startup probe looks after that."""
    driver = draft.status.driver
    return draft.observation.report is not None or (driver is not None and driver.ready_at is not None)


def _keep_log_of_failure(draft: Draft) -> None:
    error, pod = draft.status.error or "", draft.observation.driver_pod()
    if draft.status.phase is not JobPhase.FAILED or LOG_MARK in error or pod is None:
        return
    if draft.observation.driver_log is None:
        draft.act(FetchDriverLog(pod.name))
        return
    room = MAX_MESSAGE_LENGTH - len(error) - len(LOG_MARK)
    draft.status.error = error + LOG_MARK + draft.observation.driver_log[-max(room, 0) :]
