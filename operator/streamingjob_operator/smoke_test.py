"""What `helm test` runs in the cluster: a small bounded job, or a refusal where there is no place for checkpoints."""

import asyncio
import sys
import time

import click

from snapshot_engine.wire.spec import API_VERSION, KIND
from streamingjob_operator.kube import STREAMING_JOBS, ApiError, Kube

NAME = "smoke-test"
TIMEOUT_SECONDS = 240.0
SOURCE = """
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.discard import DiscardSink

def pipeline(env):
    env.from_source(bids(keys=10, count=1000), uid="bids").sink_to(DiscardSink(), uid="out")
"""


@click.command()
@click.option("--namespace", required=True)
@click.option("--claim", default="", help="A PersistentVolumeClaim for the job's checkpoints.")
@click.option("--service-account", default="", help="For the job's driver, if the operator makes none.")
def main(namespace: str, claim: str, service_account: str) -> None:
    sys.exit(asyncio.run(_run(namespace, claim, service_account)))


async def _run(namespace: str, claim: str, service_account: str) -> int:
    kube = await Kube.connect()
    try:
        if not claim:
            return await _expect_refusal(kube, job(namespace, None, service_account))
        storage: dict[str, object] = {"pvc": {"claimName": claim, "subPath": NAME}}
        return await _run_job(kube, namespace, job(namespace, storage, service_account))
    finally:
        await kube.close()


def job(namespace: str, storage: dict[str, object] | None, service_account: str) -> dict[str, object]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "pipeline": {"source": SOURCE},
            "checkpoint": {"storage": storage} if storage is not None else {},
            "deletionPolicy": "Delete",  # the next test is another job, and may not take this one's state
            "driver": {"podTemplate": _small("driver")},
            "executor": {"podTemplate": _small("executor")},
            **({"serviceAccountName": service_account} if service_account else {}),
        },
    }


def _small(container: str) -> dict[str, object]:
    return {"spec": {"containers": [{"name": container, "resources": {"requests": {"cpu": "50m"}}}]}}


async def _expect_refusal(kube: Kube, wrong_job: dict[str, object]) -> int:
    try:
        await kube.create(STREAMING_JOBS, wrong_job)
    except ApiError as error:
        if "spec.checkpoint.storage is required" in error.message:
            print("a job without storage is refused, as it should be; set test.claimName to run a real one")
            return 0
        print(f"refused, but not for the expected reason: {error}")
        return 1
    print("a job without storage was accepted: is the CRD of this release installed?")
    return 1


async def _run_job(kube: Kube, namespace: str, small_job: dict[str, object]) -> int:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    await _delete(kube, namespace, deadline)
    await kube.create(STREAMING_JOBS, small_job)
    status: dict[str, object] = {}
    while time.monotonic() < deadline and status.get("phase") not in ("Finished", "Failed"):
        await asyncio.sleep(1)
        status = (await kube.get(STREAMING_JOBS, namespace, NAME) or {}).get("status", {})
    print(f"{NAME}: {status.get('phase')}: {status.get('error') or status.get('conditions')}")
    if status.get("phase") != "Finished":
        return 1  # and the job stays, to be looked at
    return await _delete(kube, namespace, deadline)


async def _delete(kube: Kube, namespace: str, deadline: float) -> int:
    """With its checkpoints, which takes a moment."""
    await kube.delete(STREAMING_JOBS, namespace, NAME)
    while await kube.get(STREAMING_JOBS, namespace, NAME) is not None:
        if time.monotonic() > deadline:
            print(f"{NAME}: deleted, and still there")
            return 1
        await asyncio.sleep(0.5)
    return 0


if __name__ == "__main__":
    main()
