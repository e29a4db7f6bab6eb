"""Whatever happened to a job, and however often its operator died: a good spec runs in the end, and nothing hangs.

The world on paper forbids a second living driver and a driver of a spec that was not stored, at every look.
"""

import random

import pytest

from snapshot_engine.wire.status import Phase
from streamingjob_operator import naming

STORIES = 25
EVENTS = 40


class Story:
    def __init__(self, world, seed):
        self.random = random.Random(seed)
        self.world = world
        self.world.spec["recovery"] = {"maxRestarts": 2, "window": "24h"}
        self.told = []

    def tell(self):
        for _ in range(EVENTS):
            event = self.random.choice(EVENT_KINDS)
            self.told.append(event.__name__)
            event(self)
            for _ in range(self.random.randint(0, 3)):
                self.look()

    def look(self):
        if self.random.random() < 0.15:
            self.world.status = self.world.decide().status.to_wire()  # recorded, and then the operator died
            self.world.stop_accepted, self.world.report, self.world.dry_runs = False, None, {}
        else:
            self.world.look()

    def living_driver(self):
        pods = self.world.pods.values()
        record = self.world.status.get("driver", {}).get("podName")
        return next((pod.name for pod in pods if pod.name == record and pod.living), None)

    def let_all_go_well(self, looks=80):
        world = self.world
        world.dry_run_answer, world.silent_since = None, None
        for _ in range(looks):
            world.look()
            world.pass_time(5)
            for name, pod in list(world.pods.items()):
                if pod.component == naming.PLANNER:
                    world.change_pod(name, phase="Succeeded")
            if self.living_driver() is None:
                continue
            if world.stop_accepted:
                name = world.status.get("operation", {}).get("savepointName")
                world.end_driver(0, Phase.STOPPED, savepoint_path=f"s3://p/{name}" if name else None)
            else:
                world.add_executors()
                world.say()


def change_the_spec(story):
    story.world.edit(parallelism=story.random.randint(1, 3))


def ask_by_nonce(story):
    nonce = story.random.choice(["restartNonce", "savepointNonce", "restoreNonce"])
    story.world.edit(**{nonce: story.random.randint(0, 9), "restoreFrom": "s3://p/asked"})


def ask_with_a_change(story):
    change_the_spec(story)
    ask_by_nonce(story)


def suspend_or_resume(story):
    story.world.edit(state=story.random.choice(["Running", "Suspended"]))


def choose_a_policy(story):
    story.world.edit(
        upgradeMode=story.random.choice(["Savepoint", "LastState", "Stateless"]),
        savepointFallback=story.random.choice(["LastState", "KeepRunning"]),
        rollback=story.random.random() < 0.7,
    )


def change_the_api_servers_mind(story):
    story.world.dry_run_answer = story.random.choice([None, None, "no such field"])


def end_the_driver(story):
    if story.living_driver() is None:
        return
    code, phase = story.random.choice(
        [(0, Phase.FINISHED), (0, Phase.STOPPED), (1, Phase.FAILED), (1, Phase.FAILED), (68, Phase.FAILED)]
    )
    story.world.end_driver(code, phase)


def lose_the_driver_pod(story):
    name = story.living_driver()
    if name is not None:
        del story.world.pods[name]


def the_driver_reports(story):
    if story.living_driver() is not None:
        story.world.add_executors()
        story.world.say()


def the_planner_ends(story):
    for name, pod in list(story.world.pods.items()):
        if pod.component == naming.PLANNER:
            story.world.change_pod(name, phase=story.random.choice(["Succeeded", "Succeeded", "Failed"]))


def time_passes(story):
    story.world.pass_time(story.random.choice([1, 30, 700]))


EVENT_KINDS = (
    change_the_spec,
    ask_by_nonce,
    ask_with_a_change,
    suspend_or_resume,
    choose_a_policy,
    change_the_api_servers_mind,
    end_the_driver,
    lose_the_driver_pod,
    the_driver_reports,
    the_driver_reports,
    the_driver_reports,
    the_planner_ends,
    time_passes,
)


@pytest.mark.parametrize("seed", range(STORIES))
def test_a_good_spec_runs_in_the_end(world, seed):
    story = Story(world, seed)
    story.tell()
    world.edit(state="Running", parallelism=7)
    story.let_all_go_well()
    assert world.condition("Ready") == ("True", "Running"), (story.told, world.status)
    assert world.status["driver"]["specHash"] == naming.spec_hash(world.spec)
    assert "operation" not in world.status and "launch" not in world.status
    assert [pod.name for pod in world.pods.values() if pod.component == naming.PLANNER] == []
    generation = world.status["driverGeneration"]
    story.let_all_go_well(10)
    assert world.status["driverGeneration"] == generation, "nothing that was asked for before is still to come"


@pytest.mark.parametrize("seed", range(STORIES, 2 * STORIES))
def test_a_suspended_job_has_no_driver_and_can_be_resumed(world, seed):
    story = Story(world, seed)
    story.tell()
    world.edit(state="Suspended")
    story.let_all_go_well()
    assert world.status["phase"] in ("Suspended", "Finished"), (story.told, world.status)
    assert not any(pod.component == naming.DRIVER and pod.living for pod in world.pods.values())
    world.edit(state="Running", parallelism=7)
    story.let_all_go_well()
    assert world.condition("Ready") == ("True", "Running"), (story.told, world.status)


@pytest.mark.parametrize("seed", range(2 * STORIES, 3 * STORIES))
def test_a_spec_that_is_not_ready_says_why(world, seed):
    """Left alone, a job comes to rest: as the spec asks, or stalled with a reason."""
    story = Story(world, seed)
    story.tell()
    story.let_all_go_well()
    ready, stalled = story.world.condition("Ready"), story.world.condition("Stalled")
    assert (ready[0] == "True") != (stalled[0] == "True"), (story.told, story.world.status)
    if story.world.status["phase"] == "Running":
        runs, good = story.world.status["driver"]["specHash"], story.world.status["lastGoodHash"]
        assert runs == good, "and what runs has been ready"
