"""The driver's HTTP side: the control API for operator and command line, probes, and metrics."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from pydantic import ValidationError

from snapshot_engine.runtime.job_master import JobMaster
from snapshot_engine.runtime.status_board import StatusBoard
from snapshot_engine.storage.errors import StorageError
from snapshot_engine.wire import control
from snapshot_engine.wire.model import WireModel
from snapshot_engine.wire.status import Phase

_OPEN_PATHS = {control.HEALTH_PATH, control.READY_PATH, control.METRICS_PATH}


class HttpApi:
    """Every POST may be repeated: what is asked for twice is done once."""

    def __init__(self, master: JobMaster, board: StatusBoard, registry: CollectorRegistry, token: str) -> None:
        self._master = master
        self._board = board
        self.registry = registry
        self._token = token
        self._runner: web.AppRunner | None = None
        self._losses: dict[tuple[object, ...], list[str]] = {}
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        app = web.Application(middlewares=[self._guard])
        app.add_routes(
            [
                web.get(control.STATUS_PATH, self._status),
                web.post(control.SAVEPOINTS_PATH, self._take_savepoint),
                web.get(control.SAVEPOINTS_PATH + "/{name}", self._show_savepoint),
                web.delete(control.SAVEPOINTS_PATH + "/{name}", self._delete_savepoint),
                web.post(control.LOST_PODS_PATH, self._pod_lost),
                web.post(control.SUSPECT_NODES_PATH, self._node_suspect),
                web.post(control.STOP_PATH, self._stop),
                web.get(control.HEALTH_PATH, self._healthy),
                web.get(control.READY_PATH, self._ready),
                web.get(control.METRICS_PATH, self._metrics),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.path not in _OPEN_PATHS and not self._knows_token(request):
            return _error(401, "the control API needs the job's token: Authorization: Bearer <token>")
        try:
            return await handler(request)
        except ValidationError as error:
            return _error(400, "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()))

    def _knows_token(self, request: web.Request) -> bool:
        given = request.headers.get("Authorization", "")  # of whatever bytes
        return hmac.compare_digest(given.encode(errors="surrogateescape"), f"Bearer {self._token}".encode())

    async def _status(self, request: web.Request) -> web.Response:
        """Held until there is something new, for as long as the caller wants to wait."""
        try:
            since = int(request.query.get("since", "0"))
            wait = min(float(request.query.get("wait", "0")), control.MAX_LONG_POLL_SECONDS)
            progress = float(request.query.get("progress", "0"))
        except ValueError:
            return _error(400, "since, wait and progress are numbers")
        await self._wait_for_news(since, wait, progress)
        return _answer(control.StatusResponse(revision=self._board.revision, status=self._board.status))

    async def _wait_for_news(self, since: int, wait: float, progress: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()

        def is_news() -> bool:
            if self._board.transition > since or since > self._board.revision:
                return True
            return self._board.revision > since and loop.time() - began >= progress

        while not is_news() and (left := began + wait - loop.time()) > 0:
            held_back = began + progress - loop.time() if self._board.revision > since else left
            async with self._board.changed:
                try:
                    await asyncio.wait_for(self._board.changed.wait(), max(0.01, min(left, held_back)))
                except TimeoutError:
                    continue

    async def _take_savepoint(self, request: web.Request) -> web.Response:
        wanted = control.SavepointRequest.model_validate_json(await request.read())
        known = self._board.savepoint(wanted.name)
        if known is not None:
            return _answer(known)
        known = self._board.savepoint_requested(wanted.name)
        self._master.checkpoints.request_savepoint(wanted.name, stop=False)
        return _answer(known, 202)

    async def _show_savepoint(self, request: web.Request) -> web.Response:
        known = self._board.savepoint(request.match_info["name"])
        return _answer(known) if known else _error(404, f"there is no savepoint {request.match_info['name']!r}")

    async def _delete_savepoint(self, request: web.Request) -> web.Response:
        try:
            await asyncio.to_thread(self._master.delete_savepoint, request.match_info["name"])
        except (OSError, StorageError) as error:
            return _error(500, f"the savepoint cannot be deleted: {error}")
        return web.Response(status=204)

    async def _pod_lost(self, request: web.Request) -> web.Response:
        loss = control.PodLostRequest.model_validate_json(await request.read())
        if loss.generation != self._board.status.generation:
            return _answer(control.PodLostResponse(outcome=control.LossOutcome.OTHER_GENERATION))
        key = (loss.application_id, loss.executor_id)  # Spark gives no number twice
        known = key in self._losses or await self._master.watch.knows(loss.executor_id)
        if key in self._losses:  # perhaps told twice at once
            return _answer(
                control.PodLostResponse(outcome=control.LossOutcome.ALREADY_KNOWN, regions=self._losses[key])
            )
        if not known:
            return _answer(control.PodLostResponse(outcome=control.LossOutcome.UNKNOWN_EXECUTOR))
        hit = self._master.watch.executor_lost(
            loss.executor_id, "PodLost", f"{loss.reason}: {loss.message}".strip(": ")
        )
        self._losses[key] = [str(region) for region in hit]
        latest = self._master.checkpoints.latest
        return _answer(
            control.PodLostResponse(
                outcome=control.LossOutcome.ACCEPTED,
                regions=self._losses[key],
                checkpoint_id=latest.checkpoint if latest else None,
            )
        )

    async def _node_suspect(self, request: web.Request) -> web.Response:
        hint = control.NodeSuspectRequest.model_validate_json(await request.read())
        silent: list[str] = []
        if hint.generation == self._board.status.generation:
            silent = [executor for executor in hint.executor_ids if self._master.watch.is_silent(executor)]
        for executor in silent:
            self._master.watch.executor_lost(executor, "NodeLost", f"node {hint.node}: {hint.reason}")
        return _answer(control.NodeSuspectResponse(fenced_executor_ids=silent))

    async def _stop(self, request: web.Request) -> web.Response:
        wanted = control.StopRequest.model_validate_json(await request.read())
        known = None
        if wanted.mode is control.StopMode.CANCEL:
            asyncio.get_running_loop().call_later(0.1, self._master.cancel, "cancelled by request")
        elif not self._master.stopping:
            if wanted.mode is control.StopMode.SAVEPOINT and wanted.name is not None:
                known = self._board.savepoint_requested(wanted.name)
            self._master.stop(wanted.name if wanted.mode is control.StopMode.SAVEPOINT else None)
        elif wanted.name is not None:
            known = self._board.savepoint(wanted.name)
        return _answer(control.StopResponse(accepted=True, savepoint=known), 202)

    async def _healthy(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _ready(self, _: web.Request) -> web.Response:
        phase = self._board.status.phase
        return web.Response(text=phase.value, status=200 if phase is Phase.RUNNING else 503)

    async def _metrics(self, _: web.Request) -> web.Response:
        body = await asyncio.to_thread(generate_latest, self.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _answer(body: WireModel, status: int = 200) -> web.Response:
    return web.json_response(body.to_wire(), status=status)


def _error(status: int, text: str) -> web.Response:
    return _answer(control.ErrorResponse(error=text), status)
