"""The operator dies in the middle of things, and goes on where it was."""

from __future__ import annotations

from pipelines import KEYED, check_regions, check_windows, rows_of
from streaming_job import MOUNT
from test_executor_loss import RATE as REGION_RATE
from test_executor_loss import a_working_executor

RATE = 2000
COUNT = RATE * 150


def test_an_upgrade_is_finished_by_the_operators_successor(job, operator):
    job.apply(KEYED, count=COUNT, rate=RATE, parallelism=2)
    job.until_ready()
    job.until_checkpoint(2)
    job.patch(parallelism=1)
    job.until("the upgrade to have begun", lambda s: s["operation"]["step"] in ("Plan", "Stop"), seconds=60)
    operator.kill()
    job.until("the upgrade to be under way", lambda s: s["operation"]["step"] in ("Stop", "Kill", "Start"), seconds=120)
    operator.kill()
    status = job.until("the upgrade's end", lambda s: s["phase"] == "Running" and "operation" not in s)
    assert status["driver"]["generation"] == 2, "no second driver was made for it"
    assert status["driver"]["restore"]["id"].startswith("upgrade-2-"), "the savepoint was not lost with the operator"
    job.until_finished()
    check_windows(job.output, COUNT)


def test_a_change_without_state_that_failed_while_no_operator_ran_gives_the_old_job_its_state_back(job, operator):
    """Although the new one had committed output and completed checkpoints, of which nobody had heard."""
    job.apply(KEYED, count=COUNT, rate=RATE, parallelism=2, upgradeMode="Stateless")
    job.until_ready()
    job.until_rows(64)
    broken = KEYED.replace('"seq": lambda o:', f'"seq": lambda o: 1 // 0 if len(o) and o.max() > {RATE * 10} else')
    elsewhere = job.output.with_name("elsewhere")
    args = {"out": f"{MOUNT}/out/{elsewhere.name}", "count": COUNT, "rate": RATE}
    job.patch(pipeline={"source": broken, "args": args}, recovery={"maxRestarts": 1})
    job.until("the new driver", lambda s: s["operation"]["step"] == "Start" and s["driver"]["generation"] == 2)
    operator.scale(0)
    job.namespace.wait_for("no operator to run", lambda: not operator.pods() or None)
    job.namespace.wait_for("the new driver's end", lambda: job.phase_of("driver", 2) == "Failed" or None, seconds=240)
    assert rows_of(elsewhere).num_rows, "it worked for a while"
    assert "readyAt" not in job.status["driver"], "and nobody saw it"
    operator.scale(1)

    job.until("the rollback", lambda s: s["driver"]["generation"] == 3 and s["phase"] == "Running")
    assert job.condition("Ready")["reason"] == "RolledBack"
    job.until_finished()
    check_windows(job.output, COUNT)


def test_a_driver_that_died_with_the_operator_is_replaced(job, operator, delete_now):
    job.apply(KEYED, count=COUNT, rate=RATE, parallelism=2)
    job.until_ready()
    job.until_checkpoint(2)
    (driver,) = job.running("driver")
    delete_now(driver)
    operator.kill()
    job.until("the next driver", lambda s: s["driver"]["generation"] == 2 and s["phase"] == "Running")
    job.until_finished()
    check_windows(job.output, COUNT)


def test_an_executor_that_is_lost_while_no_operator_runs_is_recovered_from(job, operator, delete_now):
    count = REGION_RATE * 90
    job.apply(count=count, rate=REGION_RATE, parallelism=3, executor={"instances": 3, "standby": 1})
    job.until_ready()
    pod, (region,) = a_working_executor(job)
    before = job.attempts()
    operator.scale(0)
    job.namespace.wait_for("no operator to run", lambda: not operator.pods() or None)

    delete_now(pod)
    job.until_rows(count // 2)
    operator.scale(1)

    job.until("the restart to be seen", lambda s: job.attempts()[str(region)] > before[str(region)])
    job.until_finished()
    check_regions(job.output, count)
    others = {name: number for name, number in before.items() if name != str(region)}
    assert {name: job.attempts()[name] for name in others} == others


def test_a_killed_operator_is_followed_by_another_within_fifteen_seconds(job, operator, delete_now):
    operator.install("replicas=2")
    count = REGION_RATE * 90
    job.apply(count=count, rate=REGION_RATE, parallelism=3, executor={"instances": 3, "standby": 1})
    job.until_ready()
    executor, (region,) = a_working_executor(job)
    before, (leader, _) = job.attempts(), operator.lease()
    assert leader in operator.pods() and len(operator.pods()) == 2

    killed_at = operator.kill_process(leader)
    delete_now(executor)

    renewed = job.namespace.wait_for("another leader", lambda: renewed_after(operator, killed_at), seconds=60)
    print(f"{operator.lease()[0]} took over from {leader} after {renewed - killed_at:.1f} s")
    assert renewed - killed_at <= 15
    job.until("the restart to be seen", lambda s: job.attempts()[str(region)] > before[str(region)], seconds=60)
    job.until_finished()
    check_regions(job.output, count)
    others = {name: number for name, number in before.items() if name != str(region)}
    assert {name: job.attempts()[name] for name in others} == others


def renewed_after(operator, since):
    _, at = operator.lease()
    return at if at > since else None
