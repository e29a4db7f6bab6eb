"""One job: is it well, where does the time go, what made checkpoints slow, what did restarts cost."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from monitoring.dashboards import annotation, choice, new_dashboard
from monitoring.panels import Panel, Row

UID = "streamingjob-job"
JOB = '{namespace=~"$namespace", streamingjob=~"$streamingjob"}'


def where(extra: str) -> str:
    return JOB[:-1] + f", {extra}}}"


def per_second(metric: str, by: str = "vertex") -> str:
    return f"sum by ({by}) (rate(streamingjob_{metric}_total{JOB}[$__rate_interval]))"


def share(metric: str) -> str:
    """Of the time of all subtasks of a vertex."""
    return f"{per_second(metric)} / sum by (vertex) (streamingjob_subtasks{JOB})"


def newly(metric: str, by: str) -> str:
    return f"sum by ({by}) (increase(streamingjob_{metric}_total{JOB}[$__rate_interval]))"


def gauge(metric: str, by: str = "vertex") -> str:
    return f"sum by ({by}) (streamingjob_{metric}{JOB})"


def quantile(q: float, metric: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, sum by ({labels}) (rate(streamingjob_{metric}_bucket{JOB}[$__rate_interval])))"


AT_A_GLANCE = Row(
    "At a glance",
    stats=True,
    panels=[
        Panel("Regions running", [(f"sum(streamingjob_regions_running{JOB} + streamingjob_regions_finished{JOB})"
                                   f" / sum(streamingjob_regions{JOB})", "")],
              "percentunit", "Or finished", width=4),
        Panel("Slots connected", [(f"sum(streamingjob_slots_connected{JOB}) / sum(streamingjob_slots{JOB})", "")],
              "percentunit", width=4),
        Panel("Since the last checkpoint", [(f"time() - max(streamingjob_last_checkpoint_timestamp_seconds{JOB})", "")],
              "s", width=4),
        Panel("Last checkpoint took", [(f"max(streamingjob_last_checkpoint_duration_seconds{JOB})", "")], "s", width=4),
        Panel("Last checkpoint", [(f"max(streamingjob_last_checkpoint_id{JOB})", "")], "none", width=4),
        Panel("Restarts of regions", [(f"sum(streamingjob_region_restarts_total{JOB})", "")], "none",
              "Since the driver started", width=2),
        Panel("Drivers so far", [(f"max(streamingjob_driver_generation{JOB})", "")], "none", width=2),
    ],
)  # fmt: skip
CHECKPOINTS = Row(
    "Checkpoints",
    [
        Panel("Checkpoints by outcome", [(newly("checkpoints", "outcome"), "{{outcome}}")],
              help="aborted: a failover or a newer checkpoint took its place"),
        Panel("Duration", [(quantile(0.5, "checkpoint_duration_seconds"), "half are quicker"),
                           (quantile(0.99, "checkpoint_duration_seconds"), "99 of 100 are quicker"),
                           (f"max(streamingjob_checkpoint_interval_seconds{JOB})", "interval")], "s"),
        Panel("Size", [(gauge("last_checkpoint_full_size_bytes", "streamingjob"), "full size"),
                       (gauge("last_checkpoint_written_bytes", "streamingjob"), "written")], "bytes"),
        Panel("Critical path of the last checkpoint",
              [(gauge("checkpoint_critical_seconds", "vertex, part"), "{{vertex}}: {{part}}")], "s",
              "What each vertex added to it, and in which of its four times", stacked=True),
        Panel("Which vertex made checkpoints slow",
              [(newly("checkpoint_slowest", "vertex, part"), "{{vertex}}: {{part}}")], stacked=True),
        Panel("Longest snapshot times", [(quantile(0.9, "snapshot_seconds", "part"), "{{part}}")], "s",
              "Of the slowest subtask, 9 of 10 checkpoints are quicker"),
        Panel("Checkpoints in progress", [(gauge("checkpoints_in_progress", "streamingjob"), "in progress")]),
        Panel("Written by checkpoints", [(per_second("checkpoint_written_bytes", "streamingjob"), "written")], "Bps"),
    ],
)  # fmt: skip
FLOW = Row(
    "Flow",
    [
        Panel("Records in", [(per_second("records_in"), "{{vertex}}")], "rps"),
        Panel("Records out", [(per_second("records_out"), "{{vertex}}")], "rps"),
        Panel("Bytes out", [(per_second("sent_bytes"), "{{vertex}}")], "Bps"),
        Panel("Busy", [(share("busy_seconds"), "{{vertex}}")], "percentunit"),
        Panel("Back-pressured", [(share("backpressured_seconds"), "{{vertex}}")], "percentunit",
              "Waiting for room downstream: look at the first vertex behind it that is busy"),
        Panel("Idle", [(share("idle_seconds"), "{{vertex}}")], "percentunit", "Waiting for input"),
        Panel("Source lag", [(gauge("source_lag_records"), "{{vertex}}")], "short", "Records that wait to be read"),
        Panel("Watermark lag", [(f"max by (vertex) (streamingjob_watermark_lag_seconds{JOB})", "{{vertex}}")], "s",
              "Event time of the slowest subtask, behind the clock"),
        Panel("Late rows", [(per_second("late_rows"), "{{vertex}}")], "rps",
              "Too late for their windows: dropped, or sent to the late output"),
        Panel("Bytes in", [(per_second("received_bytes"), "{{vertex}}")], "Bps"),
    ],
)  # fmt: skip
STATE = Row(
    "State and what is kept",
    [
        Panel("Keys in state", [(gauge("state_keys"), "{{vertex}}")]),
        Panel("State in memory", [(gauge("state_bytes"), "{{vertex}}")], "bytes"),
        Panel("Kept by exchanges", [(gauge("exchange_kept_bytes"), "{{vertex}}"),
                                    (gauge("exchange_budget_bytes"), "{{vertex}}: budget")], "bytes",
              "For a replay since the last completed checkpoint"),
        Panel("Fullest exchange", [(f"max by (vertex) (streamingjob_exchange_fullest_ratio{JOB})", "{{vertex}}")],
              "percentunit", "Share of its budget that the fullest subtask keeps"),
        Panel("Loops", [(gauge("loop_log_bytes"), "{{vertex}}: log"),
                        (gauge("loop_queue_bytes"), "{{vertex}}: queue")], "bytes"),
        Panel("Sinks", [(newly("sink_commits", "vertex"), "{{vertex}}: committed"),
                        (newly("sink_commit_failures", "vertex"), "{{vertex}}: refused"),
                        (newly("sink_aborts", "vertex"), "{{vertex}}: given up")], help="Transactions"),
    ],
)  # fmt: skip
RECOVERY = Row(
    "Recovery",
    [
        Panel("Restarts by cause", [(newly("region_restarts", "region, cause"), "region {{region}}: {{cause}}")]),
        Panel("Phases of a recovery",
              [(f"sum by (phase) (streamingjob_recovery_phase_seconds_sum{JOB})"
                f" / sum by (phase) (streamingjob_recovery_phase_seconds_count{JOB} > 0)", "{{phase}}")],
              "s", "On average since the driver started", stacked=True),
        Panel("Recovery time", [(f"sum(streamingjob_recovery_seconds_sum{JOB})"
                                 f" / sum(streamingjob_recovery_seconds_count{JOB} > 0)", "average"),
                                (f"max(streamingjob_recovery_objective_seconds{JOB})", "objective")], "s",
              "From the last word of the failed slot to the first output"),
        Panel("Restoring a slot", [(f"sum(streamingjob_restore_seconds_sum{JOB})"
                                    f" / sum(streamingjob_restore_seconds_count{JOB} > 0)", "average")], "s"),
        Panel("Regions", [(gauge("regions_running", "streamingjob"), "running"),
                          (gauge("regions_finished", "streamingjob"), "finished"),
                          (gauge("regions", "streamingjob"), "all")]),
        Panel("Slots", [(gauge("slots_connected", "streamingjob"), "connected"),
                        (gauge("slots", "streamingjob"), "needed")]),
    ],
)  # fmt: skip
# Over two minutes: Prometheus looks once a minute unless it is told otherwise, and an increase needs two looks.
RESTARTS = f"sum by (region, cause) (increase(streamingjob_region_restarts_total{JOB}[2m])) > 0"
FAILED_ONES = where('outcome="failed"')
FAILED = f"sum(increase(streamingjob_checkpoints_total{FAILED_ONES}[2m])) > 0"
COMPLETED = f"changes(streamingjob_last_checkpoint_id{JOB}[2m]) > 0"


def job_dashboard() -> dashboard.Dashboard:
    board = new_dashboard("StreamingJob", UID, [AT_A_GLANCE, CHECKPOINTS, FLOW, STATE, RECOVERY])
    namespaces, jobs = (
        "label_values(streamingjob_regions, namespace)",
        ('label_values(streamingjob_regions{namespace=~"$namespace"}, streamingjob)'),
    )
    board.with_variable(choice("namespace", "Namespace", namespaces, several=False))
    board.with_variable(choice("streamingjob", "Job", jobs, several=False))
    board.annotation(annotation("Restarts", RESTARTS, "region {{region}} restarts: {{cause}}", "red"))
    board.annotation(annotation("Failed checkpoints", FAILED, "a checkpoint failed", "orange"))
    board.annotation(annotation("Checkpoints", COMPLETED, "checkpoints completed", "green", shown=False))
    return board
