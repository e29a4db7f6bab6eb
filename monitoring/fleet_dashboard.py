"""All jobs at once: which of them need somebody, and how the operator is."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from monitoring.dashboards import annotation, choice, new_dashboard
from monitoring.panels import Panel, Row

UID = "streamingjob-fleet"
JOBS = '{streamingjob_namespace=~"$namespace"}'
DRIVERS = '{namespace=~"$namespace"}'
BY_JOB = "streamingjob_namespace, streamingjob"
JOB_NAME = "{{streamingjob_namespace}}/{{streamingjob}}"
DRIVER_NAME = "{{namespace}}/{{streamingjob}}"


def quantile(q: float, metric: str) -> str:
    return f"histogram_quantile({q}, sum by (le) (rate(streamingjob_operator_{metric}_bucket[$__rate_interval])))"


def average(metric: str) -> str:
    return f"sum(streamingjob_operator_{metric}_sum) / sum(streamingjob_operator_{metric}_count > 0)"


def of_drivers(metric: str) -> str:
    return f"sum by (namespace, streamingjob) (rate(streamingjob_{metric}_total{DRIVERS}[$__rate_interval]))"


JOBS_ROW = Row(
    "Jobs",
    [
        Panel("Jobs by phase",
              [(f"count by (phase) (max by ({BY_JOB}, phase) (streamingjob_operator_job_phase{JOBS}) == 1)",
                "{{phase}}")], stacked=True),
        Panel("Since the last checkpoint",
              [(f"time() - max by ({BY_JOB}) (streamingjob_operator_last_checkpoint_timestamp_seconds{JOBS})",
                JOB_NAME)],
              "s", "Also of jobs whose driver is gone"),
        Panel("Drivers that answer", [(f"max by ({BY_JOB}) (streamingjob_operator_driver_up{JOBS})", JOB_NAME)]),
        Panel("Restarts so far", [(f"max by ({BY_JOB}) (streamingjob_operator_job_restarts{JOBS})", JOB_NAME)]),
        Panel("Records out", [(of_drivers("records_out"), DRIVER_NAME)], "rps", "Over all vertices"),
        Panel("Back-pressured",
              [(f"max by (namespace, streamingjob) (rate(streamingjob_backpressured_seconds_total{DRIVERS}"
                f"[$__rate_interval]) / streamingjob_subtasks{DRIVERS})", DRIVER_NAME)],
              "percentunit", "The vertex that waits most"),
        Panel("Checkpoint duration",
              [(f"max by (namespace, streamingjob) (streamingjob_last_checkpoint_duration_seconds{DRIVERS})",
                DRIVER_NAME)], "s"),
        Panel("Full size of the last checkpoint",
              [(f"max by (namespace, streamingjob) (streamingjob_last_checkpoint_full_size_bytes{DRIVERS})",
                DRIVER_NAME)], "bytes"),
        Panel("Checkpoints by outcome",
              [(f"sum by (outcome) (increase(streamingjob_checkpoints_total{DRIVERS}[$__rate_interval]))",
                "{{outcome}}")]),
    ],
)  # fmt: skip
LOSSES = Row(
    "Losses",
    [
        Panel("Lost pods", [(f"sum by ({BY_JOB}, reason) (streamingjob_operator_pod_losses_total{JOBS})",
                             JOB_NAME + ": {{reason}}")], help="Since the operator started"),
        Panel("From a lost pod to running again", [(average("pod_loss_recovery_seconds"), "average")], "s"),
        Panel("Drivers replaced",
              [(f"sum by ({BY_JOB}) (streamingjob_operator_drivers_replaced_total{JOBS})", JOB_NAME)]),
    ],
)  # fmt: skip
OPERATOR = Row(
    "Operator",
    [
        Panel("Reconciles", [("sum(rate(streamingjob_operator_reconcile_seconds_count[$__rate_interval]))", "all"),
                             ("sum(rate(streamingjob_operator_reconcile_errors_total[$__rate_interval]))", "failed")],
              "ops"),
        Panel("Reconcile duration", [(quantile(0.5, "reconcile_seconds"), "half are quicker"),
                                     (quantile(0.99, "reconcile_seconds"), "99 of 100 are quicker")], "s"),
        Panel("Jobs that wait to be looked at", [("max(streamingjob_operator_queue_length)", "queue")]),
        Panel("API calls", [("sum by (verb, code) (rate(streamingjob_operator_api_calls_total[$__rate_interval]))",
                             "{{verb}} {{code}}")], "reqps"),
        Panel("Status writes", [("sum(rate(streamingjob_operator_status_writes_total[$__rate_interval]))", "writes")],
              "ops"),
        Panel("Leaders", [("sum(streamingjob_operator_leader)", "leaders")], help="Exactly one is right"),
    ],
)  # fmt: skip
REPLACED = f"sum by ({BY_JOB}) (increase(streamingjob_operator_drivers_replaced_total{JOBS}[2m])) > 0"
LOST = f"sum by ({BY_JOB}, reason) (increase(streamingjob_operator_pod_losses_total{JOBS}[2m])) > 0"


def fleet_dashboard() -> dashboard.Dashboard:
    board = new_dashboard("StreamingJobs: the fleet", UID, [JOBS_ROW, LOSSES, OPERATOR])
    namespaces = "label_values(streamingjob_operator_job_created_timestamp_seconds, streamingjob_namespace)"
    board.with_variable(choice("namespace", "Namespace", namespaces, several=True))
    board.annotation(annotation("Lost pods", LOST, f"{JOB_NAME} lost a pod: {{{{reason}}}}", "red"))
    board.annotation(annotation("Drivers replaced", REPLACED, f"{JOB_NAME} has a new driver", "orange"))
    return board
