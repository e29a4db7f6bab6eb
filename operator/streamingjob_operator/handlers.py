"""kopf's decorators, and nothing else: kopf is the eyes. Each handler puts what it saw into the queue and returns.

Only `on.event` is used: it adds no finalizer and no annotation, and its objects' handlers carry no state.
"""

from typing import Any

import kopf

from snapshot_engine.wire.spec import GROUP, PLURAL, VERSION
from streamingjob_operator import naming
from streamingjob_operator.controller import Controller

DELETED = "DELETED"
REFUSAL_PAUSES_SECONDS = (1, 1, 2, 3, 5, 8, 13, 21, 30, 30)


def register_handlers(registry: kopf.OperatorRegistry, controller: Controller, *, watch_nodes: bool) -> None:
    @kopf.on.startup(registry=registry)
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = True
        settings.peering.standalone = True
        # A refusal ends kopf after these pauses. They last longer than from one resync to the next, which tells kopf
        # to leave such a namespace out.
        settings.networking.error_backoffs = REFUSAL_PAUSES_SECONDS
        # Other pods of the cluster are none of our business, and need not even be sent.
        settings.watching.label_selectors["v1", "pods"] = naming.UID_LABEL

    @kopf.on.login(registry=registry)
    async def log_in(**arguments: Any) -> Any:
        """With the service account inside a cluster, or with the kubeconfig outside."""
        return kopf.login_with_service_account(**arguments) or kopf.login_with_kubeconfig(**arguments)

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def see_job(event: Any, body: Any, **_: Any) -> None:
        controller.job_seen(_plain(body), deleted=event["type"] == DELETED)

    @kopf.on.event("v1", "pods", registry=registry)
    async def see_pod(event: Any, body: Any, **_: Any) -> None:
        controller.pod_seen(_plain(body), deleted=event["type"] == DELETED)

    if watch_nodes:

        @kopf.on.event("v1", "nodes", registry=registry)
        async def see_node(event: Any, body: Any, **_: Any) -> None:
            controller.node_seen(_plain(body), deleted=event["type"] == DELETED)


def _plain(body: Any) -> dict[str, Any]:
    """kopf's view of an object, as an ordinary dict that can be kept."""
    return {key: body[key] for key in body}
