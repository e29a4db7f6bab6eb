"""A name that is taken: by a former job of the same name, or by somebody else."""

import base64

import pytest

from streamingjob_operator import naming
from streamingjob_operator.kube import (
    CONFIG_MAPS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)

NAMED_ALIKE = (SERVICES, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, PODS)
OF_A_JOB = (CONFIG_MAPS, SECRETS, *NAMED_ALIKE)


def owners(api, kind):
    bodies = [body for (each, _, _), body in api.objects.items() if each == kind]
    return {reference["uid"] for body in bodies for reference in body["metadata"]["ownerReferences"]}


async def test_all_that_belongs_to_a_job_is_made_for_it(api, shell):
    shell.apply()
    await shell.look()
    for kind in OF_A_JOB:
        assert owners(api, kind) == {shell.uid}, kind


async def test_what_pods_mount_is_made_anew_at_once_beside_what_a_former_job_left(api, shell):
    """A node that still has a pod of the former job would give a new one what it remembers under the same name."""
    shell.apply()
    await shell.look()
    mounted = {key: body for key, body in api.objects.items() if key[0] in (CONFIG_MAPS, SECRETS)}
    api.objects.clear()
    api.objects |= mounted
    shell.apply()
    await shell.look()
    assert api.names(PODS) == ["orders-driver-1"]
    text = str(api.objects[PODS, "shop", "orders-driver-1"])
    assert not any(name in text for _, _, name in mounted)


@pytest.mark.parametrize("left", NAMED_ALIKE, ids=lambda kind: kind.plural)
async def test_what_a_former_job_left_is_waited_for_and_then_made_anew(api, shell, left):
    shell.apply()
    await shell.look()
    former, uid = dict(api.objects), shell.uid
    api.objects.clear()
    api.objects |= {key: body for key, body in former.items() if key[0] == left}
    shell.apply()
    await shell.look()
    assert owners(api, left) == {uid}, "nothing of it is touched"
    assert "driver" not in shell.status or left is PODS
    ready = shell.condition("Ready")
    assert ready["reason"] in ("RefusedByCluster", "DriverCannotStart")
    assert "belongs to a former StreamingJob of the same name" in ready["message"]
    for key in [key for key in api.objects if key[0] == left]:
        del api.objects[key]  # the garbage collector has come
    await shell.look()
    for kind in OF_A_JOB:
        assert owners(api, kind) == {shell.uid}, kind
    assert shell.status["restarts"] == 0 and shell.status["restartBudget"]["spent"] == 0
    assert shell.status["driverGeneration"] == 1, "refused is not made: the generation is not used up"


async def test_the_token_of_a_former_job_is_not_used(api, shell):
    shell.apply()
    await shell.look()
    api.put(
        SECRETS,
        {
            "metadata": _named(naming.secret_name("orders", shell.uid), "former"),
            "data": {"control-token": _encode("old")},
        },
    )
    pod = api.objects[PODS, "shop", "orders-driver-1"]
    shell.controller.pod_seen({**pod, "status": {"phase": "Running", "podIP": "127.0.0.1"}}, deleted=False)
    await shell.look(1)
    assert shell.controller._memories[shell.uid].token is None


def _named(name, owner):
    reference = {"apiVersion": "streamingjob.dev/v1alpha1", "kind": "StreamingJob", "name": "orders", "uid": owner}
    return {"name": name, "namespace": "shop", "ownerReferences": [reference]}


def _encode(text):
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("kind", "name"),
    [(SERVICES, "orders-driver"), (SERVICE_ACCOUNTS, "orders-driver")],
    ids=["service", "service account"],
)
async def test_what_is_somebody_elses_is_left_alone_and_said(api, shell, kind, name):
    theirs = api.put(kind, {"metadata": {"name": name, "namespace": "shop"}, "theirs": True})
    shell.apply()
    await shell.look()
    assert api.objects[kind, "shop", name] == theirs
    assert api.names(PODS) == []
    ready = shell.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "RefusedByCluster")
    assert f"{kind.plural}/{name} in namespace shop is there already" in ready["message"]
    assert "delete it, or give the job another name" in ready["message"]
    api.remove(kind, "shop", name)
    await shell.look()
    assert api.names(PODS) == ["orders-driver-1"]


@pytest.mark.parametrize("kind", [SECRETS, SERVICES, PODS], ids=lambda kind: kind.plural)
async def test_what_an_earlier_request_of_ours_makes_meanwhile_is_ours(api, shell, kind):
    """Its answer was lost; it is carried out after this look has seen nothing."""

    def carry_out_late(verb, asked, body):
        if verb == "create" and asked == kind and not late:
            late.append(api.put(kind, body))

    late = []
    api.refuse(carry_out_late)
    shell.apply()
    await shell.look()
    assert api.names(PODS) == ["orders-driver-1"]
    kept = api.objects[kind, "shop", late[0]["metadata"]["name"]]
    assert kept["metadata"]["uid"] == late[0]["metadata"]["uid"]
