"""The operator's finalizer comes and goes; those of others are not its own to touch."""

from datetime import UTC, datetime

from streamingjob_operator import naming
from streamingjob_operator.kube import CONFIG_MAPS, PODS, SECRETS, SERVICE_ACCOUNTS, STREAMING_JOBS

OTHER = "example.com/other"


def add_just_before_the_operator_does(api, finalizer):
    """Somebody else's change that no watch has shown yet."""

    def change(verb, kind, body):
        if verb == "get" and kind == STREAMING_JOBS:
            api.refusals.remove(change)
            present = api.objects[kind, "shop", "orders"]
            finalizers = [*present["metadata"].get("finalizers", []), finalizer]
            api.put(kind, {**present, "metadata": {**present["metadata"], "finalizers": finalizers}})

    api.refuse(change)


def finalizers(api):
    return set(api.objects[STREAMING_JOBS, "shop", "orders"]["metadata"]["finalizers"])


async def test_a_finalizer_that_was_added_meanwhile_stays(api, shell):
    shell.apply(savepointOnDeletion=True)
    add_just_before_the_operator_does(api, OTHER)
    await shell.look(2)
    assert finalizers(api) == {OTHER, naming.FINALIZER}


async def test_also_when_the_operators_own_goes(api, shell):
    shell.apply(savepointOnDeletion=True)
    await shell.look(2)
    shell.change(savepointOnDeletion=False)
    add_just_before_the_operator_does(api, OTHER)
    await shell.look(2)
    assert finalizers(api) == {OTHER}


async def test_checkpoints_are_removed_also_if_what_belongs_to_the_job_went_first(api, shell):
    """A deletion in the foreground takes it, and the pod that removes them cannot start without."""
    shell.apply(deletionPolicy="Delete")
    await shell.look()
    shell.run_driver()
    await shell.look(2)
    for kind in (PODS, SECRETS, SERVICE_ACCOUNTS, CONFIG_MAPS):
        for name in api.names(kind):
            api.remove(kind, "shop", name)
    delete(api, shell)
    await shell.look()
    [cleaner] = api.names(PODS)
    volumes = api.objects[PODS, "shop", cleaner]["spec"]["volumes"]
    mounted = next(volume["projected"]["sources"] for volume in volumes if "projected" in volume)
    assert [mounted[0]["configMap"]["name"]] == api.names(CONFIG_MAPS)
    assert [mounted[1]["secret"]["name"]] == api.names(SECRETS)
    assert api.objects[PODS, "shop", cleaner]["spec"]["serviceAccountName"] in api.names(SERVICE_ACCOUNTS)


def delete(api, shell):
    body = api.objects[STREAMING_JOBS, "shop", "orders"]
    metadata = {**body["metadata"], "deletionTimestamp": datetime.now(UTC).isoformat()}
    shell.controller.store.put_job(api.put(STREAMING_JOBS, {**body, "metadata": metadata}))
