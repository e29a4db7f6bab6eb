"""The control API of a job's driver, from the operator's side. Short timeouts: a hung driver delays no other job."""

from typing import Any, TypeVar

import aiohttp
from pydantic import BaseModel, ValidationError

from snapshot_engine.wire.control import (
    CONTROL_PORT,
    LOST_PODS_PATH,
    SAVEPOINTS_PATH,
    STATUS_PATH,
    STOP_PATH,
    SUSPECT_NODES_PATH,
    NodeSuspectRequest,
    NodeSuspectResponse,
    PodLostRequest,
    PodLostResponse,
    SavepointRequest,
    SavepointResponse,
    StatusResponse,
    StopRequest,
    StopResponse,
    savepoint_path,
)
from streamingjob_operator.no_answer import NO_ANSWER, describe_no_answer

TIMEOUT_SECONDS = 3.0

Answer = TypeVar("Answer", bound=BaseModel)


class JobMasterError(Exception):
    """The driver did not answer, or not as agreed."""


class JobMasterSilentError(JobMasterError):
    """It did not answer at all: whether it has heard is not known, and asking for more takes as long again."""


class JobMaster:
    """One driver's control API."""

    def __init__(self, session: aiohttp.ClientSession, address: str, token: str) -> None:
        self._session = session
        self.address = address
        self._url = f"http://{address}:{CONTROL_PORT}"
        self._headers = {"Authorization": f"Bearer {token}"}

    async def status(self, since: int | None, wait: float, progress: float) -> StatusResponse:
        query: dict[str, str] = {}
        if since is not None:
            query = {"since": str(since), "wait": str(wait), "progress": str(progress)}
        return await self._ask("GET", STATUS_PATH, StatusResponse, query=query, timeout=wait + TIMEOUT_SECONDS)

    async def report_loss(self, request: PodLostRequest) -> PodLostResponse:
        return await self._ask("POST", LOST_PODS_PATH, PodLostResponse, body=request)

    async def suspect_node(self, request: NodeSuspectRequest) -> NodeSuspectResponse:
        return await self._ask("POST", SUSPECT_NODES_PATH, NodeSuspectResponse, body=request)

    async def stop(self, request: StopRequest) -> StopResponse:
        return await self._ask("POST", STOP_PATH, StopResponse, body=request)

    async def take_savepoint(self, name: str) -> SavepointResponse:
        return await self._ask("POST", SAVEPOINTS_PATH, SavepointResponse, body=SavepointRequest(name=name))

    async def drop_savepoint(self, name: str) -> None:
        await self._send("DELETE", savepoint_path(name))

    async def _ask(
        self,
        method: str,
        path: str,
        answer: type[Answer],
        *,
        query: dict[str, str] | None = None,
        body: BaseModel | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> Answer:
        text = await self._send(method, path, query=query, body=body, timeout=timeout)
        try:
            return answer.model_validate_json(text)
        except ValidationError as error:
            raise JobMasterError(f"{method} {path}: an answer that cannot be read: {error}") from error

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: BaseModel | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> bytes:
        options: dict[str, Any] = {"params": query, "headers": self._headers}
        if body is not None:
            options["json"] = body.model_dump(mode="json", by_alias=True, exclude_none=True)
        limit = aiohttp.ClientTimeout(total=timeout, sock_connect=TIMEOUT_SECONDS)
        try:
            async with self._session.request(method, self._url + path, timeout=limit, **options) as response:
                content = await response.read()
        except NO_ANSWER as error:
            raise JobMasterSilentError(f"{method} {self._url}{path}: {describe_no_answer(error)}") from error
        if response.status >= 400:
            raise JobMasterError(f"{method} {path}: {response.status} {content[:300].decode(errors='replace')}")
        return content
