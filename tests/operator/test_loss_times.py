"""From the event of a lost pod to its regions' running again."""

from datetime import UTC, datetime

from snapshot_engine.wire.control import LossReason, PodLostRequest
from snapshot_engine.wire.status import ExecutorStatus, JobStatus, RegionState, RegionStatus
from streamingjob_operator.loss_times import REMEMBERED_SECONDS, LossTimes
from streamingjob_operator.observation import PodView

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def pod(uid: str = "pod-1", **changes) -> PodView:
    fields = {"name": "exec-1", "uid": uid, "component": "executor", "generation": 1, "executor_id": "1"}
    fields |= {"spec_hash": None, "node": "n", "ip": None, "phase": "Running", "ready": True, "created_at": NOW}
    return PodView(**(fields | changes))


def loss(executor: str = "1", uid: str | None = "pod-1") -> PodLostRequest:
    return PodLostRequest(
        generation=1,
        application_id="app",
        executor_id=executor,
        pod_uid=uid,
        reason=LossReason.POD_GONE,
        observed_at=NOW,
    )


def report(**attempts: int) -> JobStatus:
    """Negative: that attempt is not running yet."""
    states = [
        RegionStatus(id=name[1:], attempt=abs(n), state=RegionState.RUNNING if n > 0 else RegionState.SCHEDULING)
        for name, n in attempts.items()
    ]
    return JobStatus(name="job", regions=states, executors=[ExecutorStatus(executor_id="1", regions=["0", "1"])])


def test_a_loss_is_over_when_all_regions_that_had_slots_there_run_again():
    clock = Clock()
    times = LossTimes(clock)
    times.reported("job", report(r0=1, r1=1, r2=1))
    times.pod_seen("job", pod(), deleted=False)
    times.pod_seen("job", pod(deleting_since=NOW), deleted=False)
    clock.now += 0.5
    times.pod_seen("job", pod(), deleted=True)
    times.told("job", loss())
    clock.now += 1.0
    assert times.reported("job", report(r0=2, r1=-2, r2=1)) == []
    clock.now += 1.0
    assert times.reported("job", report(r0=2, r1=2, r2=1)) == [2.5]
    assert times.reported("job", report(r0=2, r1=2, r2=1)) == []


def test_a_loss_found_without_an_event_counts_from_when_it_was_told():
    clock = Clock()
    times = LossTimes(clock)
    times.reported("job", report(r0=1, r1=1))
    times.told("job", loss(uid=None))
    clock.now += 3.0
    assert times.reported("job", report(r0=2, r1=2)) == [3.0]


def test_a_driver_that_noticed_first_and_restarts_already_is_measured_too():
    clock = Clock()
    times = LossTimes(clock)
    times.reported("job", report(r0=1, r1=1))
    times.reported("job", report(r0=-2, r1=1))
    times.pod_seen("job", pod(), deleted=True)
    clock.now += 1.0
    times.reported("job", report(r0=2, r1=2))
    times.told("job", loss())
    assert times.reported("job", report(r0=2, r1=2)) == [1.0]


def test_what_was_seen_of_a_job_is_forgotten_with_it():
    times = LossTimes(Clock())
    times.reported("job", report(r0=1, r1=1))
    times.pod_seen("job", pod(), deleted=True)
    times.forget("job")
    times.told("job", loss())
    assert times.reported("job", report(r0=2, r1=2)) == []


def test_an_executor_without_slots_keeps_nothing_down():
    times = LossTimes(Clock())
    times.reported("job", report(r0=1, r1=1))
    times.told("job", loss(executor="standby"))
    assert times.reported("job", report(r0=2, r1=2)) == []


def test_a_pod_that_went_long_ago_is_not_remembered():
    clock = Clock()
    times = LossTimes(clock)
    times.reported("job", report(r0=1, r1=1))
    times.pod_seen("job", pod(), deleted=True)
    clock.now += REMEMBERED_SECONDS + 1.0
    times.reported("job", report(r0=1, r1=1))
    times.told("job", loss())
    clock.now += 1.0
    assert times.reported("job", report(r0=2, r1=2)) == [1.0]
