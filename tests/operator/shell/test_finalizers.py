"""The operator's finalizer comes and goes; those of others are not its own to touch."""

from streamingjob_operator import naming
from streamingjob_operator.kube import STREAMING_JOBS

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
