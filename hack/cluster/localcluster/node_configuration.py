"""What the programs of a node are told: pure builders, one per file that is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from localcluster.settings import CLUSTER_DOMAIN, PAUSE_IMAGE, Network

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"


def containerd_toml(cni_plugins: Path, cni_configuration: Path) -> str:
    return f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true  # machines that withhold CAP_SYS_RESOURCE
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_plugins}"
    conf_dir = "{cni_configuration}"
"""


def cni_configuration(pod_range: str) -> dict[str, Any]:
    """A cable per pod and plain routing: all that pods send passes the node's service rules."""
    return {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni-addresses",
                    "ranges": [[{"subnet": pod_range}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def kubelet_configuration(cgroup: str, network: Network, authority: Path, resolv_conf: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "enforceNodeAllocatable": [],
        "clusterDNS": [network.dns_service],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": str(resolv_conf),
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(authority)}},
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        # Images come from archives: what is collected cannot be pulled again.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        # Not a share of the disk: 1 % of a large one is more than what `make cluster` asks for.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "200Mi", "imagefs.available": "200Mi"},
    }


def kube_proxy_configuration(node: str, network: Network, kubeconfig: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": network.pod_range,
        "hostnameOverride": node,
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "conntrack": {"maxPerCore": 0},  # only the first network namespace may set it
    }


def write_json(target: Path, content: dict[str, Any]) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(content, indent=1))
    return target
