"""An API server that comes back from a backup counts its versions on from lower ones."""

from streamingjob_operator.kube import STREAMING_JOBS


async def test_a_job_is_looked_after_again(api, shell):
    shell.apply()
    await shell.look()
    body = shell.controller.store.jobs[shell.uid]
    shell.controller.store.put_job({**body, "metadata": {**body["metadata"], "resourceVersion": "1000000"}})
    shell.run_driver()
    assert await shell.controller.reconcile(shell.uid) > 0, "no loop without a pause"
    await shell.look()
    assert api.objects[STREAMING_JOBS, "shop", "orders"]["status"]["phase"] == "Running"
