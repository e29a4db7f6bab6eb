"""What becomes of a job's state, whatever happens to the job and to its operator.

The world on paper is given a storage here, and drivers that do with it what the engine's do: fence older drivers, start
from what they were told unless that has led to a checkpoint already, complete checkpoints, stop with savepoints.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from tests.operator.conftest import World

from snapshot_engine.wire.control import FIRST_LINE, StopMode, StopRequest
from snapshot_engine.wire.status import ExitCode, Phase
from streamingjob_operator import actions as a
from streamingjob_operator import naming
from streamingjob_operator.resource import RestorePoint

STORIES = 25
EVENTS = 60


class State(NamedTuple):
    line: int
    """Grows with every beginning from nothing."""
    number: int
    """Grows with every checkpoint: two of a line that have the same are the same."""


@dataclass
class Driver:
    generation: int
    pod: str
    restore: RestorePoint | None
    state: State | None = None
    """None before it has started from something."""
    order: StopRequest | None = None


class StatefulWorld(World):
    def __init__(self) -> None:
        super().__init__()
        self.latest: State | None = None
        self.fence = 0
        self.line = FIRST_LINE
        """The restore that the latest checkpoint goes back to."""
        self.left: dict[str, State | None] = {}
        """Those that another one followed, and what was completed last before that."""
        self.completed: list[State] = []
        self.savepoints: dict[str, State] = {}
        self.drivers: dict[str, Driver] = {}
        self.lines = 0
        self.told: list[str] = []

    def _perform(self, action: a.Action) -> None:
        super()._perform(action)
        if isinstance(action, a.LaunchDriver) and action.driver.pod_name in self.pods:
            record = action.driver
            self.drivers.setdefault(record.pod_name, Driver(record.generation, record.pod_name, record.restore))
        elif isinstance(action, a.StopJob) and (driver := self.living_driver()) is not None:
            driver.order = action.request

    def living_driver(self) -> Driver | None:
        record = self.status.get("driver", {}).get("podName")
        pod = self.pods.get(record)
        return self.drivers[pod.name] if pod is not None and pod.living else None

    # What drivers do.

    def start_driver(self, driver: Driver) -> None:
        if driver.state is not None:
            return
        if driver.generation < self.fence:
            self.end_driver(ExitCode.FENCED)
            return
        self.fence = driver.generation
        driver.state = self._starting_state(driver.restore)
        self.told.append(f"{driver.pod} starts from {driver.state} by {driver.restore}; latest is {self.latest}")

    def _starting_state(self, restore: RestorePoint | None) -> State:
        if restore is None or restore.id == self.line:
            return self.latest or self._nothing()
        if restore.id in self.left:
            return self.left[restore.id] or self._nothing()
        if restore.ignore_state:
            return self._nothing()
        return self.savepoints[restore.path] if restore.path is not None else self.latest or self._nothing()

    def _nothing(self) -> State:
        self.lines += 1
        return State(self.lines, 0)

    def complete_checkpoint(self, driver: Driver) -> None:
        assert driver.state is not None
        if driver.restore is not None and driver.restore.id != self.line:
            self.left.pop(driver.restore.id, None)
            self.left[self.line], self.line = self.latest, driver.restore.id
        number = 1 + max((each.number for each in self.completed if each.line == driver.state.line), default=0)
        driver.state = self.latest = driver.state._replace(number=number)
        self.completed.append(driver.state)

    def obey(self, driver: Driver) -> None:
        """Its order to stop, if it has one."""
        order = driver.order
        if order is None or driver.state is None:
            return
        path = None
        if order.mode is not StopMode.CANCEL:
            self.complete_checkpoint(driver)
        if order.mode is StopMode.SAVEPOINT:
            path = f"s3://p/{order.name}"
            assert path not in self.savepoints, f"{path} is there already: {self.told}"
            assert driver.state is not None
            self.savepoints[path] = driver.state
        self.end_driver(0, Phase.STOPPED, savepoint_path=path)


class Story:
    def __init__(self, seed: int, more: tuple[Callable[["Story"], None], ...] = ()) -> None:
        self.random = random.Random(seed)
        self.world = StatefulWorld()
        self.world.spec["recovery"] = {"maxRestarts": 3, "window": "24h"}
        self.kinds = (*EVENT_KINDS, *more)
        self.nonce = 0

    def tell(self) -> None:
        for _ in range(EVENTS):
            event = self.random.choice(self.kinds)
            self.world.told.append(event.__name__)
            event(self)
            for _ in range(self.random.randint(0, 3)):
                self.look()

    def look(self) -> None:
        world = self.world
        if self.random.random() < 0.15:
            world.status = world.decide().status.to_wire()  # recorded, and then the operator died
            world.stop_accepted, world.report, world.dry_runs = False, None, {}
        else:
            world.look()

    def edit(self, **changes: Any) -> None:
        self.world.told.append(f"{changes}")
        self.world.edit(**changes)


def change_the_spec(story: Story) -> None:
    story.edit(parallelism=story.random.randint(1, 3))


def ask_for_a_restart(story: Story) -> None:
    story.nonce += 1
    story.edit(restartNonce=story.nonce)


def suspend_or_resume(story: Story) -> None:
    story.edit(state=story.random.choice(["Running", "Running", "Suspended"]))


def choose_a_policy(story: Story) -> None:
    story.edit(
        upgradeMode=story.random.choice(["Savepoint", "LastState"]),
        savepointFallback=story.random.choice(["LastState", "KeepRunning"]),
        rollback=story.random.random() < 0.7,
    )


def change_without_state(story: Story) -> None:
    story.edit(upgradeMode="Stateless", parallelism=story.random.randint(1, 3))


def go_back(story: Story) -> None:
    story.nonce += 1
    if story.world.savepoints:
        path = story.random.choice(sorted(story.world.savepoints))
        changes = {"parallelism": story.random.randint(1, 3)} if story.random.random() < 0.3 else {}
        story.edit(restoreFrom=path, restoreNonce=story.nonce, **changes)


def the_driver_starts(story: Story) -> None:
    driver = story.world.living_driver()
    if driver is not None:
        story.world.start_driver(driver)


def the_driver_works(story: Story) -> None:
    """It reports that all regions run, and completes a checkpoint."""
    the_driver_starts(story)
    driver = story.world.living_driver()
    if driver is not None:
        story.world.add_executors()
        story.world.say()
        story.world.look()
        if story.world.living_driver() is driver:
            story.world.complete_checkpoint(driver)


def the_driver_works_unseen(story: Story) -> None:
    """All its regions run, and it completes a checkpoint, before the operator hears of it."""
    the_driver_starts(story)
    driver = story.world.living_driver()
    if driver is not None:
        story.world.complete_checkpoint(driver)


def the_driver_fails_for_good(story: Story) -> None:
    if story.world.living_driver() is not None:
        story.world.end_driver(ExitCode.UNREADABLE_STATE, error="no such sink")


def the_driver_obeys(story: Story) -> None:
    driver = story.world.living_driver()
    if driver is not None:
        story.world.obey(driver)


def the_driver_crashes(story: Story) -> None:
    if story.world.living_driver() is not None:
        story.world.crash_driver()


def the_driver_is_lost(story: Story) -> None:
    driver = story.world.living_driver()
    if driver is not None:
        del story.world.pods[driver.pod]


def the_planner_ends(story: Story) -> None:
    for name, pod in list(story.world.pods.items()):
        if pod.component == naming.PLANNER:
            story.world.change_pod(name, phase=story.random.choice(["Succeeded", "Succeeded", "Succeeded", "Failed"]))


def all_goes_well(story: Story) -> None:
    """For a while, so that changes come to their end."""
    for _ in range(8):
        for name, pod in list(story.world.pods.items()):
            if pod.component == naming.PLANNER:
                story.world.change_pod(name, phase="Succeeded")
        the_driver_obeys(story)
        the_driver_works(story)
        story.world.pass_time(5)


def time_passes(story: Story) -> None:
    story.world.pass_time(story.random.choice([1, 30, 30, 700]))


EVENT_KINDS = (
    all_goes_well,
    all_goes_well,
    all_goes_well,
    change_the_spec,
    change_the_spec,
    ask_for_a_restart,
    suspend_or_resume,
    choose_a_policy,
    the_driver_starts,
    the_driver_works,
    the_driver_works,
    the_driver_works,
    the_driver_obeys,
    the_driver_obeys,
    the_driver_crashes,
    the_driver_is_lost,
    the_planner_ends,
    the_planner_ends,
    time_passes,
)
REWINDS = (change_without_state, go_back)
WITHOUT_STATE = (
    change_without_state,
    change_without_state,
    the_driver_works_unseen,
    the_driver_works_unseen,
    the_driver_fails_for_good,
    the_driver_fails_for_good,
)


@pytest.mark.parametrize("seed", range(STORIES))
def test_a_job_that_nobody_sent_back_never_goes_back(seed):
    story = Story(seed)
    world = story.world
    start = world.start_driver

    def start_and_compare(driver: Driver) -> None:
        fresh, latest = driver.state is None, world.latest
        start(driver)
        if fresh and driver.state is not None and latest is not None:
            assert driver.state == latest, world.told

    world.start_driver = start_and_compare  # type: ignore[method-assign]
    story.tell()


@pytest.mark.parametrize("seed", range(STORIES))
def test_a_job_that_was_sent_back_goes_back_once_each_time(seed):
    story = Story(seed, REWINDS)
    forbid_going_back_twice(story)
    story.tell()


def forbid_going_back_twice(story: Story) -> None:
    """But for a rollback, which goes back from where it should not have gone."""
    world, begun = story.world, set[str]()
    start = world.start_driver

    def start_and_compare(driver: Driver) -> None:
        name = driver.restore.id if driver.restore is not None and driver.state is None else None
        start(driver)
        if name is None or driver.state is None or driver.state == world.latest:
            return
        rolls_back = world.status.get("operation", {}).get("kind") == "Rollback"
        assert rolls_back or name not in begun or name not in world.left, world.told
        begun.add(name)

    world.start_driver = start_and_compare  # type: ignore[method-assign]


@pytest.mark.parametrize("seed", range(3 * STORIES))
def test_a_change_without_state_that_is_rolled_back_costs_none(seed):
    story = Story(seed, WITHOUT_STATE)
    world, good = story.world, dict[str, int]()
    start = world.start_driver

    def start_and_compare(driver: Driver) -> None:
        """The last good spec's own state, as it was when that ran last."""
        rolls_back = world.status.get("operation", {}).get("kind") == "Rollback"
        fresh = driver.state is None
        start(driver)
        spec = world.status["driver"]["specHash"]
        if driver.state is None:
            return
        if fresh and rolls_back and spec in good and world.step == "Start":
            ended = [each for each in world.completed if each.line == good[spec]]
            expected = ended[-1] if ended else None
            assert expected is None or driver.state == expected, (expected, driver.state, world.told)
        good[spec] = driver.state.line

    world.start_driver = start_and_compare  # type: ignore[method-assign]
    story.tell()
