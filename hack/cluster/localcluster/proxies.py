"""A proxy of this machine is for what is downloaded; nobody asks it for the cluster's own addresses."""

from __future__ import annotations

import os
from collections.abc import Mapping

from localcluster.settings import Network

PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
EXCEPTIONS = ("NO_PROXY", "no_proxy")


def exceptions(env: Mapping[str, str], network: Network) -> str:
    """What NO_PROXY must say; empty where there is no proxy."""
    if not any(env.get(name) or env.get(name.lower()) for name in PROXIES):
        return ""
    given = next((env[name] for name in EXCEPTIONS if env.get(name)), "")
    # Not every client understands a whole network, so the API server is named by itself.
    ours = ["localhost", "127.0.0.1", network.host_address, network.whole]
    return ",".join(dict.fromkeys([*filter(None, given.split(",")), *ours]))


def reach_directly(network: Network) -> None:
    """From here on, for this process and all that it starts."""
    if value := exceptions(os.environ, network):
        os.environ.update(dict.fromkeys(EXCEPTIONS, value))
