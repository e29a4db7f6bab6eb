"""Kubeconfig files: how one user reaches one API server."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from localcluster.certificates import KeyPair
from localcluster.whole_files import write_whole

CONTEXT = "streamingjob-cluster"


def write_kubeconfig(target: Path, server: str, authority: Path, user: KeyPair) -> Path:
    """Self-contained, so that it may be copied anywhere; JSON is YAML."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": CONTEXT, "cluster": {"server": server, "certificate-authority-data": encoded(authority)}}
        ],
        "users": [
            {
                "name": CONTEXT,
                "user": {
                    "client-certificate-data": encoded(user.certificate),
                    "client-key-data": encoded(user.key),
                },
            }
        ],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
        "current-context": CONTEXT,
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, json.dumps(content, indent=1).encode(), mode=0o600)
    return target


def encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
