"""What people see of a job in the terminal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from snapshot_engine.cli.status_table import human_count, human_seconds, status_table
from snapshot_engine.wire.status import (
    CheckpointEntry,
    CheckpointOutcome,
    CheckpointProgress,
    JobStatus,
    Phase,
    RegionState,
    RegionStatus,
    RestartEntry,
    SlotPlace,
    SlowestStep,
    VertexStatus,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def shown(status: JobStatus, width: int = 160) -> str:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(status_table(status, "http://127.0.0.1:1", NOW))
    return capture.get()


def status(**fields: object) -> JobStatus:
    regions = [RegionStatus(id="0", state=RegionState.RUNNING, attempt=1, vertices=["bids"])]
    return JobStatus(name="orders", phase=Phase.RUNNING, regions=fields.pop("regions", regions), **fields)


def test_vertices_say_what_passes_and_how_far_they_are_behind() -> None:
    vertex = VertexStatus(name="bids", parallelism=2, records_out_per_second=123456, busy=0.5, source_lag=7)
    text = shown(status(vertices=[vertex]))
    assert "123 k" in text
    assert "50%" in text
    assert "7 records" in text


def test_late_rows_have_a_column_where_there_are_any() -> None:
    vertices = [VertexStatus(name="bids"), VertexStatus(name="windows", late_rows=1234)]
    text = shown(status(vertices=vertices))
    assert "Late" in text and "1.2 k" in text
    assert "Late" not in shown(status(vertices=vertices[:1]))


def test_a_checkpoint_says_which_subtask_made_it_slow_and_how() -> None:
    slow = SlowestStep(subtask="windows[3]", vertex="windows", part="start_delay", seconds=2.0)
    entry = CheckpointEntry(id=7, outcome=CheckpointOutcome.COMPLETED, triggered_at=NOW, slowest=slow)
    job = status()
    job.checkpoint.history = [entry]
    assert "windows[3] (start delay, 2.0 s)" in shown(job)


def test_a_checkpoint_under_way_has_a_bar() -> None:
    job = status()
    began = NOW - timedelta(seconds=3)
    job.checkpoint.under_way = [CheckpointProgress(id=8, triggered_at=began, acknowledged=5, subtasks=9)]
    text = shown(job)
    assert "checkpoint 8" in text
    assert "5/9 subtasks, 3.0 s" in text


def test_of_many_regions_those_in_trouble_are_shown() -> None:
    regions = [RegionStatus(id=str(n), state=RegionState.RUNNING) for n in range(128)]
    regions[77].state = RegionState.STOPPING
    text = shown(status(regions=regions))
    assert "77" in text
    assert "and 120 Running" in text


def test_a_region_says_in_which_processes_it_runs() -> None:
    """Whoever wants to see a recovery has to find something to kill."""
    regions = [RegionStatus(id=str(n), state=RegionState.RUNNING) for n in range(3)]
    places = [SlotPlace(region="0", slot=slot, executor_id="driver", pid=100 + slot) for slot in (1, 0)]
    places += [SlotPlace(region="1", slot=0, executor_id="3", pid=45)]
    places += [SlotPlace(region="2", slot=slot, executor_id="driver", pid=200 + slot) for slot in range(9)]
    text = shown(status(regions=regions, slot_places=places))
    assert "pid 100, pid 101 " in text and "executor 3 pid 45" in text
    assert "pid 203, … 9 in all" in text


def test_no_region_runs_in_a_job_that_has_stopped() -> None:
    job = status()
    job.phase = Phase.STOPPED
    assert "Running" not in shown(job)


def test_a_restart_says_where_its_time_went() -> None:
    entry = RestartEntry(
        region="0", cause="SlotLost", failed_at=NOW, phases={"detect": 0.1, "restore": 2.0}, seconds=2.1
    )
    assert "detect 100 ms, restore 2.0 s" in shown(status(restart_history=[entry]))


def test_times_are_told_in_a_unit_that_fits() -> None:
    assert [human_seconds(s) for s in (0.0123, 5, 300, 7200 * 3)] == ["12 ms", "5.0 s", "5 min", "6 h"]
    assert [human_seconds(86_400 * days) for days in (3, 365 * 56.9)] == ["3 days", "57 years"]


def test_counts_have_three_digits_and_a_unit() -> None:
    counts = [human_count(count) for count in (0, 7.4, 999.4, 999.6, 12_345, 123_456, 999_999, 1_234_567, 5e12)]
    assert counts == ["0", "7", "999", "1.0 k", "12.3 k", "123 k", "1.0 M", "1.2 M", "5000 G"]


def busy_job() -> JobStatus:
    vertices = [
        VertexStatus(
            name=name,
            parallelism=2,
            records_in_per_second=123_456,
            records_out_per_second=1_234_567,
            busy=0.5,
            backpressured=0.25,
            watermark=NOW - timedelta(seconds=3),
            state_keys=100_000,
            state_bytes=12_345_678,
        )
        for name in ("bids", "bids-per-auction")
    ]
    slow = SlowestStep(subtask="bids-per-auction[1]", vertex="bids-per-auction", part="async", seconds=0.04)
    done = CheckpointEntry(
        id=13,
        outcome=CheckpointOutcome.COMPLETED,
        triggered_at=NOW,
        duration_seconds=0.05,
        size_bytes=12_345_678,
        full_size_bytes=123_456_789,
        slowest=slow,
    )
    given_up = CheckpointEntry(
        id=12,
        outcome=CheckpointOutcome.ABORTED,
        triggered_at=NOW,
        reason="not complete after 600 s; still waiting for bids-per-auction[0], bids-per-auction[1]",
    )
    job = status(vertices=vertices)
    job.checkpoint.history = [done, given_up]
    return job


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_figure_is_cut_off_on_a_narrow_terminal(width: int) -> None:
    lines = shown(busy_job(), width).splitlines()
    assert len(lines) <= 10, "every row has one line"
    [vertex] = [line for line in lines if line.startswith("bids-per-au")]
    assert all(figure in vertex for figure in ("123 k", "1.2 M", "50%", "3.0 s")), vertex
    [checkpoint] = [line for line in lines if line.startswith("13 ")]
    assert "50 ms" in checkpoint and "bids-per-auction[1]" in checkpoint


def test_what_there_is_no_room_for_is_left_out_and_comes_back() -> None:
    narrow, wide = shown(busy_job(), 60), shown(busy_job(), 200)
    assert "Subtasks" not in narrow and "11.8 MiB" not in narrow
    assert "Subtasks" in wide and "11.8 MiB" in wide
    assert "still waiting for bids-per-auction[0], bids-per-auction[1]" in wide
