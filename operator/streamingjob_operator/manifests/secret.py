"""The job's own secrets: the token of its control API, and the secret of Spark's connections."""

import base64
from typing import Any

from snapshot_engine.wire.control import CONTROL_TOKEN_FILE, SPARK_SECRET_FILE
from streamingjob_operator import naming
from streamingjob_operator.manifests.ownership import Owner


def build_secret(owner: Owner, control_token: str, spark_secret: str) -> dict[str, Any]:
    """Made once for each job and never changed: both sides keep what they were given."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": owner.metadata(naming.secret_name(owner.name, owner.uid)),
        "type": "Opaque",
        "immutable": True,
        "data": {CONTROL_TOKEN_FILE: _encode(control_token), SPARK_SECRET_FILE: _encode(spark_secret)},
    }


def read_control_token(secret: dict[str, Any]) -> str:
    return base64.b64decode(secret["data"][CONTROL_TOKEN_FILE]).decode()


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
