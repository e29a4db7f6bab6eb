"""The lease is kept through slow answers, and given up before somebody else may take it."""

import asyncio

import aiohttp
import pytest

from streamingjob_operator import lease as module
from streamingjob_operator.kube import ApiError, NoAnswerError
from streamingjob_operator.lease import (
    DURATION_SECONDS,
    GIVE_UP_AFTER_SECONDS,
    RENEW_SECONDS,
    RETRY_SECONDS,
    Lease,
    LeaseLostError,
)


class Leases:
    """An API server that does something else at the numbered requests than to answer."""

    def __init__(self, instead=None, holder="me"):
        self.instead = instead or {}
        self.asked = 0
        self.holder = holder

    async def get(self, kind, namespace, name):
        self.asked += 1
        trouble = self.instead.get(self.asked)
        if trouble is not None:
            await trouble()
        return {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": self.holder, "renewTime": "now"}}

    async def replace(self, kind, body):
        self.holder = body["spec"]["holderIdentity"]
        return body


async def silence():
    await asyncio.sleep(60)


def failing_with(error):
    async def fail():
        raise error

    return fail


@pytest.fixture
def renewing_quickly(monkeypatch):
    """And given up late, or at once: neither depends on how busy the machine is."""
    monkeypatch.setattr(module, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)

    def give_up_after(seconds):
        monkeypatch.setattr(module, "GIVE_UP_AFTER_SECONDS", seconds)

    return give_up_after


async def held(leases):
    lease = Lease(leases, "ns", "name", "me")
    await lease.acquire()
    return lease


async def test_an_answer_that_does_not_come_is_asked_for_again(renewing_quickly):
    renewing_quickly(30.0)
    leases = Leases({3: silence, 4: silence})
    keeping = asyncio.create_task((await held(leases)).keep())
    while leases.asked < 6:
        await asyncio.sleep(0.001)
        assert not keeping.done()
    keeping.cancel()


async def test_it_is_given_up_when_nobody_answers_any_more(renewing_quickly):
    renewing_quickly(0.5)
    with pytest.raises(LeaseLostError):
        await (await held(Leases(dict.fromkeys(range(2, 100), silence)))).keep()


@pytest.mark.parametrize(
    "error",
    [NoAnswerError(aiohttp.ServerDisconnectedError()), ApiError(500, "InternalError", "etcd is away")],
    ids=["no answer", "an error"],
)
async def test_a_standby_goes_on_trying_whatever_happens_to_the_api_server(monkeypatch, error):
    monkeypatch.setattr(module, "ACQUIRE_SECONDS", 0.01)
    leases = Leases(dict.fromkeys(range(1, 4), failing_with(error)))
    await held(leases)
    assert leases.asked == 4


async def test_a_standby_is_not_held_up_by_an_answer_that_does_not_come(monkeypatch):
    monkeypatch.setattr(module, "ACQUIRE_SECONDS", 0.01)
    await held(Leases({1: silence}))


async def test_it_is_lost_as_soon_as_another_name_is_on_it(renewing_quickly):
    """And not only when it could not be renewed for long: the other one acts already."""
    renewing_quickly(30.0)
    leases = Leases()
    lease = await held(leases)
    leases.holder = "other"
    with pytest.raises(LeaseLostError, match="other has taken the lease"):
        await lease.keep()


async def test_the_time_to_give_up_counts_from_when_it_was_asked_for(renewing_quickly):
    """Of an answer that took long, little is left: others count from when the API server wrote it."""
    renewing_quickly(0.3)

    async def slowly():
        await asyncio.sleep(0.35)

    lease = await held(Leases({1: slowly}))
    leases_asked = lease._kube.asked
    with pytest.raises(LeaseLostError):
        await lease.keep()
    assert lease._kube.asked == leases_asked, "there was no time left to ask again"


async def test_releasing_it_when_nobody_answers_is_no_error():
    leases = Leases({2: failing_with(NoAnswerError(TimeoutError()))})
    await (await held(leases)).release()
    assert leases.holder == "me"


def test_two_answers_may_be_missing_and_nobody_else_has_taken_it_by_then():
    two_missing = RENEW_SECONDS + 2 * (RENEW_SECONDS + RETRY_SECONDS)
    assert two_missing < GIVE_UP_AFTER_SECONDS < DURATION_SECONDS
