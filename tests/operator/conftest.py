"""A world on paper for the decision: a job, its pods, its JobMaster's word and a clock, all in plain values.

`look()` decides and then does to this world what the actions ask for, as the shell would do to a cluster. So a test
reads as a story: this happened, the operator looked, and that is what it did.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from snapshot_engine.wire.status import (
    CheckpointStatus,
    ExecutorStatus,
    JobStatus,
    Phase,
    RegionState,
    RegionStatus,
    SavepointState,
    SavepointStatus,
    TerminationReport,
)
from streamingjob_operator import actions as a
from streamingjob_operator import naming
from streamingjob_operator.decide import decide
from streamingjob_operator.draft import Decision
from streamingjob_operator.jobs import read_job
from streamingjob_operator.observation import ContainerExit, NodeView, Observation, PodView, Refusal, Report
from streamingjob_operator.resource import JobSize

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
UID = "0a1b2c3d-0000-0000-0000-000000000000"


class World:
    def __init__(self) -> None:
        self.now = START
        self.spec: dict[str, Any] = {
            "pipeline": {"entrypoint": "jobs.orders:main"},
            "checkpoint": {"storage": {"uri": "s3://bucket/orders"}},
        }
        self.generation = 1
        self.status: dict[str, Any] = {}
        self.finalizers: list[str] = []
        self.deleting = False
        self.pods: dict[str, PodView] = {}
        self.nodes: dict[str, NodeView] = {"node-1": NodeView("node-1", ready=True, unreachable=False)}
        self.report: JobStatus | None = None
        self.silent_since: datetime | None = None
        self.dry_runs: dict[str, str | None] = {}
        self.dry_run_answer: str | None = None
        self.executor_probed = False
        self.executor_refusal: str | None = None
        self.refuse_launch: str | None = None
        self.refused: Refusal | None = None
        self.hindrance: Refusal | None = None
        self.driver_log: str | None = None
        self.losses_told: set[Any] = set()
        self.stop_accepted = False
        self.dropped_savepoints: set[str] = set()
        self.failed_drops: dict[str, str | None] = {}
        self.may_replace_silent_driver = True
        self.stored: set[str] = set()
        self.last: Decision | None = None
        self._planner_request: a.LaunchPlanner | None = None
        self._sizes: dict[str, JobSize] = {}

    def job(self) -> Any:
        metadata: dict[str, Any] = {
            "name": "orders",
            "namespace": "shop",
            "uid": UID,
            "generation": self.generation,
            "resourceVersion": "1",
            "creationTimestamp": START.isoformat(),
            "finalizers": self.finalizers,
        }
        if self.deleting:
            metadata["deletionTimestamp"] = self.now.isoformat()
        body = {"apiVersion": "streamingjob.dev/v1alpha1", "kind": "StreamingJob", "metadata": metadata}
        return read_job({**body, "spec": self.spec, "status": self.status})

    def observe(self) -> Observation:
        driver = self.job().status.driver
        generation = driver.generation if driver else None
        current = self.report is not None and self.report.generation == generation
        return Observation(
            job=self.job(),
            now=self.now,
            pods=tuple(self.pods.values()),
            nodes=self.nodes,
            report=Report(self.report, self.now) if self.report is not None and current else None,
            silent_since=self.silent_since,
            dry_runs=self.dry_runs,
            executor_probed=self.executor_probed,
            executor_refusal=self.executor_refusal,
            refused_launch=self.refused,
            hindrance=self.hindrance,
            driver_log=self.driver_log,
            losses_told=frozenset(self.losses_told),
            stop_accepted=self.stop_accepted,
            savepoints_dropped=frozenset(self.dropped_savepoints),
            drops_tried=self.failed_drops,
            may_replace_silent_driver=self.may_replace_silent_driver,
        )

    def look(self) -> Decision:
        """One reconcile: decide, record, act."""
        decision = self.decide()
        self.status = decision.status.to_wire()
        for action in decision.actions:
            self._perform(action)
        return decision

    def decide(self) -> Decision:
        self.last = decide(self.observe())
        return self.last

    def settle(self, looks: int = 6) -> Decision:
        for _ in range(looks):
            decision = self.look()
        return decision

    def _perform(self, action: a.Action) -> None:
        match action:
            case a.StoreSpec(spec_hash):
                self.stored.add(spec_hash)
                self._sizes.setdefault(spec_hash, self._size_of_spec())
            case a.DryRunPods(spec_hash):
                self.dry_runs = {spec_hash: self.dry_run_answer}
            case a.LaunchDriver(driver):
                assert driver.spec_hash in self.stored, "a driver is launched from a stored spec"
                if self.refuse_launch is not None:
                    self.refused = Refusal(driver.pod_name, self.refuse_launch)
                    return
                self.refused = None
                self.stop_accepted = False
                self.silent_since = None
                self._add_pod(driver.pod_name, naming.DRIVER, driver.generation, driver.spec_hash)
                self.change_pod(driver.pod_name, size=self._sizes[driver.spec_hash])
                self._forbid_two_drivers()
            case a.LaunchPlanner(spec_hash, restore):
                self._planner_request = action
                name = naming.planner_pod_name("orders", spec_hash, restore)
                self._add_pod(name, naming.PLANNER, None, spec_hash)
            case a.LaunchCleaner(spec_hash):
                self._add_pod("orders-clean", naming.CLEANER, None, spec_hash)
            case a.DeletePod(name, uid, _):
                if name in self.pods and self.pods[name].uid == uid:
                    del self.pods[name]
            case a.DropStoredSpecs(keep):
                self.stored &= keep
                self.dry_runs = {known: said for known, said in self.dry_runs.items() if known in keep}
            case a.AddFinalizer():
                self.finalizers = [naming.FINALIZER]
            case a.RemoveFinalizer():
                self.finalizers = []
            case a.StopJob(_):
                self.stop_accepted = True
            case _:
                pass

    def _size_of_spec(self) -> JobSize:
        spec = self.job().spec
        return JobSize(parallelism=spec.parallelism, executors=spec.executor_pods)

    def _forbid_two_drivers(self) -> None:
        living = [pod.name for pod in self.pods.values() if pod.component == naming.DRIVER and pod.living]
        assert len(living) == 1, f"more than one driver lives: {living}"

    def _add_pod(
        self, name: str, component: str, generation: int | None, spec_hash: str | None, executor: str | None = None
    ) -> PodView:
        pod = PodView(
            name=name,
            uid=f"uid-{name}",
            component=component,
            generation=generation,
            executor_id=executor,
            spec_hash=spec_hash,
            node="node-1",
            ip="10.0.0.1",
            phase="Running",
            ready=True,
            created_at=self.now,
            image="image:1",
            render_version=1,
        )
        self.pods.setdefault(name, pod)
        return self.pods[name]

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def edit(self, **changes: Any) -> None:
        """What a user's change of the spec does: a new generation."""
        self.spec = {**self.spec, **changes}
        self.generation += 1

    @property
    def driver(self) -> PodView:
        record = self.job().status.driver
        assert record is not None, "no driver is recorded"
        return self.pods[record.pod_name]

    def change_pod(self, name: str, **changes: Any) -> None:
        self.pods[name] = replace(self.pods[name], **changes)

    def end_driver(self, code: int, phase: Phase = Phase.FAILED, **report: Any) -> None:
        left = TerminationReport(phase=phase, **report)
        end = ContainerExit(code, "Completed" if code == 0 else "Error", left, "")
        self.change_pod(self.driver.name, phase="Succeeded" if code == 0 else "Failed", exit=end, ready=False)

    def crash_driver(self) -> None:
        end = ContainerExit(1, "Error", None, "Traceback: boom")
        self.change_pod(self.driver.name, phase="Failed", exit=end, ready=False)

    def say(self, **changes: Any) -> None:
        """The JobMaster of the present driver reports: everything runs, but for what is given."""
        generation = self.driver.generation
        values: dict[str, Any] = {
            "name": "orders",
            "generation": generation,
            "application_id": f"app-{generation}",
            "phase": Phase.RUNNING,
            "regions": [self.region(n) for n in range(3)],
            "executors": [self.executor_entry(n) for n in range(3)],
            "checkpoint": CheckpointStatus(last_completed_id=7, completed_at=self.now, path="s3://bucket/orders/7"),
        }
        self.report = JobStatus(**{**values, **changes})

    def region(self, number: int, **changes: Any) -> RegionStatus:
        values: dict[str, Any] = {"id": f"r{number}", "vertices": ["map"], "state": RegionState.RUNNING, "attempt": 1}
        return RegionStatus(**{**values, **changes})

    def executor_entry(self, number: int) -> ExecutorStatus:
        return ExecutorStatus(executor_id=str(number), regions=[f"r{number}"], slots=1)

    def savepoint(self, name: str, state: SavepointState, **values: Any) -> SavepointStatus:
        return SavepointStatus(name=name, state=state, **values)

    def add_executors(self) -> None:
        generation = self.driver.generation
        for number in range(3):
            name = f"orders-{generation}-exec-{number}"
            self._add_pod(name, naming.EXECUTOR, generation, None, executor=str(number))

    def executor_pod(self, number: int) -> str:
        return f"orders-{self.driver.generation}-exec-{number}"

    def start(self) -> None:
        """From nothing to a job that runs."""
        self.settle(3)
        self.add_executors()
        self.say()
        self.settle(2)
        assert self.status["phase"] == "Running", self.status

    def begin_upgrade(self, **changes: Any) -> None:
        self.edit(**({"parallelism": 4} | changes))
        self.settle(2)  # the pods are checked, the planner is launched
        assert self.step == "Plan"

    @property
    def planner_request(self) -> a.LaunchPlanner:
        assert self._planner_request is not None, "no planner was launched"
        return self._planner_request

    def plan_succeeds(self) -> None:
        self.change_pod(self.planner, phase="Succeeded")

    def plan_fails(self) -> None:
        end = ContainerExit(65, "Error", None, "sink console cannot do exactly-once")
        self.change_pod(self.planner, phase="Failed", exit=end)

    @property
    def planner(self) -> str:
        return next(name for name in self.pods if "-plan-" in name)

    def upgrade_to_its_start(self, **changes: Any) -> None:
        """Up to a new driver that was launched and has not said anything yet."""
        self.begin_upgrade(**changes)
        self.plan_succeeds()
        self.look()
        path = f"s3://bucket/orders/savepoints/upgrade-{self.generation}"
        self.end_driver(0, Phase.STOPPED, savepoint_path=path)
        self.settle(3)
        assert self.step == "Start" and self.driver.living

    def finish_start(self) -> None:
        self.settle(3)
        self.add_executors()
        self.say()
        self.settle(2)

    def crash_until(self, reached: Callable[[], bool], most: int = 20) -> None:
        """The driver crashes again and again, and the backoff passes each time."""
        for _ in range(most):
            self.crash_driver()
            for _ in range(4):
                self.look()
                self.pass_time(10)
                if reached():
                    return
        raise AssertionError(f"after {most} crashes: {self.status}")

    @property
    def step(self) -> str | None:
        step = self.status.get("operation", {}).get("step")
        return str(step) if step is not None else None

    def actions(self, kind: type) -> list[Any]:
        assert self.last is not None
        return [action for action in self.last.actions if isinstance(action, kind)]

    def reasons(self) -> list[str]:
        assert self.last is not None
        return [announcement.reason.value for announcement in self.last.announcements]

    def condition(self, kind: str) -> tuple[str, str]:
        found = next(each for each in self.status["conditions"] if each["type"] == kind)
        return found["status"], found["reason"]

    def message(self, kind: str) -> str:
        return str(next(each for each in self.status["conditions"] if each["type"] == kind)["message"])


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def running(world: World) -> World:
    world.start()
    return world
