"""A node, seen from the host: started, stopped, left without power (killed) or without a cable (cut off)."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from localcluster import cgroups, debian_packages
from localcluster.commands import Argument, run
from localcluster.control_plane import ControlPlane, remove_folder
from localcluster.errors import ClusterError
from localcluster.host_network import HostNetwork
from localcluster.node_configuration import (
    cni_configuration,
    containerd_toml,
    kube_proxy_configuration,
    kubelet_configuration,
    write_json,
)
from localcluster.node_init import IMAGES_LOADED, NodeSpecification
from localcluster.processes import Process, ProcessFolder
from localcluster.settings import Settings
from localcluster.waiting import wait_for

MOST_NODES = 9


@dataclass(frozen=True)
class Node:
    number: int
    settings: Settings

    @property
    def name(self) -> str:
        return f"node-{self.number}"

    @property
    def cgroup(self) -> str:
        """As the kubelet names it: from the root of the hierarchy."""
        return f"/{self.settings.names.cgroup}/{self.name}"

    @property
    def folder(self) -> Path:
        return self.settings.paths.running / self.name

    @property
    def kept(self) -> Path:
        return self.settings.paths.nodes / self.name

    @property
    def processes(self) -> ProcessFolder:
        return ProcessFolder(self.settings.paths.running)

    @property
    def env(self) -> dict[str, str]:
        env = debian_packages.environment(self.settings.paths)
        env["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
        return env

    @property
    def host_network(self) -> HostNetwork:
        return HostNetwork(self.settings.names, self.settings.network, self.env)

    def find_init(self) -> Process | None:
        return self.processes.find(f"{self.name}-init")

    def is_started(self) -> bool:
        """Not if the command that started it was interrupted before the kubelet ran."""
        return self.find_init() is not None and self.images_loaded.exists()

    @property
    def images_loaded(self) -> Path:
        """The kubelet waits for this file: without the pause image no pod can start."""
        return self.folder / IMAGES_LOADED

    def start_containerd(self, plane: ControlPlane) -> None:
        """Everything but the kubelet, which waits for the images."""
        remove_folder(self.folder)
        self.remove_traces()
        cgroups.create(self.settings.names.cgroup, self.name, self.settings.paths.delegated_controllers)
        spec = self.write_configuration(plane)
        separation = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command: list[Argument] = [
            "unshare",
            *separation,
            sys.executable,
            "-m",
            "localcluster.node_init",
            spec,
        ]
        outer = self.processes.start(self.name, command, env=self.env)
        init = wait_for("the node's first process", lambda: only_child(outer), seconds=10, every=0.01)
        self.processes.remember(f"{self.name}-init", init)
        self.host_network.plug_in(self.number, init)
        self.wait_for_containerd()

    def write_configuration(self, plane: ControlPlane) -> Path:
        network, paths = self.settings.network, self.settings.paths
        for folder in (self.folder, self.kept / "var-lib" / "containerd", self.folder / "var-log"):
            folder.mkdir(parents=True, exist_ok=True)
        paths.logs.mkdir(parents=True, exist_ok=True)
        resolv_conf = self.folder / "resolv.conf"
        resolv_conf.write_text("")
        cni = write_json(self.folder / "cni" / "pods.conflist", cni_configuration(network.node_pod_range(self.number)))
        containerd = self.folder / "containerd.toml"
        containerd.write_text(containerd_toml(debian_packages.cni_plugins(paths), cni.parent))
        authority = plane.authority.pair.certificate
        kubelet = write_json(
            self.folder / "kubelet.json", kubelet_configuration(self.cgroup, network, authority, resolv_conf)
        )
        proxy = write_json(
            self.folder / "kube-proxy.json",
            kube_proxy_configuration(self.name, network, plane.kubeconfig_for("kube-proxy", "system:kube-proxy")),
        )
        kubeconfig = plane.kubeconfig_for(self.name, f"system:node:{self.name}", "system:nodes")
        target = self.folder / "specification.json"
        self.specification(containerd, kubelet, proxy, kubeconfig).write(target)
        return target

    def specification(self, containerd: Path, kubelet: Path, proxy: Path, kubeconfig: Path) -> NodeSpecification:
        network, programs = self.settings.network, self.settings.paths.programs
        others = [number for number in range(1, MOST_NODES + 1) if number != self.number]
        return NodeSpecification(
            name=self.name,
            folder=str(self.folder),
            var_lib=str(self.kept / "var-lib"),
            var_log=str(self.folder / "var-log"),
            address=network.node_address(self.number),
            gateway=network.host_address,
            routes={network.node_pod_range(other): network.node_address(other) for other in others},
            containerd=["containerd", "--config", str(containerd)],
            kubelet=[
                str(programs / "kubelet"),
                f"--config={kubelet}",
                f"--kubeconfig={kubeconfig}",
                f"--hostname-override={self.name}",
                f"--node-ip={network.node_address(self.number)}",
            ],
            kube_proxy=[str(programs / "kube-proxy"), f"--config={proxy}"],
        )

    def wait_for_containerd(self) -> None:
        wait_for("containerd to answer", self.containerd_answers, seconds=30, explain=self.explain)

    def containerd_answers(self) -> bool:
        if not self.find_init():
            raise ClusterError(f"{self.name} ended as it started:\n{self.processes.last_lines(self.name)}")
        try:
            self.ctr("version")
        except ClusterError:
            return False
        return True

    def explain(self) -> str:
        logs = self.settings.paths.logs
        return f"See {logs}/{self.name}*.log. The node's last lines:\n{self.processes.last_lines(self.name)}"

    def start_kubelet(self) -> None:
        self.images_loaded.touch()

    def ctr(self, *arguments: Argument) -> str:
        return self.enter("ctr", "--namespace", "k8s.io", *arguments)

    def enter(self, *command: Argument) -> str:
        return run([*self.entrance(), *command], env=self.env, timeout=120)

    def entrance(self) -> list[str]:
        init = self.find_init()
        if init is None:
            raise ClusterError(f"{self.name} is not running")
        return ["nsenter", "--target", str(init.pid), "--mount", "--net", "--pid"]

    def kill(self) -> None:
        """As when the power fails: every process of the node, its pods included, is gone at once."""
        if init := self.find_init():
            init.kill()
        self.remove_traces()

    def cut_link(self) -> None:
        self.host_network.cut(self.number)

    def mend_link(self) -> None:
        self.host_network.mend(self.number)

    def stop(self) -> None:
        if init := self.find_init():
            init.end(patience=15)
        self.remove_traces()
        remove_folder(self.folder)

    def remove_traces(self) -> None:
        """What a node's end leaves on the host: its records, cgroup, route and the kubelet's folder."""
        for record in (f"{self.name}-init", self.name):
            self.processes.stop(record, patience=2)
        self.host_network.unplug(self.number)
        cgroups.remove(self.settings.names.cgroup, self.name)
        for folder in (self.kept / "var-lib").glob("*"):
            if folder.name != "containerd":
                shutil.rmtree(folder, ignore_errors=True)


def only_child(process: Process) -> int | None:
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    except FileNotFoundError:
        raise ClusterError("the node's first process could not be started: see the node's log") from None
    return int(children[0]) if children else None
