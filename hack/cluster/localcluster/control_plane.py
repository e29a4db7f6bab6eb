"""etcd, the API server and, for a whole cluster, the controller manager and the scheduler: plain processes.

etcd and the API server alone need neither root nor containerd: that is what operator tests run against.
"""

from __future__ import annotations

import http.client
import os
import shutil
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localcluster.certificates import Authority, KeyPair, api_server_names
from localcluster.commands import Argument
from localcluster.errors import ClusterError
from localcluster.kubeconfig import write_kubeconfig
from localcluster.processes import ProcessFolder
from localcluster.settings import Network, Ports
from localcluster.waiting import wait_for

FEWER_COLLECTIONS = {"GOGC": "400"}
"""A quarter of the API server's start is spent collecting garbage."""
ETCD, API_SERVER = "etcd", "kube-apiserver"
CONTROLLER_MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"


@dataclass(frozen=True)
class ControlPlane:
    folder: Path
    programs: Path
    authority: Authority
    network: Network
    ports: Ports
    address: str
    """Where the API server listens, and what it advertises to pods."""
    node_grace_seconds: int = 50

    @property
    def processes(self) -> ProcessFolder:
        return ProcessFolder(self.folder)

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self.ports.api_server}"

    def start_api_server(self, *, pods: bool) -> None:
        """`pods` says whether somebody will run them: only then do pods need service accounts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.start(ETCD, etcd_arguments(self))
        self.start(API_SERVER, api_server_arguments(self, pods=pods))
        self.wait_until_ready()

    def start_controllers(self) -> None:
        """Those that do not run: without one of them the cluster keeps what it knows, but nothing moves."""
        if not self.processes.find(CONTROLLER_MANAGER):
            self.start(CONTROLLER_MANAGER, controller_manager_arguments(self))
        if not self.processes.find(SCHEDULER):
            self.start(SCHEDULER, scheduler_arguments(self))

    def require_controllers(self) -> None:
        self.require_running(CONTROLLER_MANAGER, SCHEDULER)

    def require_running(self, *names: str) -> None:
        for name in names:
            if not self.processes.find(name):
                raise ClusterError(f"{name} ended as it started:\n{self.processes.last_lines(name)}")

    def start(self, name: str, arguments: Sequence[Argument]) -> None:
        self.processes.start(name, [self.programs / name, *arguments], env={**os.environ, **FEWER_COLLECTIONS})

    def wait_until_ready(self) -> None:
        wait_for("the API server to be ready", self.ready_or_fail, seconds=60, every=0.05, explain=self.explain)

    def ready_or_fail(self) -> bool:
        self.require_running(ETCD, API_SERVER)
        return self.is_ready()

    def is_ready(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.authority.pair.certificate))
        connection = http.client.HTTPSConnection(self.address, self.ports.api_server, timeout=2, context=context)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def explain(self) -> str:
        log, end = self.processes.log(API_SERVER), self.processes.last_lines(API_SERVER)
        return f"The API server's last lines ({log}):\n{end}"

    def is_alive(self) -> bool:
        """Whether its processes run: on a busy machine they may take a while to answer."""
        return self.has_api_server() and all(self.processes.find(name) for name in (CONTROLLER_MANAGER, SCHEDULER))

    def has_api_server(self) -> bool:
        return all(self.processes.find(name) for name in (ETCD, API_SERVER))

    def stop(self) -> None:
        for name in (SCHEDULER, CONTROLLER_MANAGER, API_SERVER, ETCD):
            self.processes.stop(name, patience=2.0)
        remove_folder(self.folder / "etcd-data")

    def kubeconfig_for(self, name: str, user: str, group: str = "", *, target: Path | None = None) -> Path:
        pair = self.authority.client(name, user, group)
        target = target or self.folder / f"{name}.kubeconfig"
        return write_kubeconfig(target, self.server, self.authority.pair.certificate, pair)

    def admin_kubeconfig(self, target: Path) -> Path:
        return self.kubeconfig_for("admin", "admin", "system:masters", target=target)


def remove_folder(folder: Path) -> None:
    """A process that was just killed may write one more file."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)
    raise ClusterError(f"{folder} cannot be deleted", "Something is mounted or written there: see `mount`, `lsof +D`.")


def etcd_arguments(plane: ControlPlane) -> list[str]:
    client, peer = f"http://127.0.0.1:{plane.ports.etcd}", f"http://127.0.0.1:{plane.ports.etcd_peer}"
    return [
        f"--data-dir={plane.folder / 'etcd-data'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # the data is thrown away with the cluster
        "--log-level=warn",
    ]


def api_server_arguments(plane: ControlPlane, *, pods: bool) -> list[str]:
    serving = api_server_certificate(plane.authority, plane.network)
    to_kubelets = plane.authority.client("api-server-to-kubelets", "api-server", "system:masters")
    tokens = plane.authority.signing_key("service-accounts")
    arguments = [
        f"--etcd-servers=http://127.0.0.1:{plane.ports.etcd}",
        f"--bind-address={plane.address}",
        f"--advertise-address={plane.address}",
        f"--secure-port={plane.ports.api_server}",
        f"--service-cluster-ip-range={plane.network.service_range}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--client-ca-file={plane.authority.pair.certificate}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--kubelet-client-certificate={to_kubelets.certificate}",
        f"--kubelet-client-key={to_kubelets.key}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={tokens.certificate}",
        f"--service-account-signing-key-file={tokens.key}",
        "--profiling=false",
    ]
    if not pods:
        arguments.append("--disable-admission-plugins=ServiceAccount")
        arguments.append("--endpoint-reconciler-type=none")  # it refuses to advertise a loopback address
    return arguments


def api_server_certificate(authority: Authority, network: Network) -> KeyPair:
    hosts, addresses = api_server_names(network)
    return authority.server(f"api-server-{network.prefix}", hosts, addresses)


def controller_manager_arguments(plane: ControlPlane) -> list[str]:
    kubeconfig = plane.kubeconfig_for("controller-manager", "system:kube-controller-manager")
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--secure-port={plane.ports.controller_manager}",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={plane.authority.signing_key('service-accounts').key}",
        f"--root-ca-file={plane.authority.pair.certificate}",
        f"--node-monitor-grace-period={plane.node_grace_seconds}s",
        "--profiling=false",
    ]


def scheduler_arguments(plane: ControlPlane) -> list[str]:
    kubeconfig = plane.kubeconfig_for("scheduler", "system:kube-scheduler")
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--secure-port={plane.ports.scheduler}",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        "--profiling=false",
    ]
