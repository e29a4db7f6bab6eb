"""Reports: medians and spread, no figures without an equal result; ratios and regressions."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.checkpoint_price import price_of_checkpoints
from benchmarks.engines import Engine
from benchmarks.environments import Environment
from benchmarks.goals import goals_of
from benchmarks.outcomes import Outcome, noisy
from benchmarks.plan import EVERY_SECOND, headline
from benchmarks.regression import ratios_of, regressions
from benchmarks.report import entry_of, merged, read_entries, render, write_report
from benchmarks.scenarios.headline import row_of as headline_row
from benchmarks.scenarios.measured_job import Checkpoint, Figures
from benchmarks.scenarios.recovery import Recovered
from benchmarks.settings import Run
from benchmarks.spread import spread

CELL = headline(1_000, EVERY_SECOND)
SHORT = Run("some", "tumbling", 1_000, "int", 100_000, 2, 1_000, 1.0, 0.5, 2**20, "discard", {"v": "1"}, {})


def outcome(name: str, cpu_seconds: list[float], equal: bool = True) -> Outcome:
    engine = Engine(name, "module", Environment(name, ()), ("tumbling",))
    runs = [
        replace(SHORT, engine=name, rows=1_100_000, seconds=2.0, cpu_seconds=SHORT.cpu_seconds + cpu).after(SHORT)
        for cpu in cpu_seconds
    ]
    return Outcome(engine, CELL, "equal to the reference" if equal else "differs: 3 rows missing", equal, 1, runs)


def test_an_entry_has_the_median_and_the_spread() -> None:
    entry = entry_of(outcome("fast", [1.0, 2.0, 4.0]))
    assert entry["rows_per_core_s"] == 500_000
    assert entry["spread"]["rows_per_core_s"] == pytest.approx(1.5)
    assert (entry["query"], entry["keys"], entry["checkpoint_interval"]) == ("tumbling", 1_000, 1_000)


def test_a_wrong_result_has_no_figures_and_says_why() -> None:
    entry = entry_of(outcome("wrong", [1.0], equal=False))
    assert "rows_per_s" not in entry
    assert "wrong: differs: 3 rows missing" in render([entry], {})


def test_the_table_lists_the_fastest_first() -> None:
    table = render([entry_of(outcome("slow", [2.0])), entry_of(outcome("fast", [1.0]))], {"cores": 2})
    assert table.index("| fast |") < table.index("| slow |")


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ({"completed": 3, "duration_ms": [10.0, 30.0, 20.0]}, "3 of 20 ms"),
        ({"completed": 0, "duration_ms": {"p50": "NaN"}}, "none"),
        ({"completed": 1, "batch_ms": [7]}, "1 of 7 ms"),
        ({}, "none"),
    ],
)
def test_a_checkpoints_duration_is_shown_as_each_engine_tells_it(told: dict, shown: str) -> None:
    entry = entry_of(outcome("some", [1.0])) | {"facts": {"checkpoints": told}}
    assert f"| 1 MiB | {shown} | 1,100,000 |" in render([entry], {})


def test_the_price_of_checkpoints_is_the_share_they_take() -> None:
    with_them = entry_of(outcome("some", [2.0]))
    without = {**entry_of(outcome("some", [1.6])), "checkpoint_interval": 0}
    (price,) = price_of_checkpoints([with_them, without])
    assert price["price"] == pytest.approx(0.2)
    assert "| some | tumbling | 1,000 int | 2 | 1000 ms | 20.0% |" in render([with_them, without], {})


def test_spread_of_equal_values_is_none() -> None:
    assert spread([3.0, 3.0]) == 0


RATES = {"ours": 1.0, "ours-forked": 0.5, "slow": 8.0, "best": 4.0}


def test_the_ratio_is_to_the_best_peer_of_the_same_cell_and_not_to_a_variant_of_itself() -> None:
    entries = [entry_of(outcome(name, [cpu])) for name, cpu in RATES.items()]
    assert ratios_of(entries, "ours") == {"tumbling/1000/int/2/1000/files": pytest.approx(4.0)}


def test_only_a_loss_beyond_the_tolerance_is_a_regression() -> None:
    stored = {"a": 10.0, "b": 10.0, "not measured": 5.0}
    worse = regressions(stored, {"a": 8.0, "b": 7.0}, tolerance=0.25)
    assert len(worse) == 1
    assert worse[0].startswith("b: 7.00×")


def test_a_report_is_added_to_cell_by_cell() -> None:
    old = [entry_of(outcome(name, [4.0])) for name in ("kept", "measured again")]
    new = [entry_of(outcome("measured again", [1.0]))]
    found = {entry["engine"]: entry["rows_per_core_s"] for entry in merged(old, new)}
    assert found == {"kept": 250_000, "measured again": 1_000_000}


def test_scenarios_are_part_of_the_report_and_no_cells(tmp_path: Path) -> None:
    (tmp_path / "recovery.json").write_text('[{"case": "recovery, durable, Region", "median_seconds": 0.25}]')
    (tmp_path / "regions.json").write_text('[{"regions": 2, "rows_per_s": 1000000.0}]')
    write_report([entry_of(outcome("fast", [1.0]))], {}, tmp_path)
    table = (tmp_path / "report.md").read_text()
    assert "| recovery, durable, Region | 0.25 |" in table
    assert "| 2 | 1,000,000 |" in table
    assert {"scenario": "regions", "regions": 2, "rows_per_s": 1e6} in json.loads(
        (tmp_path / "report.json").read_text()
    )
    assert [entry["engine"] for entry in read_entries(tmp_path)] == ["fast"]


def test_goals_say_what_is_reached_and_what_is_not() -> None:
    entries = [entry_of(outcome(name, [cpu])) for name, cpu in (("snapshot-engine", 1.0), ("flink-sql-heap", 8.0))]
    scenarios = {
        "headline": [headline_row(1_000, [0.97], Figures("bids", 0.0, [Checkpoint(*[1.0] * 5, 1, 1)]))],
        "recovery": [{"case": "recovery, committed, Region", **Recovered([0.4, 0.6, 0.7]).row()}],
        "flink_recovery": [{"restart_delay": "0 ms", "median_s": 0.3}, {"restart_delay": "default", "median_s": 1.0}],
        "exception_recovery": [{"median_s": 0.2, "all_s": [0.1, 0.2, 0.4]}],
        "coordinator": [
            {"shape": "hash", "subtasks": n, "cpu_seconds": cost} for n, cost in ((1000, 0.1), (10_000, 2.0))
        ],
        "generated_bids": [
            {"engine": "snapshot-engine", "rows_per_s": 15e6, "all_rows_per_s": [12e6, 15e6, 16e6]},
            {"engine": "flink-sql-heap", "rows_per_s": 0.9e6, "all_rows_per_s": [0.8e6, 0.9e6, 0.9e6]},
            {"engine": "spark-hdfs-store", "rows_per_s": 1e6, "all_rows_per_s": [1e6, 1e6, 1.5e6]},
        ],
        "memory": [{"bytes_per_key": 50.0}],
        "flink_memory": [{"bytes_per_key": 200.0}],
    }
    goals = {goal.name.split(",")[0]: goal for goal in goals_of(entries, scenarios)}
    assert (goals["tumbling"].wanted, goals["tumbling"].measured, goals["tumbling"].reached) == (10, 8, False)
    generated = goals["generated bids"]
    assert (generated.measured, generated.worst, generated.reached) == (15, 8, True)
    assert goals["price of a checkpoint each second at full load"].reached
    assert not goals["kill -9 to first new output of the region"].reached
    assert goals["an exception until all run again"].reached
    assert not goals["driver's CPU time of a checkpoint"].reached
    assert not goals["driver's cost per subtask with 10"].reached, "twice as much for each"
    assert goals["memory per million keys of a count and a sum"].measured == 0.25
    assert "| at least 10× | 8× | 8× | **no**, 20% below |" in render(entries, {}, scenarios)


def test_a_goal_that_nobody_has_measured_is_listed_and_not_reached() -> None:
    goals = {goal.name: goal for goal in goals_of([], {})}
    assert {"tumbling", "q3", "q11", "string keys, of the rate of integer keys"} <= set(goals)
    assert not any(goal.reached for goal in goals.values())
    assert "| q3 | at least 3× |  |  | not measured |" in render([], {})


def test_the_worst_ratio_is_of_the_slowest_own_run_and_the_quickest_of_any_peer() -> None:
    runs = {"snapshot-engine": [1.0, 2.0, 1.0], "steady": [8.0, 8.0, 8.0], "wild": [16.0, 4.0, 16.0]}
    entries = [entry_of(outcome(name, seconds)) for name, seconds in runs.items()]
    goal = goals_of(entries, {})[0]
    assert (goal.measured, goal.worst) == (8, 2)


def test_noisy_runs_are_repeated_unless_another_peer_is_far_ahead() -> None:
    outcomes = [
        outcome("snapshot-engine", [1.0, 2.0]),
        outcome("steady", [10.0, 10.1]),
        outcome("noisy", [9.0, 12.0]),
        outcome("noisy and far behind", [90.0, 120.0]),
        outcome("wrong", [9.0, 12.0], equal=False),
    ]
    assert [each.engine.name for each in noisy(outcomes)] == ["snapshot-engine", "noisy"]
