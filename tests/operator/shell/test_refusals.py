"""What the cluster refuses is said in a condition, costs nothing, and is tried again until it works."""

import asyncio
import contextlib
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from streamingjob_operator.actions import ReportLoss, StopJob, TakeSavepoint
from streamingjob_operator.jobmaster import JobMasterError, JobMasterSilentError
from streamingjob_operator.kube import CONFIG_MAPS, EVENTS, PODS, STREAMING_JOBS, ApiError
from streamingjob_operator.rules import executors

NO_ACCOUNT = ApiError(
    403, "Forbidden", 'pods "orders" is forbidden: error looking up service account shop/own: not found'
)
QUOTA = ApiError(403, "Forbidden", 'pods "orders" is forbidden: exceeded quota: pods, used: 10, limited: 10')
WEBHOOK_DOWN = ApiError(
    500, "InternalError", 'Internal error occurred: failed calling webhook "policy.example": timeout'
)
WEBHOOK_DENIES = ApiError(400, "", 'admission webhook "policy.example" denied the request: not today')
INVALID = ApiError(422, "Invalid", "spec.containers[0].resources.requests: Invalid value")


class Refusing:
    """Refuses some requests as long as it is on."""

    def __init__(self, error, verbs, kind):
        self.error, self.verbs, self.kind, self.on = error, verbs, kind, True

    def __call__(self, verb, kind, body):
        if self.on and verb in self.verbs and kind == self.kind:
            raise self.error


def refuse(api, error, kind=PODS, verbs=("dry run", "create")):
    refusing = Refusing(error, verbs, kind)
    api.refuse(refusing)
    return refusing


@pytest.mark.parametrize("error", [NO_ACCOUNT, QUOTA, WEBHOOK_DOWN, WEBHOOK_DENIES], ids=lambda e: e.message[:40])
async def test_a_first_start_is_tried_again_until_the_cluster_lets_it(api, shell, error):
    refusing = refuse(api, error)
    shell.apply()
    await shell.look(6)
    ready = shell.condition("Ready")
    assert ready["status"] == "False" and error.message in ready["message"]
    assert ready["reason"] in ("RefusedByCluster", "DriverCannotStart")
    assert shell.condition("Stalled")["status"] == "False", "nobody has to change the spec"
    refusing.on = False
    await shell.look()
    assert api.names(PODS) == ["orders-driver-1"]
    assert error.message not in shell.condition("Ready")["message"]
    assert shell.condition("Degraded")["status"] == "False"
    assert shell.status["restartBudget"]["spent"] == 0 and shell.status["driverGeneration"] == 1


async def test_what_is_wrong_with_the_spec_itself_is_not_tried_again(api, shell):
    refuse(api, INVALID)
    shell.apply()
    await shell.look()
    assert shell.condition("Stalled")["reason"] == "InvalidSpec"
    tried = api.calls.count(("dry run", "pods", None))
    await shell.look()
    assert api.calls.count(("dry run", "pods", None)) == tried


MISSPELT = ApiError(400, "BadRequest", 'Pod in version "v1" cannot be handled: unknown field "spec.nodeSelectr"')


@pytest.mark.parametrize(
    ("part", "error", "origin"),
    [
        (
            "driver",
            INVALID,
            "rendered from spec.driver with its podTemplate, spec.serviceAccountName, spec.image and "
            "spec.checkpoint.storage",
        ),
        (
            "executor",
            INVALID,
            "rendered from spec.executor with its podTemplate, spec.image and spec.checkpoint.storage",
        ),
        ("driver", MISSPELT, "spec.driver.podTemplate"),
        ("executor", MISSPELT, "spec.executor.podTemplate"),
    ],
)
async def test_a_refused_pod_is_put_down_to_all_that_can_be_behind_it(api, shell, part, error, origin):
    def refuse_part(verb, kind, body):
        if verb == "dry run" and body["spec"]["containers"][0]["name"] == part:
            raise error

    api.refuse(refuse_part)
    shell.apply()
    await shell.look()
    assert shell.condition("Stalled")["message"] == f"the API server refuses the {part} pod ({origin}): {error.message}"


@pytest.mark.parametrize("part", ["driver", "executor"])
async def test_a_container_of_another_name_without_image_is_told_how_the_engines_is_named(api, shell, part):
    def refuse_part(verb, kind, body):
        if verb == "dry run" and body["spec"]["containers"][0]["name"] == part:
            raise ApiError(422, "Invalid", 'Pod "x" is invalid: spec.containers[1].image: Required value')

    api.refuse(refuse_part)
    shell.apply()
    await shell.look()
    told = shell.condition("Stalled")["message"]
    assert told.endswith(f"image: Required value. To change the engine's container, name it `{part}`")


@pytest.fixture
async def running(shell):
    shell.apply()
    await shell.look()
    shell.run_driver()
    await shell.look(2)
    assert shell.status["phase"] == "Running"
    return shell


@pytest.mark.parametrize("kind", [PODS, CONFIG_MAPS], ids=lambda kind: kind.plural)
async def test_a_changed_spec_that_the_cluster_refuses_leaves_the_job_running_and_is_tried_again(api, running, kind):
    refusing = refuse(api, NO_ACCOUNT, kind)
    running.change(parallelism=4)
    await running.look()
    assert running.status["phase"] == "Running" and api.names(PODS) == ["orders-driver-1"]
    ready = running.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "RefusedByCluster")
    refusing.on = False
    await running.look(2)
    assert running.status["operation"]["kind"] == "Upgrade"


async def test_the_quota_that_refuses_executors_is_named(api, running, monkeypatch):
    monkeypatch.setattr(executors, "EXECUTORS_MADE_WITHIN_SECONDS", 0.0)
    refuse(api, ApiError(403, "Forbidden", 'pods "orders-check-ab1" is forbidden: exceeded quota: team'))
    await running.look(3)
    degraded = running.condition("Degraded")
    assert 'refuses them: pods "orders-check" is forbidden: exceeded quota: team' in degraded["message"]
    asked = api.calls.count(("dry run", "pods", None))
    await running.look(3)
    assert api.calls.count(("dry run", "pods", None)) == asked


async def test_what_is_refused_keeps_nothing_else_from_being_done(api, running, monkeypatch):
    """A loss is told, an event posted, and a driver followed, although a changed spec cannot be stored."""
    refuse(api, NO_ACCOUNT, CONFIG_MAPS)
    running.change(parallelism=4, savepointNonce=7)
    told = []

    async def hear(job, status, action, memory):
        told.append(type(action))

    monkeypatch.setattr(running.controller._actor, "_tell_driver", hear)
    await running.look(1)
    assert TakeSavepoint in told
    reasons = [body["reason"] for (kind, _, _), body in api.objects.items() if kind == EVENTS]
    assert "SavepointRequested" in reasons


async def test_what_is_refused_holds_up_nothing_that_is_due_sooner(api, running):
    """A driver is restarted after its own pause, and not after that of something else which does not work."""
    refuse(api, NO_ACCOUNT, CONFIG_MAPS)
    running.change(parallelism=4)
    queue = running.controller.queue
    for _ in range(9):
        await queue._work_once(running.uid)
    assert queue._next_retry(running.uid) == 60.0
    ended = {"name": "driver", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    for name in ("orders-driver-1", "orders-driver-2"):  # the first restart is at once
        pod = api.objects[PODS, "shop", name]
        status = {"phase": "Failed", "containerStatuses": [ended]}
        running.controller.pod_seen(api.put(PODS, {**pod, "status": status}), deleted=False)
        for _ in range(3):
            queue._queued.clear()  # as a worker does that takes it
            await queue._work_once(running.uid)
    assert "notBefore" in running.status["launch"]
    due = queue._timers[running.uid].when() - asyncio.get_running_loop().time()
    assert due < 11


async def test_an_operator_without_an_answer_to_its_launch_looks_before_it_launches_again(api, shell):
    """It was made all the same: a second driver of the next generation would be one too many."""

    def lose_the_answer(verb, kind, body):
        if verb == "create" and kind == PODS and not lost:
            lost.append(api.put(kind, body))
            raise ApiError(504, "Timeout", "the request timed out")

    lost = []
    api.refuse(lose_the_answer)
    shell.apply()
    await shell.look(6)
    assert api.names(PODS) == ["orders-driver-1"]
    assert shell.status["driver"]["podUid"] == lost[0]["metadata"]["uid"]


async def test_a_status_that_has_changed_meanwhile_is_read_again_and_nothing_is_done(api, shell):
    shell.apply()
    await shell.look(1)
    body = api.objects[STREAMING_JOBS, "shop", "orders"]
    api.put(STREAMING_JOBS, {**body, "metadata": {**body["metadata"], "labels": {"by": "somebody else"}}})
    before = len(api.calls)
    await shell.look(1)
    assert not [call for call in api.calls[before:] if call[0] == "create"]
    await shell.look()
    assert api.names(PODS) == ["orders-driver-1"]


@pytest.mark.parametrize(
    ("error", "asked"), [(JobMasterSilentError("hangs"), 1), (JobMasterError("409"), 3)], ids=["hangs", "says no"]
)
async def test_a_driver_that_hangs_is_waited_for_once_a_look(shell, monkeypatch, error, asked):
    shell.apply()
    await shell.look()
    told = []

    async def answer(job, status, action, memory):
        told.append(action)
        raise error

    actor = shell.controller._actor
    monkeypatch.setattr(actor, "_tell_driver", answer)
    memory, job = shell.controller._memories[shell.uid], SimpleNamespace(key="shop/orders")
    actions = [ReportLoss(None), StopJob(None), TakeSavepoint("a")]
    done = await actor.perform_all(job, None, actions, memory)
    assert len(told) == asked and done.failures == ()


async def test_a_driver_that_is_silent_already_is_not_waited_for_again(shell, monkeypatch):
    shell.apply()
    await shell.look()
    told = []

    async def hear(job, status, action, memory):
        told.append(action)

    actor, memory = shell.controller._actor, shell.controller._memories[shell.uid]
    monkeypatch.setattr(actor, "_tell_driver", hear)
    memory.silent_since = datetime.now(UTC)
    await actor.perform_all(SimpleNamespace(key="shop/orders"), None, [TakeSavepoint("a")], memory)
    assert told == []


async def test_a_failure_that_nobody_foresaw_is_said_and_tried_again(api, running):
    refusing = refuse(api, TypeError("a bug"), CONFIG_MAPS, verbs=("create",))
    running.change(parallelism=4)
    for _ in range(3):
        with contextlib.suppress(TypeError):
            await running.controller.reconcile(running.uid)
    ready = running.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "OperatorError")
    assert "StoreSpec failed: TypeError: a bug" in ready["message"]
    refusing.on = False
    await running.look()
    assert running.condition("Ready")["reason"] == "Upgrading"


@pytest.mark.parametrize(
    ("template", "field"),
    [
        ({"metadata": {"labels": None}}, "metadata.labels must be a mapping; found null"),
        ({"spec": {"containers": {"name": "driver"}}}, "spec.containers must be a list"),
        ({"spec": {"containers": ["driver"]}}, "spec.containers[0] must be a mapping"),
    ],
    ids=str,
)
@pytest.mark.parametrize("part", ["driver", "executor"])
async def test_a_pod_template_of_the_wrong_shape_is_an_invalid_spec(running, part, template, field):
    running.change(**{part: {"podTemplate": template}})
    await running.look()
    stalled = running.condition("Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "InvalidSpec")
    assert f"spec.{part}.podTemplate: {field}" in stalled["message"]
    assert running.condition("Ready")["status"] == "False" and running.status["phase"] == "Running"


async def test_a_pod_that_is_refused_under_another_name_each_time_is_no_news(api, shell):
    """Or each try would write the status, be seen by the watch, and so be the cause of the next, without a pause."""
    names = iter(f"orders-check-{letter}" for letter in "bcdfghjklm")

    def refuse_by_name(verb, kind, body):
        if verb == "dry run":
            raise ApiError(403, "Forbidden", f'pods "{next(names)}" is forbidden: failed quota: team')

    api.refuse(refuse_by_name)
    shell.apply()
    await shell.look(3)
    assert 'pods "orders-check" is forbidden: failed quota: team' in shell.condition("Ready")["message"]
    written = [call for call in api.calls if call[0] == "replace"]
    await shell.look(3)
    assert [call for call in api.calls if call[0] == "replace"] == written


async def test_what_the_operator_has_written_itself_asks_for_no_look(api, shell):
    shell.apply()
    await shell.look()
    controller, body = shell.controller, api.objects[STREAMING_JOBS, "shop", "orders"]
    controller.job_seen(body, deleted=False)
    assert len(controller.queue) == 0
    controller.job_seen(api.put(STREAMING_JOBS, body), deleted=False)
    assert len(controller.queue) == 1
