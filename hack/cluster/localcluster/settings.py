"""Where things are, and the names, addresses and ports that the cluster takes: read here and nowhere else."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from localcluster.errors import ClusterError
from localcluster.whole_files import write_whole

REPOSITORY = Path(__file__).resolve().parents[3]

KUBERNETES_VERSION = "v1.35.4"
CLUSTER_DOMAIN = "cluster.local"

PAUSE_IMAGE = "docker.io/streamingjob-cluster/pause:1"
COREDNS_IMAGE = "docker.io/streamingjob-cluster/coredns:1"


def environment(name: str, default: str) -> str:
    return os.environ.get(f"STREAMINGJOB_CLUSTER_{name}") or default


def checked(name: str, default: str, pattern: str, expected: str) -> str:
    value = environment(name, default)
    if not re.fullmatch(pattern, value):
        raise ClusterError(f"STREAMINGJOB_CLUSTER_{name} is {value!r}", f"It must be {expected}, for example {default}")
    return value


def number(name: str, default: str, least: int, most: int) -> int:
    expected = f"a number from {least} to {most}"
    value = int(checked(name, default, r"[0-9]{1,9}", expected))
    if not least <= value <= most:
        raise ClusterError(f"STREAMINGJOB_CLUSTER_{name} is {value}", f"It must be {expected}, for example {default}")
    return value


DEFAULTS = {"NAME": "streamingjob", "NETWORK": "10.213", "FIRST_PORT": "16443", "NODE_GRACE_SECONDS": "50"}
"""Of what a cluster has as long as it runs."""


def values_of_run(paths: Paths) -> dict[str, str]:
    """What the cluster that runs was started with: a shell that says less finds it all the same."""
    try:
        values: dict[str, str] = json.loads(paths.settings_of_run.read_text())
    except FileNotFoundError:
        return DEFAULTS
    for name, value in values.items():
        if (given := environment(name, value)) != value:
            raise ClusterError(
                f"STREAMINGJOB_CLUSTER_{name} is {given!r}, but the cluster in {paths.cache} has {value!r}",
                "Unset it; for another, run `make cluster-down` without it first.",
            )
    return values


OCTET = r"(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"


@dataclass(frozen=True)
class Paths:
    """Everything that is built, downloaded or running lives below `cache`; deleting it deletes all of it."""

    cache: Path

    @property
    def programs(self) -> Path:
        return self.cache / "bin"

    @property
    def debian(self) -> Path:
        return self.cache / "debian"

    @property
    def certificates(self) -> Path:
        return self.cache / "certificates"

    @property
    def images(self) -> Path:
        return self.cache / "images"

    @property
    def nodes(self) -> Path:
        """What survives a `down`: the nodes' containerd folders, so that images need not be loaded again."""
        return self.cache / "nodes"

    @property
    def volumes(self) -> Path:
        """Folders that pods of every node may share through hostPath volumes."""
        return self.cache / "volumes"

    @property
    def running(self) -> Path:
        """What one run of the cluster leaves: process ids, configuration, logs, etcd's data."""
        return self.cache / "run"

    @property
    def settings_of_run(self) -> Path:
        return self.running / "settings.json"

    @property
    def logs(self) -> Path:
        return self.running / "logs"

    @property
    def delegated_controllers(self) -> Path:
        """What the root of cgroups v2 hands down since this cluster came up, and did not before."""
        return self.running / "delegated-controllers"

    @property
    def started_by_tests(self) -> Path:
        """Exists while nobody but tests wants the cluster; goes with the run's folder."""
        return self.running / "started-by-tests"

    @property
    def kubeconfig(self) -> Path:
        return self.cache / "kubeconfig"


@dataclass(frozen=True)
class Names:
    """What the cluster's traces on the host are called; another name lets another cluster run beside it."""

    cluster: str

    @property
    def bridge(self) -> str:
        return f"{self.cluster}0"

    @property
    def cgroup(self) -> str:
        return f"{self.cluster}-cluster"

    def link(self, node: int) -> str:
        return f"{self.cluster}{node}n"


@dataclass(frozen=True)
class Network:
    """One /16 for all: nodes in its first /24, services in its second quarter, pods in its upper half."""

    prefix: str

    @property
    def whole(self) -> str:
        return f"{self.prefix}.0.0/16"

    @property
    def host_address(self) -> str:
        return f"{self.prefix}.0.1"

    @property
    def service_range(self) -> str:
        return f"{self.prefix}.64.0/18"

    @property
    def kubernetes_service(self) -> str:
        return f"{self.prefix}.64.1"

    @property
    def dns_service(self) -> str:
        return f"{self.prefix}.64.10"

    @property
    def pod_range(self) -> str:
        return f"{self.prefix}.128.0/17"

    def node_address(self, number: int) -> str:
        return f"{self.prefix}.0.{10 + number}"

    def node_pod_range(self, number: int) -> str:
        return f"{self.prefix}.{128 + number}.0/24"


@dataclass(frozen=True)
class Ports:
    """The host's ports that the control plane listens on."""

    api_server: int
    etcd: int
    etcd_peer: int
    controller_manager: int
    scheduler: int

    @classmethod
    def starting_at(cls, first: int) -> Ports:
        return cls(first, first + 1, first + 2, first + 3, first + 4)


@dataclass(frozen=True)
class Settings:
    names: Names
    paths: Paths
    network: Network
    ports: Ports
    node_grace_seconds: int
    """How long a node may be silent before the controller manager calls it not ready."""
    image_tag: str = "dev"
    """Of the project's image: with tags of their own, several trees share one cluster."""

    @property
    def image(self) -> str:
        """The project's, as a pod names it."""
        return f"streamingjob:{self.image_tag}"

    @property
    def full_image(self) -> str:
        """The same, as containerd names it."""
        return f"docker.io/library/{self.image}"

    @classmethod
    def from_environment(cls) -> Settings:
        paths = Paths(Path(environment("CACHE", str(REPOSITORY / ".cache" / "cluster"))).resolve())
        values = values_of_run(paths)
        return cls(
            names=Names(checked("NAME", values["NAME"], "[a-z][a-z0-9]{0,11}", "1 to 12 small letters and digits")),
            paths=paths,
            network=Network(
                checked("NETWORK", values["NETWORK"], rf"{OCTET}\.{OCTET}", "the first half of an IPv4 address")
            ),
            ports=Ports.starting_at(number("FIRST_PORT", values["FIRST_PORT"], 1024, 65531)),
            node_grace_seconds=number("NODE_GRACE_SECONDS", values["NODE_GRACE_SECONDS"], 1, 86400),
            image_tag=checked("IMAGE_TAG", "dev", r"\w[\w.-]{0,127}", "a tag of an image"),
        )

    def remember(self) -> None:
        """For `from_environment`, as long as the cluster runs."""
        values = {
            "NAME": self.names.cluster,
            "NETWORK": self.network.prefix,
            "FIRST_PORT": str(self.ports.api_server),
            "NODE_GRACE_SECONDS": str(self.node_grace_seconds),
        }
        write_whole(self.paths.settings_of_run, json.dumps(values).encode())
