"""A server that closes the connection, hangs up in the middle or is not there: one kind of error for each client."""

import asyncio
import contextlib

import aiohttp
import pytest
from kubernetes_asyncio import client

from streamingjob_operator import jobmaster as jobmaster_module
from streamingjob_operator.jobmaster import JobMaster, JobMasterError
from streamingjob_operator.kube import PODS, ApiError, Kube, NoAnswerError

HANGS_UP = b""
HALF_AN_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"
NOT_HTTP = b"who is there?\r\n\r\n"
A_PROXYS_PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"


@contextlib.asynccontextmanager
async def serving(answer):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@contextlib.asynccontextmanager
async def kube_at(port):
    kube = Kube(client.ApiClient(client.Configuration(host=f"http://127.0.0.1:{port}")))
    try:
        yield kube
    finally:
        await kube.close()


@pytest.mark.parametrize("answer", [HANGS_UP, HALF_AN_ANSWER, NOT_HTTP, A_PROXYS_PAGE])
async def test_an_api_server_that_does_not_answer(answer):
    async with serving(answer) as port, kube_at(port) as kube:
        with pytest.raises(NoAnswerError, match=r"the API server did not answer: .+") as error:
            await kube.get(PODS, "shop", "orders-driver-1")
        assert not error.value.is_refusal, "nobody knows whether it was done"


async def test_an_api_server_that_is_not_there():
    async with serving(HANGS_UP) as port:
        pass
    async with kube_at(port) as kube:
        with pytest.raises(NoAnswerError):
            await kube.list(PODS, "shop")


@pytest.mark.parametrize("answer", [HANGS_UP, HALF_AN_ANSWER, NOT_HTTP, A_PROXYS_PAGE])
async def test_a_driver_that_does_not_answer(answer, monkeypatch):
    async with serving(answer) as port, aiohttp.ClientSession() as session:
        monkeypatch.setattr(jobmaster_module, "CONTROL_PORT", port)
        with pytest.raises(JobMasterError):
            await JobMaster(session, "127.0.0.1", "token").take_savepoint("manual-1")


@pytest.mark.parametrize(
    ("status", "message", "refused", "blames"),
    [
        (422, "spec.containers[0].resources.requests: Invalid value", True, True),
        (400, "strict decoding error: unknown field", True, True),
        (403, "error looking up service account shop/orders: not found", True, False),
        (403, "exceeded quota: pods", True, False),
        (400, 'admission webhook "policy.example" denied the request: no', True, False),
        (422, "ValidatingAdmissionPolicy 'x' denied request: no", True, False),
        (500, 'Internal error occurred: failed calling webhook "policy.example"', True, False),
        (429, "too many requests", True, False),
        (500, "etcdserver: request timed out", False, False),
    ],
)
def test_what_an_answer_says(status, message, refused, blames):
    error = ApiError(status, "", message)
    assert (error.is_refusal, error.blames_the_object) == (refused, blames)
