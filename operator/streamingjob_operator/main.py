"""The command `streamingjob-operator`."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Sequence
from typing import Any

import aiohttp
import click
import kopf
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from streamingjob_operator.config import OperatorConfig
from streamingjob_operator.controller import Controller
from streamingjob_operator.handlers import register_handlers
from streamingjob_operator.kube import Kube
from streamingjob_operator.lease import Lease, LeaseLostError
from streamingjob_operator.metrics import OperatorMetrics
from streamingjob_operator.serving import serve

log = logging.getLogger("streamingjob_operator")


@click.command(context_settings={"auto_envvar_prefix": "STREAMINGJOB_OPERATOR"})
@click.option("--image", required=True, help="Image of driver and executors of jobs that name none.")
@click.option("--namespace", "namespaces", multiple=True, help="Watch this namespace only; may be repeated.")
@click.option("--port", default=8080, show_default=True, help="Probes and metrics.")
@click.option("--lease/--no-lease", default=True, help="Leader election, for more than one replica.")
@click.option("--lease-namespace", default="default", show_default=True)
@click.option("--lease-name", default="streamingjob-operator", show_default=True)
@click.option("--watch-nodes/--no-watch-nodes", default=True, help="Needs rights for the whole cluster.")
@click.option("--service-accounts/--no-service-accounts", default=True, help="Make one for each job.")
@click.option("--log-level", default="INFO", type=click.Choice(["DEBUG", "INFO", "WARNING"]), show_default=True)
def main(
    image: str,
    namespaces: tuple[str, ...],
    port: int,
    lease: bool,
    lease_namespace: str,
    lease_name: str,
    watch_nodes: bool,
    service_accounts: bool,
    log_level: str,
) -> None:
    """Runs StreamingJobs on Kubernetes, and keeps them running."""
    logging.basicConfig(level=log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    config = OperatorConfig(
        image=image,
        namespaces=namespaces,
        identity=f"{socket.gethostname()}-{os.getpid()}",
        watch_nodes=watch_nodes,
        make_service_accounts=service_accounts,
    )
    election = (lease_namespace, lease_name) if lease else None
    try:
        asyncio.run(run_operator(config, port, election))
    except LeaseLostError as error:
        log.error("%s; ending, so that only its new holder acts", error)
        sys.exit(1)


async def run_operator(config: OperatorConfig, port: int, election: tuple[str, str] | None) -> None:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    metrics = OperatorMetrics(registry)
    stop = asyncio.Event()
    # For a standby that waits for the lease; from then on kopf takes the signals.
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    kube = await Kube.connect(lambda verb, plural, code: metrics.api_calls.labels(verb, plural, str(code)).inc())
    server = await serve(registry, port)
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            await _lead(
                config, metrics, kube, session, stop, Lease(kube, *election, config.identity) if election else None
            )
    finally:
        await server.cleanup()
        await kube.close()


async def _lead(
    config: OperatorConfig,
    metrics: OperatorMetrics,
    kube: Kube,
    session: aiohttp.ClientSession,
    stop: asyncio.Event,
    lease: Lease | None,
) -> None:
    if lease is not None and not await _unless_stopped(lease.acquire(), stop):
        return
    metrics.leader.set(1)
    controller = Controller(kube, session, config, metrics)
    tasks = [asyncio.create_task(_watch(config, controller, stop)), asyncio.create_task(controller.run())]
    if lease is not None:
        tasks.append(asyncio.create_task(lease.keep()))
    stopper = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait([*tasks, stopper], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await _cancel([*tasks, stopper])
    if lease is not None:
        await lease.release()  # the next one acts from then on, so nothing of this one may still be under way


async def _watch(config: OperatorConfig, controller: Controller, stop: asyncio.Event) -> None:
    await controller.namespaces.until_one_answers()
    registry = kopf.OperatorRegistry()
    register_handlers(registry, controller, watch_nodes=config.watch_nodes)
    await kopf.operator(
        registry=registry,
        standalone=True,
        clusterwide=not config.namespaces,
        namespaces=controller.namespaces.answering,
        insights=controller.namespaces.insights,
        stop_flag=stop,
    )
    stop.set()  # kopf takes the signals for itself, and returns when one has come


async def _unless_stopped(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    task, stopper = asyncio.create_task(work), asyncio.create_task(stop.wait())
    await asyncio.wait([task, stopper], return_when=asyncio.FIRST_COMPLETED)
    finished = task.done()
    await _cancel([stopper] if finished else [task, stopper])
    if finished:
        task.result()
    return finished


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task


if __name__ == "__main__":
    main()
