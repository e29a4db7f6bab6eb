"""The lease is kept through slow answers, and given up before somebody else may take it."""

import asyncio

import pytest

from streamingjob_operator import lease as module
from streamingjob_operator.lease import (
    DURATION_SECONDS,
    GIVE_UP_AFTER_SECONDS,
    RENEW_SECONDS,
    RETRY_SECONDS,
    Lease,
    LeaseLostError,
)


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


@pytest.fixture
def renewing_quickly(monkeypatch):
    """And given up late, or at once: neither depends on how busy the machine is."""
    monkeypatch.setattr(module, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)

    def give_up_after(seconds):
        monkeypatch.setattr(module, "GIVE_UP_AFTER_SECONDS", seconds)

    return give_up_after


async def test_an_answer_that_does_not_come_is_asked_for_again(renewing_quickly):
    renewing_quickly(30.0)
    leases = Leases(unanswered=(3, 4))
    keeping = asyncio.create_task(Lease(leases, "ns", "name", "me").keep())
    while leases.asked < 6:
        await asyncio.sleep(0.001)
        assert not keeping.done()
    keeping.cancel()


async def test_it_is_given_up_when_nobody_answers_any_more(renewing_quickly):
    renewing_quickly(0.5)
    with pytest.raises(LeaseLostError):
        await Lease(Leases(unanswered=range(100)), "ns", "name", "me").keep()


def test_two_answers_may_be_missing_and_nobody_else_has_taken_it_by_then():
    two_missing = RENEW_SECONDS + 2 * (RENEW_SECONDS + RETRY_SECONDS)
    assert two_missing < GIVE_UP_AFTER_SECONDS < DURATION_SECONDS
