"""etcd and the API server alone, for tests that need no pods: no root, no node, seconds to start.

Each has a folder and ports of its own, so that any number of test runs may have one at the same time. Nobody runs
pods, deletes a namespace's contents or collects what an owner left: those are the controller manager's work.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from localcluster import debian_packages, preflight, programs
from localcluster.certificates import Authority
from localcluster.control_plane import API_SERVER, ETCD, ControlPlane, remove_folder
from localcluster.errors import ClusterError
from localcluster.locks import one_at_a_time
from localcluster.processes import ProcessFolder
from localcluster.settings import Ports, Settings

LOOPBACK = "127.0.0.1"
FOLDER_PREFIX = "api-server-"
OWNER = "owner"
OWNERS_LOCK = "owners-lock"


@dataclass(frozen=True)
class ApiServer:
    plane: ControlPlane

    @property
    def kubeconfig(self) -> Path:
        return self.plane.folder / "kubeconfig"

    def start(self) -> None:
        self.plane.start_api_server(pods=False)
        self.plane.admin_kubeconfig(self.kubeconfig)

    def stop(self) -> None:
        self.plane.stop()
        remove_folder(self.plane.folder)


def api_server_in(folder: Path, settings: Settings, say: Callable[[str], None]) -> ApiServer:
    """Ready to be started; programs and certificates are made if this is the first time."""
    preflight.require_linux()
    paths = settings.paths
    require_writable(paths.cache)
    programs.require_space(paths)
    programs.provide(paths, say)
    authority = Authority(paths.certificates, debian_packages.environment(paths))
    sweep_abandoned(paths.cache)
    claim(folder)
    return ApiServer(ControlPlane(folder, paths.programs, authority, settings.network, free_ports(), LOOPBACK))


def claim(folder: Path) -> None:
    with one_at_a_time(folder.parent / OWNERS_LOCK):
        folder.mkdir(parents=True)
        ProcessFolder(folder).remember(OWNER, os.getpid())


def sweep_abandoned(cache: Path) -> None:
    """Ends what a test run left that was killed before it could."""
    with one_at_a_time(cache / OWNERS_LOCK):
        for folder in cache.glob(f"{FOLDER_PREFIX}*"):
            if not ProcessFolder(folder).find(OWNER):
                sweep(folder)


def sweep(folder: Path) -> None:
    for name in (API_SERVER, ETCD):
        ProcessFolder(folder).stop(name, patience=1)
    remove_folder(folder)


def require_writable(cache: Path) -> None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "lock").touch()
    except PermissionError:
        raise ClusterError(
            f"this user may not write into {cache}, where the programs are built",
            "Set STREAMINGJOB_CLUSTER_CACHE to a folder that is yours.",
        ) from None


def free_ports() -> Ports:
    """Five that nobody has now; held together while they are chosen, so that they differ."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(5)]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return Ports(*(one.getsockname()[1] for one in sockets))
