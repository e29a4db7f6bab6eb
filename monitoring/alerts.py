"""The alert rules. Thresholds that differ from job to job are metrics themselves: nothing has to be configured twice.

Every alert has a paragraph in docs/runbooks.md under its name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

RUNBOOKS = "docs/runbooks.md"
"""The chart puts `alerts.runbooks` in its place."""
_JOB = "streamingjob, streamingjob_namespace"
_NAMED = "{{ $labels.streamingjob_namespace }}/{{ $labels.streamingjob }}"
_DRIVEN = "{{ $labels.namespace }}/{{ $labels.streamingjob }}"
_ALIVE = 'streamingjob_operator_job_phase{phase!~"Finished|Failed|Suspended|Deleting"}'
_SHOULD_RUN = f"on ({_JOB}) max by ({_JOB}) ({_ALIVE}) == 1"


def _ended(outcome: str, window: str) -> str:
    counter = f'streamingjob_checkpoints_total{{outcome="{outcome}"}}'
    return f"sum by (namespace, streamingjob) (increase({counter}[{window}]))"


@dataclass(frozen=True)
class Alert:
    name: str
    expr: str
    summary: str
    description: str
    wait: str = "0m"
    severity: str = "warning"

    def rule(self) -> dict[str, Any]:
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.wait,
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{RUNBOOKS}#{self.name.lower()}",
            },
        }


NO_CHECKPOINT = Alert(
    "StreamingJobNoCheckpoint",
    f"time() - max by ({_JOB}) (streamingjob_operator_progress_timestamp_seconds)"
    f" > on ({_JOB}) max by ({_JOB}) (streamingjob_operator_progress_window_seconds)"
    f" and {_SHOULD_RUN}",
    f"{_NAMED} completes no checkpoints",
    "None for {{ $value | humanizeDuration }}, which is longer than its progress window.",
    severity="critical",
)
FAILED_CHECKPOINTS = Alert(
    "StreamingJobCheckpointsFail",
    # The second half is for those that are taken so seldom that three of them do not fit into 10 minutes.
    f"{_ended('failed', '10m')} > 2 or ({_ended('failed', '2h')} > 2 and"
    f" {_ended('failed', '2h')} > {_ended('completed', '2h')})",
    f"Checkpoints of {_DRIVEN} fail",
    "{{ $value | humanize }} of them in 10 minutes, or in two hours and more than were completed.",
)
SLOW_CHECKPOINTS = Alert(
    "StreamingJobCheckpointNearTimeout",
    "max by (namespace, streamingjob) (streamingjob_last_checkpoint_duration_seconds)"
    " > 0.8 * max by (namespace, streamingjob) (streamingjob_checkpoint_timeout_seconds)",
    f"Checkpoints of {_DRIVEN} take almost as long as they may",
    "The last one took {{ $value | humanizeDuration }}.",
    wait="5m",
)
RESTARTS = Alert(
    "StreamingJobRegionRestartsRepeatedly",
    # Not the sum of all restarts: one lost pod restarts many regions that share a label, once each.
    "max by (namespace, streamingjob, region) (delta(streamingjob_region_attempts[15m])) > 3",
    f"A region of {_DRIVEN} restarts again and again",
    "Region {{ $labels.region }} restarted {{ $value | humanize }} times in 15 minutes.",
)
SLOW_RECOVERY = Alert(
    "StreamingJobRecoverySlow",
    "sum by (namespace, streamingjob) (increase(streamingjob_recovery_seconds_sum[15m]))"
    " / sum by (namespace, streamingjob) (increase(streamingjob_recovery_seconds_count[15m]) > 0)"
    " > max by (namespace, streamingjob) (streamingjob_recovery_objective_seconds)",
    f"{_DRIVEN} recovers too slowly",
    "A recovery took {{ $value | humanizeDuration }} on average over 15 minutes, longer than its objective.",
)
BACK_PRESSURE = Alert(
    "StreamingJobBackPressured",
    "sum by (namespace, streamingjob, vertex) (rate(streamingjob_backpressured_seconds_total[5m]))"
    " / sum by (namespace, streamingjob, vertex) (streamingjob_subtasks) > 0.5",
    f"{_DRIVEN} is back-pressured",
    "{{ $labels.vertex }} waits for room downstream {{ $value | humanizePercentage }} of the time.",
    wait="10m",
)
RETAINED = Alert(
    "StreamingJobRetainedDataNearBudget",
    # Every checkpoint empties it: what counts is how full it is before.
    "max by (namespace, streamingjob, vertex) (max_over_time(streamingjob_exchange_fullest_ratio[2m])) > 0.8",
    f"An exchange of {_DRIVEN} has almost no room left",
    "{{ $labels.vertex }} keeps {{ $value | humanizePercentage }} of what it may.",
    wait="5m",
)
DRIVER_DOWN = Alert(
    "StreamingJobDriverDown",
    f"max by ({_JOB}) (streamingjob_operator_driver_up) == 0 and {_SHOULD_RUN}",
    f"The driver of {_NAMED} is down",
    "It should run, and does not answer.",
    wait="5m",
    severity="critical",
)
JOB_FAILED = Alert(
    "StreamingJobFailed",
    f'max by ({_JOB}) (streamingjob_operator_job_phase{{phase="Failed"}}) == 1',
    f"{_NAMED} has failed for good",
    "Its restarts are used up, or it cannot run as it is. Nothing restarts it by itself.",
    severity="critical",
)
OPERATOR_DOWN = Alert(
    "StreamingJobOperatorDown",
    "(sum(streamingjob_operator_leader) or vector(0)) < 1",
    "No operator leads",
    "Jobs go on, but nobody replaces lost drivers or takes up changes.",
    wait="5m",
    severity="critical",
)
RECONCILE_ERRORS = Alert(
    "StreamingJobReconcileErrors",
    "sum(increase(streamingjob_operator_reconcile_errors_total[10m])) > 10",
    "The operator's looks at jobs fail",
    "{{ $value | humanize }} of them in 10 minutes; they are tried again.",
)
NAMESPACES_LEFT_OUT = Alert(
    "StreamingJobNamespacesLeftOut",
    "max(streamingjob_operator_namespaces_left_out) > 0",
    "Jobs of some namespaces are not looked after",
    "Nothing can be listed in {{ $value | humanize }} of what the operator should watch; its log names them.",
    wait="10m",
)
ALERTS = (
    NO_CHECKPOINT,
    FAILED_CHECKPOINTS,
    SLOW_CHECKPOINTS,
    RESTARTS,
    SLOW_RECOVERY,
    BACK_PRESSURE,
    RETAINED,
    DRIVER_DOWN,
    JOB_FAILED,
    OPERATOR_DOWN,
    RECONCILE_ERRORS,
    NAMESPACES_LEFT_OUT,
)


def rule_file() -> dict[str, Any]:
    return {"groups": [{"name": "streamingjob", "rules": [alert.rule() for alert in ALERTS]}]}
