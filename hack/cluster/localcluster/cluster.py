"""The whole cluster: up, down, and what is there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster import cgroups, debian_packages, dns, image_loading, preflight, programs, tools, volumes
from localcluster.api_server import sweep_abandoned
from localcluster.certificates import Authority
from localcluster.commands import run
from localcluster.control_plane import ControlPlane, remove_folder
from localcluster.errors import ClusterError
from localcluster.host_network import HostNetwork
from localcluster.image_building import ImageBuilder
from localcluster.locks import one_at_a_time
from localcluster.node import MOST_NODES, Node
from localcluster.settings import Settings
from localcluster.waiting import wait_for


def silent(_message: str) -> None:
    """For callers that want no progress lines."""


@dataclass(frozen=True)
class LocalCluster:
    settings: Settings
    say: Callable[[str], None] = silent

    @property
    def env(self) -> dict[str, str]:
        return debian_packages.environment(self.settings.paths)

    @property
    def plane(self) -> ControlPlane:
        return ControlPlane(
            folder=self.settings.paths.running,
            programs=self.settings.paths.programs,
            authority=Authority(self.settings.paths.certificates, self.env),
            network=self.settings.network,
            ports=self.settings.ports,
            address=self.settings.network.host_address,
            node_grace_seconds=self.settings.node_grace_seconds,
        )

    @property
    def host_network(self) -> HostNetwork:
        return HostNetwork(self.settings.names, self.settings.network, self.env)

    def node(self, number: int) -> Node:
        return Node(number, self.settings)

    def running_nodes(self) -> list[Node]:
        nodes = [self.node(number) for number in range(1, MOST_NODES + 1)]
        return [node for node in nodes if node.find_init()]

    def is_up(self) -> bool:
        return self.node(1).is_started() and self.plane.is_alive()

    def up(self, nodes: int = 1, *, for_tests: bool = False) -> None:
        """Idempotent: what runs is left alone, what is half there is started anew.

        Who wanted it is decided under the lock: what tests find already started is not theirs to take down.
        """
        require_number_of_nodes(nodes)
        preflight.require_linux()
        preflight.require_root()
        with self.lock():
            self.provide()
            if not self.plane.has_api_server():
                self.take_down()
                self.start_control_plane(for_tests=for_tests)
            if not for_tests:
                self.settings.paths.started_by_tests.unlink(missing_ok=True)
            self.plane.wait_until_ready()
            self.plane.start_controllers()
            self.write_kubeconfig()
            self.apply(dns.manifests(self.settings.network))
            self.make_volumes()
            for number in range(1, nodes + 1):
                self.start_node(number)
            self.wait_for_dns()

    def provide(self) -> None:
        """Everything that must be built or downloaded; nothing if it is there."""
        paths = self.settings.paths
        preflight.require_usable_cache(paths.cache)
        programs.require_space(paths)
        debian_packages.provide(paths, debian_packages.NODE_PACKAGES)
        programs.provide(paths, self.say)
        image_loading.provide_program_images(paths)

    def start_control_plane(self, *, for_tests: bool) -> None:
        preflight.before_start(self.settings, self.host_network)
        # From here on there is something that `down` has to undo.
        self.settings.paths.running.mkdir(parents=True, exist_ok=True)
        self.settings.remember()
        if for_tests:
            self.settings.paths.started_by_tests.touch()
        self.say("starting etcd, the API server, the controller manager and the scheduler")
        self.host_network.create_bridge()
        self.plane.start_api_server(pods=True)

    def write_kubeconfig(self) -> None:
        give_to_caller(self.plane.admin_kubeconfig(self.settings.paths.kubeconfig))

    def provide_volumes(self) -> None:
        """For whoever finds the cluster up: others may have used them all."""
        with self.lock():
            self.make_volumes()

    def make_volumes(self) -> None:
        """Those that are not there, and those whose claim is gone, anew and empty."""
        found = json.loads(self.kubectl("get", "pv", "-o", "json"))["items"]
        phases = {volume["metadata"]["name"]: volume["status"].get("phase", "Pending") for volume in found}
        items = [volumes.default_storage_class()]
        for name in volumes.NAMES:
            if phases.get(name) not in volumes.FREE_OR_IN_USE:
                self.kubectl("delete", "pv", name, "--ignore-not-found", "--timeout=30s")
                volumes.make_empty(self.settings.paths.volumes / name)
                items.append(volumes.host_volume(name, self.settings.paths.volumes / name, volumes.STORAGE_CLASS))
        self.apply({"apiVersion": "v1", "kind": "List", "items": items})

    def start_node(self, number: int) -> None:
        node = self.node(number)
        old_heartbeat = None
        if not node.is_started():
            self.say(f"starting {node.name}")
            old_heartbeat = self.ready_condition(node)[1]
            node.start_containerd(self.plane)
            image_loading.load_all(node)
            node.start_kubelet()
        node.mend_link()
        self.wait_until_ready(node, old_heartbeat)

    def wait_until_ready(self, node: Node, old_heartbeat: str | None) -> None:
        """A node that lost its power is called Ready for a while: its first word after that counts."""

        def is_ready() -> bool:
            status, heartbeat = self.ready_condition(node)
            return status == "True" and heartbeat != old_heartbeat

        wait_for(f"{node.name} to be Ready", is_ready, seconds=90, every=0.2, explain=node.explain)

    def node_condition(self, node: Node) -> str:
        """The status of its Ready condition: True, False, Unknown, or empty for a node that nobody knows."""
        return self.ready_condition(node)[0]

    def ready_condition(self, node: Node) -> tuple[str, str]:
        """Its status and when the kubelet last confirmed it."""
        path = '{range .status.conditions[?(@.type=="Ready")]}{.status} {.lastHeartbeatTime}{end}'
        try:
            status, _, heartbeat = self.kubectl("get", "node", node.name, "-o", f"jsonpath={path}").partition(" ")
        except ClusterError:
            return "", ""
        return status, heartbeat

    def wait_for_dns(self) -> None:
        arguments = ["-n", dns.NAMESPACE, "rollout", "status", f"deployment/{dns.NAME}", "--timeout=90s"]
        try:
            self.kubectl(*arguments)
        except ClusterError as error:
            self.plane.require_controllers()
            pods = self.kubectl("-n", dns.NAMESPACE, "describe", "pods")
            raise ClusterError(f"{error}\n{pods}") from None

    def add_node(self, number: int) -> None:
        require_number_of_nodes(number)
        preflight.require_root()
        with self.lock():
            if not self.plane.is_alive():
                raise ClusterError("the cluster is not up", "make cluster")
            self.start_node(number)

    def remove_node(self, number: int) -> None:
        with self.lock():
            self.node(number).stop()
            self.kubectl("delete", "node", self.node(number).name, "--ignore-not-found", "--wait=false")

    def down(self, *, only_if_started_by_tests: bool = False) -> None:
        if not self.settings.paths.cache.exists():
            return
        if self.has_traces():
            preflight.require_root()
        with self.lock():
            if only_if_started_by_tests and not self.settings.paths.started_by_tests.exists():
                return
            self.take_down()
            sweep_abandoned(self.settings.paths.cache)

    def take_down(self) -> None:
        """Takes down whatever is there, whole or in part."""
        if not self.has_traces():
            return
        preflight.require_root()
        self.say("taking the cluster down")
        if self.may_have_started():
            self.undo()
        self.settings.paths.settings_of_run.unlink(missing_ok=True)  # by now nothing has that name any more
        remove_folder(self.settings.paths.running)  # last: without it nobody knows that there was something

    def undo(self) -> None:
        for node in self.nodes_ever_started():
            node.stop()
        self.plane.stop()
        self.host_network.delete_bridge()
        cgroups.remove(self.settings.names.cgroup)
        cgroups.take_back(self.settings.paths.delegated_controllers)
        self.settings.paths.kubeconfig.unlink(missing_ok=True)

    def has_traces(self) -> bool:
        return self.settings.paths.running.exists()

    def may_have_started(self) -> bool:
        """Not if `up` was killed before it, or `down` after all else: a bridge of that name is another cluster's."""
        paths = self.settings.paths
        return paths.settings_of_run.exists() or any(paths.running.glob("*.pid.json"))

    def nodes_ever_started(self) -> list[Node]:
        folders = self.settings.paths.nodes.glob("node-*")
        return [self.node(int(folder.name.removeprefix("node-"))) for folder in sorted(folders)]

    def build_image(self) -> None:
        """The project's image, into every node that runs; the others load it when they start."""
        preflight.require_linux()
        preflight.require_root()
        paths = self.settings.paths
        preflight.require_usable_cache(paths.cache)
        preflight.require_space(paths.cache, preflight.SPACE_TO_BUILD)
        builder = ImageBuilder(paths, self.say)
        with self.lock("image-lock"):
            builder.build(self.settings.full_image)
            with self.lock():
                builder.export(self.settings.full_image)
                self.load_images()

    def load_images(self) -> None:
        for node in self.running_nodes():
            self.say(f"loading the image into {node.name}")
            image_loading.load_all(node)

    def tool(self, name: str) -> Path:
        """A program that some tests want beside a cluster: helm, promtool, …"""
        return tools.provide(name, self.settings.paths, self.say)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        kubeconfig = f"--kubeconfig={self.settings.paths.kubeconfig}"
        return run([self.settings.paths.programs / "kubectl", kubeconfig, *arguments], stdin=stdin, timeout=120)

    def apply(self, manifest: dict[str, Any]) -> None:
        self.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))

    def lock(self, name: str = "lock") -> AbstractContextManager[None]:
        """One change at a time; what takes long to build has locks of its own."""
        return one_at_a_time(self.settings.paths.cache / name, self.say)


def give_to_caller(file: Path) -> None:
    """Whoever used sudo wants to read it afterwards without."""
    if os.geteuid() == 0 and (user := os.environ.get("SUDO_UID")):
        os.chown(file, int(user), int(os.environ.get("SUDO_GID", "-1")))


def require_number_of_nodes(nodes: int) -> None:
    if not 1 <= nodes <= MOST_NODES:
        raise ClusterError(f"a cluster has 1 to {MOST_NODES} nodes, not {nodes}")
