"""Savepoints that the operator deletes, asked of a driver's control API over HTTP."""

import aiohttp
import pytest
from aiohttp import web

from snapshot_engine.wire.control import CONTROL_PORT, savepoint_path
from streamingjob_operator.kube import PODS, STREAMING_JOBS
from streamingjob_operator.memory import DROP_AGAIN_AFTER

ADDRESS = "127.81.7.1"


class Driver:
    def __init__(self):
        self.asked = []
        self.trouble = "403 AccessDenied"

    async def delete(self, request):
        self.asked.append(request.match_info["name"])
        if self.trouble is not None:
            return web.json_response({"error": f"the savepoint cannot be deleted: {self.trouble}"}, status=500)
        return web.Response(status=204)


@pytest.fixture
async def driver():
    driver = Driver()
    application = web.Application()
    application.router.add_delete(savepoint_path("{name}"), driver.delete)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, ADDRESS, CONTROL_PORT).start()
    yield driver
    await runner.cleanup()


@pytest.fixture
async def running(shell, api):
    """With four savepoints of its own, one more than are kept."""
    shell.apply()
    await shell.look()
    shell.run_driver()
    await shell.look(2)
    pod = api.objects[PODS, "shop", "orders-driver-1"]
    shell.controller.pod_seen(api.put(PODS, {**pod, "status": {**pod["status"], "podIP": ADDRESS}}), deleted=False)
    job = api.objects[STREAMING_JOBS, "shop", "orders"]
    own = [
        {"name": f"upgrade-{n}", "trigger": "Upgrade", "state": "Completed", "path": f"s3://p/{n}"}
        | {"requestedAt": "2026-01-01T12:00:00Z"}
        for n in (5, 4, 3, 2)
    ]
    shell.controller.store.put_job(api.put(STREAMING_JOBS, {**job, "status": {**job["status"], "savepoints": own}}))
    async with aiohttp.ClientSession() as session:
        shell.controller._actor._session = session
        yield shell
        await shell.controller._followers.close()


async def test_a_savepoint_whose_deletion_fails_is_shown_and_asked_for_again(running, driver):
    await running.look()
    assert driver.asked == ["upgrade-2"], "not at every look"
    [*kept, shown] = running.status["savepoints"]
    assert shown["name"] == "upgrade-2" and "403 AccessDenied" in shown["error"] and len(kept) == 3
    driver.trouble = None
    memory = running.controller._memories[running.uid]
    memory.drops_tried = {name: (at - DROP_AGAIN_AFTER, why) for name, (at, why) in memory.drops_tried.items()}
    await running.look(2)
    assert driver.asked == ["upgrade-2", "upgrade-2"]
    assert [each["name"] for each in running.status["savepoints"]] == ["upgrade-5", "upgrade-4", "upgrade-3"]


async def test_one_whose_driver_does_not_answer_stays_on_the_list(running):
    await running.look()
    assert len(running.status["savepoints"]) == 4 and "error" not in running.status["savepoints"][-1]
    tried = running.controller._memories[running.uid].drops_tried
    assert tried["upgrade-2"][1] is None
