from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.protocol.failover import RegionChannel, Strategy
from snapshot_engine.protocol.recovery import (
    FailJob,
    Recovery,
    ResumeCheckpoints,
    StartRegions,
    StopSlots,
    SuspendCheckpoints,
)
from snapshot_engine.protocol.region_run import RegionRun, RegionState
from snapshot_engine.protocol.restarts import RestartBudget, RestartConfig

COMMITTED = [RegionChannel(0, 1, Exchange.COMMITTED), RegionChannel(1, 2, Exchange.COMMITTED)]
DURABLE = [RegionChannel(0, 1, Exchange.DURABLE), RegionChannel(1, 2, Exchange.DURABLE)]


def of(kind, actions):
    return [action for action in actions if isinstance(action, kind)]


class Job:
    """Three regions of one slot each."""

    def __init__(self, channels=COMMITTED, restarts=None, **options):
        runs = {region: RegionRun(region, [0], 1) for region in range(3)}
        self.recovery = Recovery(runs, RestartBudget(restarts or RestartConfig()), **options)
        self.channels = channels
        self.now = 0.0

    def start(self):
        (start,) = of(StartRegions, self.recovery.start(self.now))
        return self.come_up(start.attempts)

    def come_up(self, attempts):
        actions = []
        for region, attempt in attempts.items():
            self.recovery.slot_registered(region, 0, attempt, self.now)
            actions += self.recovery.slot_running(region, 0, attempt, self.now)
        return actions

    def fail(self, region):
        return self.recovery.failed(region, self.recovery.runs[region].attempt, "killed", 0.5, self.now)

    def decide(self):
        return self.recovery.decide(self.channels, self.now)

    def stop(self, actions):
        done = []
        for action in of(StopSlots, actions):
            done += self.recovery.slot_gone(action.region, 0, action.attempt, self.now)
        return done


def started(**options):
    job = Job(**options)
    assert job.start() == [ResumeCheckpoints()]
    return job


def restarted(actions):
    return {region for action in of(StartRegions, actions) for region in action.attempts}


def test_the_job_starts_with_all_its_regions_and_then_checkpoints_begin():
    started()


def test_a_failed_region_is_stopped_decided_started_and_then_checkpoints_go_on():
    job = started()
    actions = job.fail(1)
    assert actions == [StopSlots(1, Attempt(1, 1), "killed"), SuspendCheckpoints("killed")]
    assert job.recovery.undecided
    assert job.stop(actions) == []  # nothing starts before the decision
    starts = job.decide()
    assert starts == [StartRegions({1: Attempt(1, 2)})]
    assert job.come_up(starts[0].attempts) == [ResumeCheckpoints()]


def test_the_same_failure_told_again_changes_nothing():
    job = started()
    attempt = job.recovery.runs[1].attempt
    job.stop(job.fail(1))
    assert job.recovery.failed(1, attempt, "and so says Spark", 0.5, job.now) == []
    job.decide()
    assert job.recovery.failed(1, attempt, "a late word", 0.5, job.now) == []
    assert job.recovery.runs[1].attempt == Attempt(1, 2)


def test_consumers_of_a_durable_cut_go_down_with_their_producer():
    job = started(channels=DURABLE)
    job.stop(job.fail(1))
    actions = job.decide()
    assert [action.region for action in of(StopSlots, actions)] == [2]
    assert restarted(actions) == set()
    assert restarted(job.stop(actions)) == {1, 2}


def test_two_regions_that_fail_at_the_same_moment_restart_once_each():
    job = started()
    stopped = job.fail(0) + job.fail(2)
    assert len(of(SuspendCheckpoints, stopped)) == 1
    job.stop(stopped)
    assert restarted(job.decide()) == {0, 2}
    assert [job.recovery.runs[region].attempt.number for region in range(3)] == [2, 1, 2]


def test_a_region_that_fails_again_while_it_restarts_gets_a_newer_attempt():
    job = started(restarts=RestartConfig(first_delay=0.0))
    job.stop(job.fail(1))
    (start,) = job.decide()
    again = job.fail(1)
    assert of(SuspendCheckpoints, again) == []  # they still are
    job.stop(again)
    (restart,) = job.decide()
    assert restart.attempts == {1: Attempt(1, 3)}
    assert job.come_up(start.attempts) == []  # the older attempt has no say
    assert job.come_up(restart.attempts) == [ResumeCheckpoints()]


def test_an_unrelated_failure_leaves_a_region_that_is_starting_alone():
    job = started()
    job.stop(job.fail(1))
    (first,) = job.decide()
    job.stop(job.fail(2))
    (second,) = job.decide()
    assert second.attempts.keys() == {2}
    assert job.come_up(first.attempts) == []  # 2 does not run yet
    assert job.come_up(second.attempts) == [ResumeCheckpoints()]


def test_a_global_failure_during_a_regional_one_wins():
    job = started()
    job.stop(job.fail(1))
    stops = job.recovery.failed_globally("checkpoints keep failing", 0.5, job.now)
    job.stop(stops)
    assert job.decide() == []  # the second failure of the job in a row waits a little
    job.now = job.recovery.next_wakeup()
    assert restarted(job.recovery.tick(job.now)) == {0, 1, 2}
    assert [job.recovery.runs[region].attempt.number for region in range(3)] == [2, 2, 2]


def test_strategy_all_restarts_everything():
    job = started(strategy=Strategy.ALL)
    job.stop(job.fail(1))
    assert restarted(job.stop(job.decide())) == {0, 1, 2}


def test_a_repeated_failure_waits_before_its_restart():
    job = started(restarts=RestartConfig(first_delay=1.0, jitter=0.0))
    job.stop(job.fail(1))
    job.come_up(job.decide()[0].attempts)
    job.stop(job.fail(1))
    assert job.decide() == []
    assert job.recovery.next_wakeup() == 1.0
    job.now = 1.0
    assert restarted(job.recovery.tick(job.now)) == {1}


def test_a_spent_budget_fails_the_job_with_its_history_and_nothing_starts_after_it():
    job = started(restarts=RestartConfig(per_region=1))
    job.stop(job.fail(1))
    job.come_up(job.decide()[0].attempts)
    (verdict,) = job.fail(1)
    assert isinstance(verdict, FailJob)
    assert len(verdict.verdict.history) == 2
    assert job.decide() == []
    assert job.fail(2) == []


def test_the_jobs_budget_is_spent_by_a_region_that_never_runs_again_though_others_do():
    job = started(channels=DURABLE, restarts=RestartConfig(per_region=None, per_job=2, quiet_time=10.0))
    for _ in range(2):
        job.stop(job.fail(1))
        job.stop(job.decide())
        job.now += 60.0
        job.recovery.tick(job.now)
        job.come_up({2: job.recovery.runs[2].attempt})  # was taken along
        job.now += 60.0
    assert len(of(FailJob, job.fail(1))) == 1


def test_the_jobs_budget_is_given_back_after_a_quiet_time_of_all_regions():
    job = started(restarts=RestartConfig(per_region=None, per_job=1, quiet_time=10.0))
    for _ in range(3):
        job.stop(job.fail(1))
        job.come_up(job.decide()[0].attempts)
        job.now += 20.0
    assert job.recovery.runs[1].attempt.number == 4


def test_a_region_that_stays_for_its_logs_has_its_blocking_result_ready_when_its_work_is_done():
    job = Job(channels=[RegionChannel(0, 1, Exchange.BLOCKING)], starts_after={1: [0]})
    (start,) = job.recovery.start(job.now)
    job.come_up(start.attempts)
    (after,) = job.recovery.slot_done(0, 0, start.attempts[0], job.now)
    assert after.attempts.keys() == {1}
    assert job.recovery.runs[0].state is RegionState.RUNNING
    assert job.come_up(after.attempts) == [ResumeCheckpoints()]
    job.stop(job.fail(0))  # and its result is made again before its consumer starts again
    (again,) = job.stop(job.decide())
    assert again.attempts.keys() == {0}
    job.come_up(again.attempts)
    assert restarted(job.recovery.slot_done(0, 0, start.attempts[0], job.now)) == set()  # an older attempt's word
    assert restarted(job.recovery.slot_done(0, 0, again.attempts[0], job.now)) == {1}


def test_nothing_starts_once_the_job_ends_during_a_recovery():
    job = started()
    stops = job.fail(1)
    job.recovery.end()
    assert not job.recovery.undecided
    assert job.stop(stops) == []
    assert job.decide() == []
    assert job.recovery.tick(job.now) == []
    assert job.recovery.next_wakeup() is None
    assert job.fail(2) == []


def test_slots_that_do_not_stop_are_not_waited_for_for_ever():
    job = started()
    (stop, _) = job.fail(1)
    job.decide()
    assert job.recovery.runs[1].state is RegionState.CANCELLING
    assert restarted(job.recovery.abandon_slots(1, stop.attempt, job.now)) == {1}


def test_a_consumer_of_a_blocking_result_starts_when_it_is_there_and_again_when_it_is_made_again():
    channels = [RegionChannel(0, 1, Exchange.BLOCKING)]
    job = Job(channels=channels, starts_after={1: [0]})
    (start,) = job.recovery.start(job.now)
    assert start.attempts.keys() == {0, 2}
    job.come_up(start.attempts)
    (after,) = job.recovery.slot_finished(0, 0, start.attempts[0], job.now)
    assert after.attempts.keys() == {1}
    assert job.come_up(after.attempts) == [ResumeCheckpoints()]
    job.channels = [RegionChannel(0, 1, Exchange.BLOCKING, available=False)]
    job.stop(job.fail(1))
    (again,) = job.decide()
    assert again.attempts.keys() == {0}
    job.come_up(again.attempts)
    assert restarted(job.recovery.slot_finished(0, 0, again.attempts[0], job.now)) == {1}


def test_what_was_kept_for_a_restart_need_not_be_kept_until_those_run_that_wait_for_a_blocking_result():
    """A memory log that may not forget lets nothing more through once it is full: the result would never be whole."""
    job = Job(channels=[RegionChannel(0, 1, Exchange.BLOCKING)], starts_after={1: [0]})
    (start,) = job.recovery.start(job.now)
    assert not job.recovery.all_are_back
    job.come_up(start.attempts)
    assert job.recovery.all_are_back
    stops = job.fail(0)
    assert not job.recovery.all_are_back
    job.stop(stops)
    (again,) = job.decide()
    assert not job.recovery.all_are_back
    assert job.come_up(again.attempts) == []  # checkpoints go on only when all run
    assert job.recovery.all_are_back
