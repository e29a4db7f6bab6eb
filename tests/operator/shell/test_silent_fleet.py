"""A cut-off operator does not replace the whole fleet, however many jobs it looks at side by side."""

import asyncio
from datetime import UTC, datetime, timedelta

from streamingjob_operator.fleet import MAX_REPLACEMENTS
from streamingjob_operator.kube import PODS, STREAMING_JOBS

JOBS = [f"orders-{number}" for number in range(8)]


async def test_few_silent_drivers_are_replaced_at_once_by_workers_side_by_side(api, shell):
    for name in JOBS:
        shell.apply(name=name)
        await shell.look()
        shell.run_driver()
        await shell.look(2)
        assert shell.status["phase"] == "Running"
        shell.run_driver(ready=False)
        shell.controller._memories[shell.uid].silent_since = datetime.now(UTC) - timedelta(seconds=60)

    write = api.replace

    async def write_slowly(*args, **kwargs):
        await asyncio.sleep(0)
        return await write(*args, **kwargs)

    api.replace = write_slowly
    await asyncio.gather(*(shell.controller.reconcile(uid) for uid in list(shell.controller.store.jobs)))
    replaced = [name for name in JOBS if "driver" not in api.objects[STREAMING_JOBS, "shop", name]["status"]]
    assert len(replaced) == MAX_REPLACEMENTS
    assert len(api.names(PODS)) == len(JOBS) - MAX_REPLACEMENTS
