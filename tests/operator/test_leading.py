"""Whoever leads gives the lease back only when nothing of it acts any more."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from streamingjob_operator import main
from streamingjob_operator.config import OperatorConfig
from streamingjob_operator.metrics import OperatorMetrics


class Lease:
    def __init__(self, story):
        self.story = story

    async def acquire(self):
        self.story.append("acquired")

    async def keep(self):
        await asyncio.sleep(60)

    async def release(self):
        self.story.append("released")


@pytest.fixture
def story(monkeypatch):
    told = []

    class Controller:
        def __init__(self, *_):
            pass

        async def run(self):
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0)  # an action that is under way takes its time to end
                told.append("acts no more")

    async def watch(config, controller, stop):
        await asyncio.sleep(0)
        stop.set()
        await asyncio.sleep(60)

    monkeypatch.setattr(main, "Controller", Controller)
    monkeypatch.setattr(main, "_watch", watch)
    return told


async def test_the_lease_is_released_when_nothing_acts_any_more(story):
    metrics = OperatorMetrics(CollectorRegistry())
    await main._lead(OperatorConfig(image="i"), metrics, None, None, asyncio.Event(), Lease(story))
    assert story == ["acquired", "acts no more", "released"]
