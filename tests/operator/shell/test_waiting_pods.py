"""A pod that cannot start because a volume is missing says so only in events, and the pod's watch tells nothing."""

from datetime import UTC, datetime, timedelta

import pytest

from streamingjob_operator import naming
from streamingjob_operator.kube import EVENTS, PODS, ApiError
from streamingjob_operator.observe import EXPLAIN_AFTER, MOST_EXPLAINED

FAILED_MOUNT = {"reason": "FailedMount", "message": 'secret "keys" not found', "lastTimestamp": "2026-01-01T12:00:09Z"}


@pytest.fixture
async def pending(api, shell):
    """A job whose driver pod waits."""
    shell.apply()
    await shell.look()
    return shell


def age(shell, **since):
    """The driver's pod was made so long ago."""
    created = datetime.now(UTC) - timedelta(**since)
    pod = shell.api.objects[PODS, "shop", "orders-driver-1"]
    metadata = {**pod["metadata"], "creationTimestamp": created.isoformat()}
    shell.controller.pod_seen(shell.api.put(PODS, {**pod, "metadata": metadata}), deleted=False)


def tell(api, name="mount", **event):
    pod = api.objects[PODS, "shop", "orders-driver-1"]
    about = {"involvedObject": {"uid": pod["metadata"]["uid"]}, "type": "Warning"}
    api.put(EVENTS, {"metadata": {"name": name, "namespace": "shop"}, **about, **event})


async def test_a_pod_that_waits_is_looked_at_again_within_seconds(pending):
    age(pending, seconds=0)
    again = await pending.controller.reconcile(pending.uid)
    assert again is not None and again <= EXPLAIN_AFTER.total_seconds()
    age(pending, minutes=5)
    await pending.controller.reconcile(pending.uid)
    again = await pending.controller.reconcile(pending.uid)
    assert again is not None and again <= 10


async def test_a_volume_that_is_missing_is_said_in_a_condition(api, pending):
    tell(api, **FAILED_MOUNT)
    age(pending, seconds=4)
    await pending.look(1)
    ready = pending.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "DriverCannotStart")
    assert 'FailedMount: secret "keys" not found' in ready["message"]
    assert pending.status["restartBudget"]["spent"] == 0


async def test_what_was_said_before_it_had_a_node_is_not_said_any_more(api, pending):
    tell(api, "scheduling", reason="FailedScheduling", message="no room", lastTimestamp="2026-01-01T12:00:10Z")
    tell(api, **FAILED_MOUNT)
    age(pending, seconds=4)
    await pending.look(1)
    assert "FailedMount" in pending.condition("Ready")["message"]


async def test_a_driver_that_runs_is_not_asked_about(api, shell, pending):
    shell.run_driver()
    await shell.look(2)
    assert not [call for call in api.calls if call[:2] == ("list", "events")]


async def test_events_that_may_not_be_listed_keep_nobody_from_looking_after_the_job(api, pending):
    def forbid(verb, kind, body):
        if (verb, kind) == ("list", EVENTS):
            raise ApiError(403, "Forbidden", "events is forbidden")

    api.refuse(forbid)
    age(pending, seconds=4)
    assert await pending.controller.reconcile(pending.uid) is not None


async def test_a_hundred_executors_that_wait_are_not_all_asked_about_at_once(api, shell):
    shell.apply()
    await shell.look()
    shell.run_driver()
    for number in range(100):
        labels = {naming.UID_LABEL: shell.uid, naming.EXECUTOR_ID_LABEL: str(number), naming.GENERATION_LABEL: "1"}
        long_ago = "2026-01-01T12:00:00Z"
        metadata = {"name": f"exec-{number}", "namespace": "shop", "labels": labels, "creationTimestamp": long_ago}
        shell.controller.pod_seen(api.put(PODS, {"metadata": metadata, "status": {"phase": "Pending"}}), deleted=False)
    await shell.look(1)
    assert sum(call[:2] == ("list", "events") for call in api.calls) == MOST_EXPLAINED
