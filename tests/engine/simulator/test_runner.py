import re

from snapshot_engine.simulator.__main__ import main
from snapshot_engine.simulator.runner import Tally, run_many
from snapshot_engine.simulator.schedule import run_schedule


def test_a_seed_always_makes_the_same_schedule():
    first, second = run_schedule(7), run_schedule(7)
    assert (first.steps, first.faults) == (second.steps, second.faults)


def test_every_schedule_is_counted():
    tally = Tally()
    for outcome in run_many(1, 60, processes=1):
        tally.add(outcome)
    assert tally.schedules == 60
    assert tally.line().startswith("60 schedules, ")
    assert tally.line().endswith(" 0 violations")


def test_schedules_cover_every_kind_of_exchange_loop_and_restart():
    tally = Tally()
    for outcome in run_many(1, 150, processes=1):
        tally.add(outcome)
    kinds = {"memory exchange", "durable exchange", "committed exchange", "loop with several heads", "rounds"}
    events = {"regional restart", "savepoint", "stop with savepoint", "finished subtask restored", "two live drivers"}
    assert kinds | events | {"at least once", "deterministic region"} <= tally.covered.keys()


def test_a_violation_prints_the_seed_that_repeats_it(capsys):
    assert main(["N=20", "SEED=2", "BUG=commit before complete"]) == 1
    told = re.search(r"violation with SEED=(\d+) N=1", capsys.readouterr().out)
    assert told is not None
    assert main(["N=1", f"SEED={told[1]}", "BUG=commit before complete"]) == 1


def test_an_unknown_setting_is_refused(capsys):
    assert main(["SEEDS=3"]) == 2
    assert "SEEDS" in capsys.readouterr().err


def test_an_unknown_bug_is_refused_with_those_there_are(capsys):
    assert main(["BUG=none"]) == 2
    assert "alignment off" in capsys.readouterr().err
