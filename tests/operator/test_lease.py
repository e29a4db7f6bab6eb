"""The lease is kept through slow answers, and given up before somebody else may take it."""

import asyncio

import pytest

from streamingjob_operator import lease as module
from streamingjob_operator.lease import Lease, LeaseLostError

SCALE = 0.1
"""The times of the test, of those of the lease."""


class Leases:
    """An API server whose answers to the numbered requests do not come."""

    def __init__(self, unanswered=()):
        self.unanswered = unanswered
        self.asked = 0

    async def get(self, kind, namespace, name):
        self.asked += 1
        if self.asked in self.unanswered:
            await asyncio.sleep(60)
        return {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "me", "renewTime": "now"}}

    async def replace(self, kind, body):
        return body


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for name in ("RENEW_SECONDS", "RETRY_SECONDS", "GIVE_UP_AFTER_SECONDS"):
        monkeypatch.setattr(module, name, getattr(module, name) * SCALE)


async def test_an_answer_that_does_not_come_is_asked_for_again():
    leases = Leases(unanswered=(3, 4))
    keeping = asyncio.create_task(Lease(leases, "ns", "name", "me").keep())
    while leases.asked < 6:
        await asyncio.sleep(0.001)
        assert not keeping.done()
    keeping.cancel()


async def test_it_is_given_up_when_nobody_answers_any_more():
    leases = Leases(unanswered=range(100))
    with pytest.raises(LeaseLostError):
        await Lease(leases, "ns", "name", "me").keep()
    assert leases.asked > 1


def test_it_is_given_up_before_others_may_take_it():
    assert module.GIVE_UP_AFTER_SECONDS < module.DURATION_SECONDS * SCALE
