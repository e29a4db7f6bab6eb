"""The headless service that gives the driver a name."""

from typing import Any

from snapshot_engine.wire.control import (
    CONTROL_PORT,
    CONTROL_PORT_NAME,
    SLOT_PORT,
    SPARK_BLOCK_MANAGER_PORT,
    SPARK_DRIVER_PORT,
)
from streamingjob_operator import naming
from streamingjob_operator.manifests.ownership import Owner


def build_service(owner: Owner) -> dict[str, Any]:
    ports = {
        CONTROL_PORT_NAME: CONTROL_PORT,
        "spark": SPARK_DRIVER_PORT,
        "blockmanager": SPARK_BLOCK_MANAGER_PORT,
        "slots": SLOT_PORT,
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(naming.driver_service_name(owner.name), naming.DRIVER),
        "spec": {
            "clusterIP": "None",
            # Executors must find the driver before it is ready, since it is ready only when they have come.
            "publishNotReadyAddresses": True,
            "selector": {naming.UID_LABEL: owner.uid, naming.COMPONENT_LABEL: naming.DRIVER},
            "ports": [{"name": name, "port": port, "targetPort": port} for name, port in ports.items()],
        },
    }
