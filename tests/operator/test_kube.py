"""What the API server is asked for, word by word."""

import json

import pytest
from aiohttp import web
from kubernetes_asyncio import client

from streamingjob_operator.kube import PODS, Kube

POD = {"metadata": {"name": "orders-driver-1", "namespace": "shop"}}


@pytest.fixture
def asked():
    return []


@pytest.fixture
async def kube(asked):
    async def answer(request):
        asked.append(dict(request.query))
        return web.json_response(json.loads(await request.text()))

    application = web.Application()
    application.router.add_post("/api/v1/namespaces/shop/pods", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    kube = Kube(client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{port}")))
    yield kube
    await kube.close()
    await runner.cleanup()


async def test_a_dry_run_refuses_fields_that_nobody_knows(kube, asked):
    await kube.create(PODS, POD, dry_run=True)
    assert asked == [{"dryRun": "All", "fieldValidation": "Strict", "fieldManager": "streamingjob-operator"}]


async def test_what_is_really_made_is_taken_as_before(kube, asked):
    await kube.create(PODS, POD)
    assert asked == [{"fieldManager": "streamingjob-operator"}]
