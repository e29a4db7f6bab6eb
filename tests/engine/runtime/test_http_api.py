"""What the control API answers when something cannot be done."""

from types import SimpleNamespace

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from snapshot_engine.runtime.http_api import HttpApi
from snapshot_engine.wire.control import STATUS_PATH, savepoint_path


async def test_a_savepoint_that_cannot_be_deleted_is_answered_with_the_reason():
    def delete_savepoint(name):
        raise PermissionError(13, "Permission denied", f"savepoints/{name}/manifest.json")

    api = HttpApi(SimpleNamespace(delete_savepoint=delete_savepoint), None, CollectorRegistry(), "token")
    await api.start("127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{api.port}{savepoint_path('old')}"
        headers = {"Authorization": "Bearer token"}
        async with aiohttp.ClientSession() as session, session.delete(url, headers=headers) as answer:
            assert answer.status == 500
            assert "savepoints/old/manifest.json" in (await answer.json())["error"]
    finally:
        await api.close()


@pytest.mark.parametrize("given", ["", "Bearer other", "Bearer tökén", "Basic dG9rZW4="])
async def test_whoever_does_not_know_the_token_is_told_so(given):
    api = HttpApi(SimpleNamespace(), None, CollectorRegistry(), "token")
    await api.start("127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{api.port}{STATUS_PATH}"
        async with aiohttp.ClientSession() as session, session.get(url, headers={"Authorization": given}) as answer:
            assert answer.status == 401
            assert "Authorization: Bearer <token>" in (await answer.json())["error"]
    finally:
        await api.close()
