"""Wrong circumstances, found before anything is started: each check raises an error that says what to do."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

from localcluster.errors import ClusterError
from localcluster.host_network import HostNetwork, link_exists
from localcluster.settings import Ports, Settings

NOT_IN_PATHS = ':,"\\\n'
"""What PATH, mount options and configuration files would take for something else."""
HIDDEN_IN_NODES = ("/run", "/var/run", "/var/lib", "/var/log", "/proc", "/sys", "/dev")
GIGABYTE = 1 << 30
SPACE_TO_BUILD, SPACE_TO_RUN, SPACE_FOR_HELM = 8 * GIGABYTE, 1 * GIGABYTE, 2 * GIGABYTE


def require_linux() -> None:
    if sys.platform != "linux":
        raise ClusterError(
            "this cluster needs Linux: its nodes are namespaces of the kernel",
            "Use kind or minikube, and set KUBECONFIG: the tests take whatever cluster it names.",
        )


def require_root() -> None:
    if os.geteuid() != 0:
        raise ClusterError(
            "the cluster's nodes need root: they mount, route and make cgroups",
            "Run it as root, for example with `sudo -E`, or set KUBECONFIG to a cluster of your own, or to what "
            "`sudo -E make cluster image` has brought up. (`make api-server`, for tests without pods, needs no root.)",
        )


def require_usable_cache(cache: Path) -> None:
    if found := [character for character in NOT_IN_PATHS if character in str(cache)]:
        raise ClusterError(
            f"the cache folder {str(cache)!r} has {found[0]!r} in its name, which mounts and PATH cannot carry",
            "Set STREAMINGJOB_CLUSTER_CACHE to another folder.",
        )
    for folder in HIDDEN_IN_NODES:
        if cache.is_relative_to(folder):
            raise ClusterError(
                f"the cache folder {cache} lies in {folder}, of which every node has one of its own",
                "Set STREAMINGJOB_CLUSTER_CACHE to a folder elsewhere.",
            )


def require_space(cache: Path, needed: int) -> None:
    folder = next(parent for parent in (cache, *cache.parents) if parent.exists())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ClusterError(
            f"{folder} has {free / GIGABYTE:.1f} GB free; {needed / GIGABYTE:.0f} GB are needed",
            "Make room, or set STREAMINGJOB_CLUSTER_CACHE to a folder on another disk.",
        )


def require_free_ports(ports: Ports, address: str) -> None:
    wanted = {"API server": (address, ports.api_server), "etcd": ("127.0.0.1", ports.etcd)}
    wanted["etcd's peers"] = ("127.0.0.1", ports.etcd_peer)
    wanted["controller manager"] = ("127.0.0.1", ports.controller_manager)
    wanted["scheduler"] = ("127.0.0.1", ports.scheduler)
    for purpose, (host, port) in wanted.items():
        if not port_is_free(host, port):
            raise ClusterError(
                f"port {port} (for the {purpose}) is in use by {user_of_port(port)}",
                "Stop that process, or set STREAMINGJOB_CLUSTER_FIRST_PORT to the first of five free ports.",
            )


def port_is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def user_of_port(port: int) -> str:
    """The process, as far as one may look; root sees all."""
    inodes = listening_inodes(port)
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if target in inodes:
            pid = link.parts[2]
            return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    return "a process that this user may not see"


def listening_inodes(port: int) -> set[str]:
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in lines_of(Path(table)):
            if re.match(rf"\s*\d+: \w+:{port:04X} \w+:\w+ 0A ", line):
                found.add(f"socket:[{line.split()[9]}]")
    return found


def lines_of(file: Path) -> Iterable[str]:
    return file.read_text().splitlines()[1:] if file.exists() else []


def require_free_addresses(host_network: HostNetwork) -> None:
    if routes := host_network.overlapping_routes():
        raise ClusterError(
            f"this machine routes {', '.join(routes)}, inside the cluster's {host_network.network.whole}",
            "Set STREAMINGJOB_CLUSTER_NETWORK to the first half of a free /16, for example 10.77",
        )


def require_free_bridge(bridge: str) -> None:
    if link_exists(bridge):
        raise ClusterError(
            f"the network interface {bridge} is there already, of a cluster with another cache folder",
            "To use it, set STREAMINGJOB_CLUSTER_CACHE to its folder; to have one beside it, set "
            "STREAMINGJOB_CLUSTER_NAME, _NETWORK and _FIRST_PORT to others; to end it, run `make cluster-down` where "
            f"it was started, or `ip link delete {bridge}` if its folder is gone.",
        )


def before_start(settings: Settings, host_network: HostNetwork) -> None:
    require_free_bridge(settings.names.bridge)
    require_free_addresses(host_network)
    require_free_ports(settings.ports, "0.0.0.0")
